# What `cmake --install` puts where. CMake users of the shared library need none of the dependencies;
# those of the static one ask for it: find_package(hyscale COMPONENTS static).

include(CMakePackageConfigHelpers)

file(GLOB headers CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/include/hyscale/*.h)
if(NOT HYS_WITH_OPENCL)
    list(FILTER headers EXCLUDE REGEX "/opencl\\.h$")
endif()
if(NOT HYS_WITH_MPI)
    list(FILTER headers EXCLUDE REGEX "/mpi\\.h$")
endif()
install(FILES ${headers} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/hyscale)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/hyscale)
install(TARGETS hyscale EXPORT hyscale-targets)
install(TARGETS hyscale_static EXPORT hyscale-static-targets)
set(sets hyscale-targets hyscale-static-targets)
if(HYS_WITH_MPI) # component mpi: hyscale::mpi
    install(TARGETS hyscale_mpi EXPORT hyscale-mpi-targets)
    install(TARGETS hyscale_mpi_static EXPORT hyscale-mpi-static-targets)
    list(APPEND sets hyscale-mpi-targets hyscale-mpi-static-targets)
endif()
foreach(set ${sets})
    install(EXPORT ${set} NAMESPACE hyscale:: DESTINATION ${package_dir})
endforeach()
configure_package_config_file(${PROJECT_SOURCE_DIR}/tools/cmake/hyscale-config.cmake.in ${PROJECT_BINARY_DIR}/hyscale-config.cmake
    INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/hyscale-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/hyscale-config.cmake ${PROJECT_BINARY_DIR}/hyscale-config-version.cmake DESTINATION ${package_dir})

# hyscale.pc is relocatable, and names the static library's dependencies as flags, not as Requires.private:
# so users of the shared library need no development files of theirs.
file(RELATIVE_PATH HYS_PC_PREFIX ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
string(REGEX REPLACE "/$" "" HYS_PC_PREFIX "${HYS_PC_PREFIX}")
file(RELATIVE_PATH HYS_PC_LIBDIR ${CMAKE_INSTALL_PREFIX} ${CMAKE_INSTALL_FULL_LIBDIR})
file(RELATIVE_PATH HYS_PC_INCLUDEDIR ${CMAKE_INSTALL_PREFIX} ${CMAKE_INSTALL_FULL_INCLUDEDIR})
list(REMOVE_DUPLICATES HYS_PC_LIBS)
list(JOIN HYS_PC_LIBS " " HYS_PC_LIBS)
set(files hyscale.pc)
if(HYS_WITH_MPI)
    list(APPEND files hyscale_mpi.pc)
endif()
foreach(file ${files})
    configure_file(${PROJECT_SOURCE_DIR}/tools/cmake/${file}.in ${PROJECT_BINARY_DIR}/${file} @ONLY)
endforeach()
list(TRANSFORM files PREPEND ${PROJECT_BINARY_DIR}/)
install(FILES ${files} DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
