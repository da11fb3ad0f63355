# Untested: no test builds it. An overlay port of vcpkg: `vcpkg install tsmalloc
# --overlay-ports=packaging/vcpkg` builds the checkout that this file is in.
# vcpkg's triplet decides between shared and static libraries; each has the prefixed archive, too.
get_filename_component(SOURCE_PATH "${CMAKE_CURRENT_LIST_DIR}/../.." ABSOLUTE)

vcpkg_cmake_configure(
  SOURCE_PATH "${SOURCE_PATH}"
  OPTIONS -DTSMALLOC_TESTS=OFF -DTSMALLOC_LAB=OFF -DTSMALLOC_INSTALL=ON)
vcpkg_cmake_install()
vcpkg_cmake_config_fixup(CONFIG_PATH lib/cmake/tsmalloc)
vcpkg_fixup_pkgconfig()

# The triplet's form of the library.
if(VCPKG_LIBRARY_LINKAGE STREQUAL "static")
  file(GLOB others "${CURRENT_PACKAGES_DIR}/lib/*.so*" "${CURRENT_PACKAGES_DIR}/debug/lib/*.so*")
else()
  file(GLOB others "${CURRENT_PACKAGES_DIR}/lib/libtsmalloc.a" "${CURRENT_PACKAGES_DIR}/lib/libtsmalloc-classic.a"
    "${CURRENT_PACKAGES_DIR}/debug/lib/libtsmalloc.a" "${CURRENT_PACKAGES_DIR}/debug/lib/libtsmalloc-classic.a")
endif()
if(others)
  file(REMOVE ${others})
endif()
file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/debug/include" "${CURRENT_PACKAGES_DIR}/debug/share")
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE")
