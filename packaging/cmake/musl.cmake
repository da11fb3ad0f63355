# Builds the libraries for musl on a Debian that runs glibc, with its packages g++ and musl-tools:
#
#     cmake --preset musl && cmake --build --preset musl && ctest --preset musl
#
# musl-tools wraps only gcc, since there is no libstdc++ for musl. The libraries do not need one:
# they only use C++ headers that leave no calls behind. So this file points g++ at those headers, at
# musl's and at the kernel's, and takes the rest from musl-gcc's own specs. C++ programs that need a
# run-time library do not link. On a system of musl (Alpine) no such file is needed.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR ${CMAKE_HOST_SYSTEM_PROCESSOR})
set(TSMALLOC_NO_CXX_RUNTIME TRUE)

set(CMAKE_C_COMPILER gcc)
set(CMAKE_CXX_COMPILER g++)
execute_process(COMMAND ${CMAKE_C_COMPILER} -print-multiarch OUTPUT_VARIABLE glibc_triplet OUTPUT_STRIP_TRAILING_WHITESPACE)
string(REPLACE "-gnu" "-musl" musl_triplet ${glibc_triplet})
set(musl_specs /usr/lib/${musl_triplet}/musl-gcc.specs)
if(NOT EXISTS ${musl_specs})
  message(FATAL_ERROR "There is no ${musl_specs}: install musl (Debian, Ubuntu: sudo apt install musl-tools).")
endif()

# The kernel's headers, without glibc's, which are next to them.
set(kernel_headers ${CMAKE_BINARY_DIR}/kernel-headers)
file(MAKE_DIRECTORY ${kernel_headers})
foreach(folder linux asm-generic ${glibc_triplet}/asm)
  cmake_path(GET folder FILENAME name)
  file(CREATE_LINK /usr/include/${folder} ${kernel_headers}/${name} SYMBOLIC)
endforeach()

# The folders of C++ headers that g++ would search, in its order; then musl's, and gcc's own.
execute_process(COMMAND ${CMAKE_CXX_COMPILER} -E -x c++ -v /dev/null OUTPUT_QUIET ERROR_VARIABLE searched)
string(REGEX MATCHALL "\n /[^\n]*/c\\+\\+/[^\n]*" cxx_headers "${searched}")
execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-file-name=include OUTPUT_VARIABLE gcc_headers OUTPUT_STRIP_TRAILING_WHITESPACE)
set(CMAKE_CXX_FLAGS_INIT "-specs=${musl_specs} -nostdinc -nostdinc++ -isystem \"${CMAKE_CURRENT_LIST_DIR}/musl\"")
foreach(folder IN LISTS cxx_headers)
  string(STRIP "${folder}" folder)
  string(APPEND CMAKE_CXX_FLAGS_INIT " -isystem ${folder}")
endforeach()
string(APPEND CMAKE_CXX_FLAGS_INIT " -isystem /usr/include/${musl_triplet} -isystem ${gcc_headers} -isystem \"${kernel_headers}\"")
set(CMAKE_C_FLAGS_INIT "-specs=${musl_specs} -isystem \"${kernel_headers}\"")
# Linked files need musl by its name on Alpine. musl's loader takes any name that begins with
# "libc." for itself; glibc's reports which library is missing. (It would find a libc.so, which is a
# text.)
set(link_folder ${CMAKE_BINARY_DIR}/musl-link)
file(MAKE_DIRECTORY ${link_folder})
string(REGEX REPLACE "-.*" "" processor ${musl_triplet})
file(CREATE_LINK /usr/lib/${musl_triplet}/libc.so ${link_folder}/libc.musl-${processor}.so.1 SYMBOLIC)
file(WRITE ${link_folder}/libc.so "INPUT(-l:libc.musl-${processor}.so.1)\n")
foreach(kind SHARED MODULE EXE)
  set(CMAKE_${kind}_LINKER_FLAGS_INIT "-L\"${link_folder}\"")
endforeach()

# A C++ program that CMake tries would be linked with glibc's libstdc++.
set(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY)
