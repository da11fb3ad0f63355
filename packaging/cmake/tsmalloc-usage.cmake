# A target's usage requirements, besides its file and its headers. An installed tsmalloc and one
# built as part of another project both include this, so that they are used in the same way.
function(tsmalloc_set_usage form target)
  set(is_library $<OR:$<STREQUAL:$<TARGET_PROPERTY:TYPE>,SHARED_LIBRARY>,$<STREQUAL:$<TARGET_PROPERTY:TYPE>,MODULE_LIBRARY>>)
  # If libc has parts in other libraries (glibc before 2.34).
  if(form MATCHES "^(static|object|prefixed|classic)$")
    set_property(TARGET ${target} APPEND PROPERTY INTERFACE_LINK_LIBRARIES ${CMAKE_DL_LIBS})
    set_property(TARGET ${target} APPEND PROPERTY INTERFACE_LINK_OPTIONS -pthread)
  endif()
  # The unwind index for call stacks in heap profiles, which gcc's -static leaves out.
  if(form MATCHES "^(static|object|prefixed)$")
    set_property(TARGET ${target} APPEND PROPERTY INTERFACE_LINK_OPTIONS LINKER:--eh-frame-hdr)
  endif()
  # Links the library even into a program that does not call malloc itself, and despite --as-needed,
  # which ignores undefined names on the command line.
  if(form STREQUAL "static")
    set_property(TARGET ${target} APPEND PROPERTY INTERFACE_LINK_OPTIONS LINKER:-u,malloc)
  elseif(form MATCHES "^(shared|secure)$")
    set_property(TARGET ${target} APPEND PROPERTY INTERFACE_LINK_OPTIONS
      LINKER:--push-state,--no-as-needed,$<TARGET_FILE:${target}>,--pop-state)
  endif()
  # A static C++ program throws std::bad_alloc through a function that the object must not require,
  # since C programs link it, too.
  if(form STREQUAL "object")
    set_property(TARGET ${target} APPEND PROPERTY INTERFACE_LINK_OPTIONS
      $<$<LINK_LANGUAGE:CXX>:LINKER:-u,_ZSt17__throw_bad_allocv>)
  endif()
  # A shared library must not bring along the malloc of a process; CMake reports that this target is
  # not found.
  if(form MATCHES "^(static|object)$")
    set_property(TARGET ${target} APPEND PROPERTY INTERFACE_LINK_LIBRARIES
      $<${is_library}:tsmalloc::${form}_is_for_executables__a_library_takes_tsmalloc::shared>)
  endif()
  # The headers declare the archive's functions, whichever is included first. A library that
  # contains the engine stays loaded, because threads and forks call it.
  if(form STREQUAL "prefixed")
    set_property(TARGET ${target} APPEND PROPERTY INTERFACE_COMPILE_DEFINITIONS TSMALLOC_PREFIXED)
    set_property(TARGET ${target} APPEND PROPERTY INTERFACE_LINK_OPTIONS $<${is_library}:LINKER:-z,nodelete>)
  endif()
endfunction()
