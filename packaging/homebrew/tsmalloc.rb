# Untested: no test builds it. A formula of Homebrew on Linux, for the main branch of the checkout
# around it: brew install --HEAD packaging/homebrew/tsmalloc.rb
class Tsmalloc < Formula
  desc "Fast, small malloc for Linux"
  license "MIT"
  head "file://#{File.expand_path("../..", __dir__)}", using: :git, branch: "main"

  depends_on "cmake" => :build
  depends_on "gcc" => :build
  depends_on :linux

  fails_with :gcc do
    version "11"
    cause "the sources are C++20 of gcc 12"
  end

  def install
    args = %w[-DTSMALLOC_TESTS=OFF -DTSMALLOC_LAB=OFF -DTSMALLOC_INSTALL=ON]
    system "cmake", "-S", ".", "-B", "build", *args, *std_cmake_args
    system "cmake", "--build", "build"
    system "cmake", "--install", "build"
  end

  test do
    (testpath/"test.c").write <<~C
      #define TSMALLOC_REQUIRED
      #include <stdlib.h>
      #include <tsmalloc/tsmalloc.h>
      int main(void) {
        void* block = malloc(33);
        return ts_version() == TSMALLOC_VERSION && ts_usable_size(block) >= 33 ? 0 : 1;
      }
    C
    system ENV.cc, "test.c", "-I#{include}", "-L#{lib}", "-Wl,-rpath,#{lib}", "-ltsmalloc", "-o", "test"
    system "./test"
  end
end
