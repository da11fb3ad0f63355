# The files of `cmake --install`, in four components: runtime, dev, tools, lab. All paths are
# relative to the prefix, and no installed file contains the prefix, so it may be moved. Libraries
# built for a sanitizer or gcov are not installed.
if(NOT TSMALLOC_INSTALL OR TSMALLOC_SANITIZE OR TSMALLOC_COVERAGE)
  return()
endif()
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(tsmalloc_home ${CMAKE_INSTALL_LIBDIR}/tsmalloc)

# Before the first file: fails with a remedy if the prefix cannot be written.
install(CODE [[
  set(folder "$ENV{DESTDIR}${CMAKE_INSTALL_PREFIX}")
  set(trial "${folder}/.tsmalloc-trial")
  execute_process(COMMAND "${CMAKE_COMMAND}" -E make_directory "${folder}" ERROR_QUIET)
  execute_process(COMMAND "${CMAKE_COMMAND}" -E touch "${trial}" RESULT_VARIABLE status ERROR_QUIET)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR " ${folder} cannot be written: install tsmalloc with `sudo`, or with \
`--prefix FOLDER` in a folder of your own")
  endif()
  file(REMOVE "${trial}")]]
  ALL_COMPONENTS)

# ---- runtime and dev: the libraries, and the files for building with them ----

install(TARGETS tsmalloc tsmalloc-secure tsmalloc-classic
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT runtime NAMELINK_COMPONENT dev)
install(TARGETS tsmalloc-static tsmalloc-prefixed tsmalloc-classic-static
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT dev)
install(FILES $<TARGET_PROPERTY:tsmalloc-object,OBJECT> DESTINATION ${tsmalloc_home} COMPONENT dev)
install(DIRECTORY include/tsmalloc DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT dev FILES_MATCHING PATTERN *.h PATTERN *.hpp)
install(FILES docs/man/libtsmalloc.7 DESTINATION ${CMAKE_INSTALL_MANDIR}/man7 COMPONENT dev)
install(FILES docs/man/libtsmalloc.3 DESTINATION ${CMAKE_INSTALL_MANDIR}/man3 COMPONENT dev)
# Each function's page refers to that one.
file(STRINGS docs/man/libtsmalloc.3 functions REGEX "^ts_version, ")
string(REGEX MATCHALL "ts_[a-z_]+" functions "${functions}")
foreach(name IN LISTS functions)
  file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/packaging/man3/${name}.3 CONTENT ".so man3/libtsmalloc.3\n")
  install(FILES ${PROJECT_BINARY_DIR}/packaging/man3/${name}.3 DESTINATION ${CMAKE_INSTALL_MANDIR}/man3 COMPONENT dev)
endforeach()
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS docs/man/libtsmalloc.3)

# find_package: the same minor version, as long as a minor version may change everything.
set(made ${PROJECT_BINARY_DIR}/packaging)
set(compatibility SameMajorVersion)
if(PROJECT_VERSION_MAJOR EQUAL 0)
  set(compatibility SameMinorVersion)
endif()
# As the kernel names it.
set(tsmalloc_processor ${CMAKE_SYSTEM_PROCESSOR})
configure_package_config_file(packaging/cmake/tsmalloc-config.cmake.in ${made}/tsmalloc-config.cmake
  INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/tsmalloc PATH_VARS CMAKE_INSTALL_LIBDIR CMAKE_INSTALL_INCLUDEDIR
  NO_SET_AND_CHECK_MACRO NO_CHECK_REQUIRED_COMPONENTS_MACRO)
write_basic_package_version_file(${made}/tsmalloc-config-version.cmake ARCH_INDEPENDENT
  COMPATIBILITY ${compatibility})
file(READ ${made}/tsmalloc-config-version.cmake version_file)
file(READ packaging/cmake/tsmalloc-config-version.cmake.in architecture)
file(CONFIGURE OUTPUT ${made}/tsmalloc-config-version.cmake CONTENT "${architecture}${version_file}" @ONLY)
install(FILES ${made}/tsmalloc-config.cmake ${made}/tsmalloc-config-version.cmake packaging/cmake/tsmalloc-usage.cmake
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/tsmalloc COMPONENT dev)

# pkg-config: relative to its file, except for directories outside the prefix.
set(prefix_from_pc ${CMAKE_INSTALL_PREFIX})
cmake_path(ABSOLUTE_PATH prefix_from_pc NORMALIZE)
set(folder ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
cmake_path(ABSOLUTE_PATH folder BASE_DIRECTORY ${prefix_from_pc} NORMALIZE)
cmake_path(RELATIVE_PATH prefix_from_pc BASE_DIRECTORY ${folder})
foreach(name libdir includedir)
  string(TOUPPER ${name} NAME)
  set(pc_${name} ${CMAKE_INSTALL_${NAME}})
  if(NOT IS_ABSOLUTE ${pc_${name}})
    string(PREPEND pc_${name} "\${prefix}/")
  endif()
endforeach()
list(TRANSFORM CMAKE_DL_LIBS PREPEND -l OUTPUT_VARIABLE pc_private)
foreach(name tsmalloc tsmalloc-prefixed)
  configure_file(packaging/cmake/${name}.pc.in packaging/${name}.pc @ONLY)
endforeach()
install(FILES ${made}/tsmalloc.pc ${made}/tsmalloc-prefixed.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT dev)

# ---- tools: the command ----

if(TARGET tsmalloc-front)
  install(TARGETS tsmalloc-front RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT tools)
  install(FILES docs/man/tsmalloc.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT tools)
  set(completion tools/completion)
  set(share ${CMAKE_INSTALL_DATADIR})
  install(FILES ${completion}/tsmalloc.bash RENAME tsmalloc
    DESTINATION ${share}/bash-completion/completions COMPONENT tools)
  install(FILES ${completion}/_tsmalloc DESTINATION ${share}/zsh/site-functions COMPONENT tools)
  install(FILES ${completion}/tsmalloc.fish DESTINATION ${share}/fish/vendor_completions.d COMPONENT tools)
endif()

# ---- lab: its home is LIBDIR/tsmalloc, its Python package is DATADIR/tsmalloc/python ----

if(NOT TARGET measure)
  return()
endif()
get_property(libraries GLOBAL PROPERTY TSMALLOC_LIBRARIES)
get_property(counted_libraries GLOBAL PROPERTY TSMALLOC_COUNTED_LIBRARIES)
get_property(experiment_programs GLOBAL PROPERTY TSMALLOC_EXPERIMENT_PROGRAMS)
get_property(workload_programs GLOBAL PROPERTY TSMALLOC_WORKLOAD_PROGRAMS)
list(REMOVE_ITEM libraries tsmalloc tsmalloc-secure)
set(programs measure ${experiment_programs} ${workload_programs})
if(TARGET trace)
  list(APPEND programs record replay trace)
endif()
install(TARGETS ${libraries} tsmalloc-tracker tsmalloc-record
  LIBRARY DESTINATION ${tsmalloc_home}/lib COMPONENT lab)
install(TARGETS ${counted_libraries} LIBRARY DESTINATION ${tsmalloc_home}/lib/counted COMPONENT lab)
install(TARGETS ${programs} RUNTIME DESTINATION ${tsmalloc_home}/bin COMPONENT lab)
install(DIRECTORY lab/experiments DESTINATION ${tsmalloc_home} COMPONENT lab FILES_MATCHING PATTERN *.toml)
install(FILES bench/workloads.toml bench/scaling.toml DESTINATION ${tsmalloc_home}/bench COMPONENT lab)
install(DIRECTORY lab/traces DESTINATION ${tsmalloc_home} COMPONENT lab FILES_MATCHING PATTERN *.tstrace)
install(DIRECTORY lab/tsmlab DESTINATION ${CMAKE_INSTALL_DATADIR}/tsmalloc/python COMPONENT lab
  PATTERN __pycache__ EXCLUDE PATTERN home EXCLUDE)
file(CONFIGURE OUTPUT packaging/VERSION CONTENT "@PROJECT_VERSION@\n" @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/packaging/VERSION
  DESTINATION ${CMAKE_INSTALL_DATADIR}/tsmalloc/python/tsmlab COMPONENT lab)

# Installs a symbolic link from `link` to `target`, both relative to the prefix.
function(tsmalloc_install_link link target)
  cmake_path(GET link PARENT_PATH folder)
  cmake_path(GET link FILENAME name)
  # Absolute directories of GNUInstallDirs, which a distribution may have chosen.
  cmake_path(ABSOLUTE_PATH folder BASE_DIRECTORY ${CMAKE_INSTALL_PREFIX} OUTPUT_VARIABLE from)
  cmake_path(ABSOLUTE_PATH target BASE_DIRECTORY ${CMAKE_INSTALL_PREFIX})
  cmake_path(RELATIVE_PATH target BASE_DIRECTORY ${from})
  set(made ${PROJECT_BINARY_DIR}/packaging/${folder})
  file(MAKE_DIRECTORY ${made})
  file(CREATE_LINK ${target} ${made}/${name} SYMBOLIC)
  install(FILES ${made}/${name} DESTINATION ${folder} COMPONENT lab)
endfunction()
foreach(library tsmalloc tsmalloc-secure)
  tsmalloc_install_link(${tsmalloc_home}/lib/lib${library}.so
    ${CMAKE_INSTALL_LIBDIR}/lib${library}.so.${TSMALLOC_SOVERSION})
endforeach()
tsmalloc_install_link(${tsmalloc_home}/bin/tsmalloc ${CMAKE_INSTALL_BINDIR}/tsmalloc)
tsmalloc_install_link(${CMAKE_INSTALL_DATADIR}/tsmalloc/python/tsmlab/home ${tsmalloc_home})

cmake_path(RELATIVE_PATH CMAKE_INSTALL_DATADIR BASE_DIRECTORY ${tsmalloc_home} OUTPUT_VARIABLE datadir_from_home)
configure_file(packaging/cmake/tsmalloc-lab.in packaging/tsmalloc-lab @ONLY)
install(PROGRAMS ${PROJECT_BINARY_DIR}/packaging/tsmalloc-lab DESTINATION ${tsmalloc_home} COMPONENT lab)
