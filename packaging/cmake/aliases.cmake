# The targets of find_package(tsmalloc) for a project that has tsmalloc in its own build, by
# add_subdirectory or FetchContent.
if(TSMALLOC_SANITIZE)
  return()  # a sanitizer has its own malloc
endif()
include(${CMAKE_CURRENT_LIST_DIR}/tsmalloc-usage.cmake)

# tsmalloc.o is a file, not a CMake target.
get_target_property(object_file tsmalloc-object OBJECT)
add_library(tsmalloc-linked-object INTERFACE)
add_dependencies(tsmalloc-linked-object tsmalloc-object)
set_target_properties(tsmalloc-linked-object PROPERTIES
  INTERFACE_LINK_OPTIONS ${object_file} INTERFACE_LINK_DEPENDS ${object_file})

foreach(pair shared:tsmalloc static:tsmalloc-static object:tsmalloc-linked-object
    prefixed:tsmalloc-prefixed secure:tsmalloc-secure classic:tsmalloc-classic)
  string(REPLACE : ";" pair ${pair})
  list(GET pair 0 form)
  list(GET pair 1 target)
  set_target_properties(${target} PROPERTIES INTERFACE_INCLUDE_DIRECTORIES ${PROJECT_SOURCE_DIR}/include)
  tsmalloc_set_usage(${form} ${target})
  add_library(tsmalloc::${form} ALIAS ${target})
endforeach()
add_library(tsmalloc::tsmalloc ALIAS tsmalloc)
