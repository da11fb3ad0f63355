# Untested: no test builds it. nix-build packaging/nix builds the checkout around it.
{ pkgs ? import <nixpkgs> { } }:

let
  header = builtins.readFile ../../include/tsmalloc/tsmalloc.h;
  number = part:
    let found = builtins.match ".*#define TSMALLOC_VERSION_${part} ([0-9]+)\n.*" header;
    in builtins.head found;
in
pkgs.stdenv.mkDerivation {
  pname = "tsmalloc";
  version = pkgs.lib.concatMapStringsSep "." number [ "MAJOR" "MINOR" "PATCH" ];
  src = pkgs.lib.cleanSource ../..;
  nativeBuildInputs = [ pkgs.cmake ];
  cmakeFlags = [ "-DTSMALLOC_TESTS=OFF" "-DTSMALLOC_LAB=OFF" "-DTSMALLOC_INSTALL=ON" ];
  meta = {
    description = "A fast, small malloc for Linux";
    license = pkgs.lib.licenses.mit;
    platforms = [ "x86_64-linux" "aarch64-linux" "riscv64-linux" ];
  };
}
