"""A C program that links with the package, and prints whose malloc it uses."""

from __future__ import annotations

from conan import ConanFile
from conan.tools.build import can_run
from conan.tools.cmake import CMake, CMakeToolchain, cmake_layout


class TsmallocTest(ConanFile):
    settings = "os", "arch", "compiler", "build_type"
    generators = "CMakeDeps", "VirtualRunEnv"

    def requirements(self) -> None:
        self.requires(self.tested_reference_str)

    def layout(self) -> None:
        cmake_layout(self)

    def generate(self) -> None:
        toolchain = CMakeToolchain(self)
        toolchain.user_presets_path = False
        tested = self.dependencies["tsmalloc"]
        toolchain.cache_variables["FORM"] = str(tested.options.form)
        toolchain.generate()

    def build(self) -> None:
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def test(self) -> None:
        if can_run(self):
            self.run(f"{self.cpp.build.bindir}/program", env="conanrun")
