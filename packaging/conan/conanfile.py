"""Conan 2: `conan create packaging/conan -o "&:form=static"` builds one form of the library.

The sources are those of the checkout that has this recipe. Does not build the lab.
"""

from __future__ import annotations

import re
from pathlib import Path

from conan import ConanFile
from conan.errors import ConanInvalidConfiguration
from conan.tools.cmake import CMake, CMakeToolchain, cmake_layout
from conan.tools.files import copy

# For each form: the CMake target, and the library's name.
FORMS = {
    "shared": ("tsmalloc", "tsmalloc"),
    "static": ("tsmalloc-static", "tsmalloc"),
    "prefixed": ("tsmalloc-prefixed", "tsmalloc-prefixed"),
    "secure": ("tsmalloc-secure", "tsmalloc-secure"),
}


class Tsmalloc(ConanFile):
    name = "tsmalloc"
    description = "A fast, small malloc for Linux"
    license = "MIT"
    topics = ("malloc", "allocator", "memory")
    settings = "os", "arch", "compiler", "build_type"
    options = {"form": list(FORMS)}  # noqa: RUF012 (Conan's own form of it)
    default_options = {"form": "shared"}  # noqa: RUF012

    @property
    def form(self) -> str:
        return str(self.options.form)

    @property
    def checkout(self) -> Path:
        return Path(self.recipe_folder).parents[1]

    def set_version(self) -> None:
        header = (self.checkout / "include/tsmalloc/tsmalloc.h").read_text(encoding="utf-8")
        numbers = re.findall(r"^#define TSMALLOC_VERSION_[A-Z]+ (\d+)$", header, re.MULTILINE)
        self.version = ".".join(numbers)

    def export_sources(self) -> None:
        for pattern in ("CMakeLists.txt", "LICENSE", "include/*", "src/*", "packaging/cmake/*"):
            copy(self, pattern, str(self.checkout), self.export_sources_folder)

    def configure(self) -> None:
        # C++ of any standard can link with it, and so can C.
        self.settings.rm_safe("compiler.cppstd")
        self.settings.rm_safe("compiler.libcxx")
        self.package_type = (
            "shared-library" if self.form in {"shared", "secure"} else "static-library"
        )

    def validate(self) -> None:
        machine = f"{self.settings.os} {self.settings.arch}"
        if machine not in {"Linux x86_64", "Linux armv8", "Linux riscv64"}:
            raise ConanInvalidConfiguration(f"tsmalloc is for 64-bit Linux, not for {machine}")

    def layout(self) -> None:
        cmake_layout(self)

    def generate(self) -> None:
        toolchain = CMakeToolchain(self)
        for part in ("TESTS", "LAB", "INSTALL"):
            toolchain.cache_variables[f"TSMALLOC_{part}"] = False
        toolchain.generate()

    def build(self) -> None:
        cmake = CMake(self)
        cmake.configure()
        cmake.build(target=FORMS[self.form][0])

    def package(self) -> None:
        copy(self, "LICENSE", self.source_folder, str(Path(self.package_folder) / "licenses"))
        include = Path(self.package_folder) / "include"
        for name in ("*.h", "*.hpp"):
            copy(self, name, str(Path(self.source_folder) / "include"), str(include))
        suffix = ".so*" if self.package_type == "shared-library" else ".a"
        library = f"lib{FORMS[self.form][1]}{suffix}"
        copy(self, library, f"{self.build_folder}/lib", f"{self.package_folder}/lib")

    def package_info(self) -> None:
        self.cpp_info.set_property("cmake_target_name", f"tsmalloc::{self.form}")
        self.cpp_info.libs = [FORMS[self.form][1]]
        if self.form == "prefixed":
            self.cpp_info.defines = ["TSMALLOC_PREFIXED"]
            # A library that contains the engine stays loaded, because threads and forks call it.
            self.cpp_info.sharedlinkflags = ["-Wl,-z,nodelete"]
        else:
            # Links the library even into a program that does not call malloc itself.
            self.cpp_info.exelinkflags = ["-Wl,-u,malloc"]
        if self.form in {"static", "prefixed"}:
            self.cpp_info.system_libs = ["dl", "pthread"]
