// Nothing: CMake attaches a precompiled header to a target with a source (CMakeLists.txt).
