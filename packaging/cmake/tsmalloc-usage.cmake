# What a target asks of those that link it, beside its file and its headers. An installed tsmalloc
# and one that is a part of another project's build include this, so that both are the same to use.
function(tsmalloc_set_usage form target)
  set(is_library $<OR:$<STREQUAL:$<TARGET_PROPERTY:TYPE>,SHARED_LIBRARY>,$<STREQUAL:$<TARGET_PROPERTY:TYPE>,MODULE_LIBRARY>>)
  # Where libc has parts in other libraries (glibc before 2.34).
  if(form MATCHES "^(static|object|prefixed|classic)$")
    set_property(TARGET ${target} APPEND PROPERTY INTERFACE_LINK_LIBRARIES ${CMAKE_DL_LIBS})
    set_property(TARGET ${target} APPEND PROPERTY INTERFACE_LINK_OPTIONS -pthread)
  endif()
  # Call stacks in heap profiles: the index of the tables, which gcc's -static leaves out.
  if(form MATCHES "^(static|object|prefixed)$")
    set_property(TARGET ${target} APPEND PROPERTY INTERFACE_LINK_OPTIONS LINKER:--eh-frame-hdr)
  endif()
  # A program that calls no malloc itself gets the library as well, even by --as-needed, for which
  # an undefined name of the command line is no need.
  if(form STREQUAL "static")
    set_property(TARGET ${target} APPEND PROPERTY INTERFACE_LINK_OPTIONS LINKER:-u,malloc)
  elseif(form MATCHES "^(shared|secure)$")
    set_property(TARGET ${target} APPEND PROPERTY INTERFACE_LINK_OPTIONS
      LINKER:--push-state,--no-as-needed,$<TARGET_FILE:${target}>,--pop-state)
  endif()
  # A static C++ program throws std::bad_alloc by a function that the object may not ask for, since
  # C programs have it, too.
  if(form STREQUAL "object")
    set_property(TARGET ${target} APPEND PROPERTY INTERFACE_LINK_OPTIONS
      $<$<LINK_LANGUAGE:CXX>:LINKER:-u,_ZSt17__throw_bad_allocv>)
  endif()
  # The malloc of a process is not a shared library's to bring along; CMake says that this target is
  # not found.
  if(form MATCHES "^(static|object)$")
    set_property(TARGET ${target} APPEND PROPERTY INTERFACE_LINK_LIBRARIES
      $<${is_library}:tsmalloc::${form}_is_for_executables__a_library_takes_tsmalloc::shared>)
  endif()
  # The headers' functions are those of the archive, whatever is included first. A library that has the
  # engine in stays loaded: threads and forks call it.
  if(form STREQUAL "prefixed")
    set_property(TARGET ${target} APPEND PROPERTY INTERFACE_COMPILE_DEFINITIONS TSMALLOC_PREFIXED)
    set_property(TARGET ${target} APPEND PROPERTY INTERFACE_LINK_OPTIONS $<${is_library}:LINKER:-z,nodelete>)
  endif()
endfunction()
