# How this project's own code is compiled: hyscale_options, for everything that is built here.

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
    set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "Build type" FORCE)
endif()
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_C_STANDARD 11)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_C_VISIBILITY_PRESET hidden)

# Contraction is off so that results do not depend on the compiler: kernels ask for fused multiply-add themselves.
add_library(hyscale_options INTERFACE)
target_compile_options(hyscale_options INTERFACE
    -Wall -Wextra -Wshadow -Wconversion -Wno-sign-conversion -Wstrict-prototypes -Wmissing-prototypes -Wvla
    $<$<C_COMPILER_ID:GNU>:-Wdouble-promotion> # of which clang has another idea: it minds double x = INFINITY
    -fno-math-errno -ffp-contract=off $<$<CONFIG:RelWithDebInfo>:-O3> $<$<BOOL:${HYS_WERROR}>:-Werror>)

# The x87 unit of 32-bit x86 rounds when it spills, which would make results depend on the compiler too.
string(TOLOWER "${CMAKE_SYSTEM_PROCESSOR}" processor)
if(CMAKE_SIZEOF_VOID_P EQUAL 4 AND processor MATCHES "^(x86_64|amd64|i.86)$")
    target_compile_options(hyscale_options INTERFACE -msse2 -mfpmath=sse)
endif()

foreach(sanitizer ${HYS_SANITIZE})
    if(NOT sanitizer MATCHES "^(address|thread|undefined)$")
        message(FATAL_ERROR "HYS_SANITIZE=${HYS_SANITIZE}: '${sanitizer}' is none of address, thread, undefined")
    endif()
    add_compile_options(-fsanitize=${sanitizer} -fno-sanitize-recover=all -fno-omit-frame-pointer)
    add_link_options(-fsanitize=${sanitizer})
endforeach()

if(HYS_FUZZ)
    include(CheckCSourceCompiles)
    set(CMAKE_REQUIRED_FLAGS -fsanitize=fuzzer)
    check_c_source_compiles("int LLVMFuzzerTestOneInput(const char *d, unsigned long n) { return !d && n; }" HYS_HAS_LIBFUZZER)
    unset(CMAKE_REQUIRED_FLAGS)
    if(NOT HYS_HAS_LIBFUZZER)
        message(FATAL_ERROR "HYS_FUZZ=ON, but ${CMAKE_C_COMPILER} has no -fsanitize=fuzzer: use clang (Debian: clang libclang-rt-14-dev)")
    endif()
    add_compile_options(-fsanitize=fuzzer-no-link)
endif()

# Keeps what the version script does not name out of the target's dynamic symbols, where the linker knows how.
function(hys_export_only target version_script)
    include(CheckLinkerFlag)
    check_linker_flag(C "-Wl,--version-script=${version_script}" HYS_LINKER_HAS_VERSION_SCRIPT)
    if(HYS_LINKER_HAS_VERSION_SCRIPT)
        target_link_options(${target} PRIVATE "-Wl,--version-script=${version_script}")
        set_property(TARGET ${target} APPEND PROPERTY LINK_DEPENDS ${version_script})
    endif()
endfunction()
