# Toolchain of another architecture than this machine's: Debian's cross compiler, what runs its programs here, and a folder of
# Debian packages of that architecture (tools/ci/foreign.sh fills it).
#   cmake --preset dev -DCMAKE_TOOLCHAIN_FILE=tools/cmake/foreign.cmake -DHYS_FOREIGN=i686 -DHYS_FOREIGN_ROOT=/folder [-DHYS_FOREIGN_COMPILER=clang]

set(CMAKE_TRY_COMPILE_PLATFORM_VARIABLES HYS_FOREIGN HYS_FOREIGN_ROOT HYS_FOREIGN_COMPILER)
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR ${HYS_FOREIGN})
set(triple ${HYS_FOREIGN}-linux-gnu)
set(folder ${triple}) # of the packages
if(HYS_FOREIGN STREQUAL "i686")
    set(folder i386-linux-gnu)
endif()

if(HYS_FOREIGN_COMPILER STREQUAL "clang")
    set(CMAKE_C_COMPILER clang)
    set(CMAKE_C_COMPILER_TARGET ${triple})
else()
    set(CMAKE_C_COMPILER ${triple}-gcc)
endif()
set(CMAKE_C_FLAGS_INIT "-isystem ${HYS_FOREIGN_ROOT}/usr/include/${folder}")

set(libraries /usr/${triple}/lib:${HYS_FOREIGN_ROOT}/usr/lib/${folder})
set(CMAKE_EXE_LINKER_FLAGS_INIT "-Wl,-rpath-link,${libraries}")
if(HYS_FOREIGN STREQUAL "i686") # runs on a 64-bit processor as it is
    set(CMAKE_CROSSCOMPILING_EMULATOR /usr/${triple}/lib/ld-linux.so.2 --library-path ${libraries})
else()
    set(CMAKE_CROSSCOMPILING_EMULATOR qemu-${HYS_FOREIGN} -L /usr/${triple} -E LD_LIBRARY_PATH=${libraries})
endif()

set(CMAKE_FIND_ROOT_PATH ${HYS_FOREIGN_ROOT} /usr/${triple})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(CMAKE_LIBRARY_ARCHITECTURE ${folder})
set(ENV{PKG_CONFIG_LIBDIR} ${HYS_FOREIGN_ROOT}/usr/lib/${folder}/pkgconfig)
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${HYS_FOREIGN_ROOT})
