# HYS_SOURCES, the library's source files, and hyscale_internal, what compiling them (or looking inside, in a test) takes.

# Instruction sets beyond the baseline: file suffix, processors that may have it, compiler flags.
# A file backends/openmp/isa/*_<suffix>.c is built, and HYS_ISA_<SUFFIX> defined, where both fit. Add a line for a new suffix.
set(HYS_ISA_TABLE
    "neon|aarch64,arm64|-ffp-contract=off" # part of the baseline there
    "avx2|x86_64,amd64,i.86|-mavx2 -mfma -mf16c"
    "avx512|x86_64,amd64|-mavx2 -mfma -mf16c -mavx512f -mavx512bw -mavx512dq -mavx512vl"
    "avx512bf16|x86_64,amd64|-mavx2 -mfma -mf16c -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512bf16"
    "amx|x86_64,amd64|-mavx2 -mfma -mf16c -mavx512f -mavx512bw -mavx512dq -mavx512vl -mamx-tile -mamx-bf16"
)

file(GLOB HYS_SOURCES CONFIGURE_DEPENDS
    ${PROJECT_SOURCE_DIR}/src/*.c ${PROJECT_SOURCE_DIR}/backends/openmp/*.c ${PROJECT_SOURCE_DIR}/backends/openmp/isa/*.c)
# Those of hyscale_mpi, a library of its own.
set(HYS_MPI_SOURCES ${HYS_SOURCES})
list(FILTER HYS_MPI_SOURCES INCLUDE REGEX "/src/context_parallel[^/]*\\.c$")
list(FILTER HYS_SOURCES EXCLUDE REGEX "/src/context_parallel[^/]*\\.c$")

include(CheckCCompilerFlag)
string(TOLOWER "${CMAKE_SYSTEM_PROCESSOR}" processor)
foreach(row ${HYS_ISA_TABLE})
    string(REPLACE "|" ";" row "${row}")
    list(GET row 0 suffix)
    list(GET row 1 processors)
    list(GET row 2 flags)
    string(REPLACE "," "|" processors "${processors}")
    string(TOUPPER ${suffix} name)

    set(files ${HYS_SOURCES})
    list(FILTER files INCLUDE REGEX "/isa/[^/]*_${suffix}\\.c$")
    if(processor MATCHES "^(${processors})$")
        check_c_compiler_flag("${flags}" HYS_COMPILER_HAS_${name})
    endif()
    if(processor MATCHES "^(${processors})$" AND HYS_COMPILER_HAS_${name})
        separate_arguments(flags)
        set_property(SOURCE ${files} APPEND PROPERTY COMPILE_OPTIONS ${flags})
        list(APPEND HYS_DEFINITIONS HYS_ISA_${name}=1)
        set(HYS_FLAGS_${name} ${flags})
    elseif(files)
        list(REMOVE_ITEM HYS_SOURCES ${files})
    endif()
endforeach()

if(HYS_WITH_OPENCL)
    file(GLOB opencl_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/backends/opencl/*.c)
    file(GLOB kernels CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/cl_kernels/*.cl ${PROJECT_SOURCE_DIR}/cl_kernels/*.clh)
    set(embedded ${PROJECT_BINARY_DIR}/ocl_embedded.c)
    add_custom_command(OUTPUT ${embedded}
        COMMAND ${CMAKE_COMMAND} -DOUTPUT=${embedded} "-DINPUTS=${kernels}" -P ${PROJECT_SOURCE_DIR}/tools/cmake/embed.cmake
        DEPENDS ${kernels} ${PROJECT_SOURCE_DIR}/tools/cmake/embed.cmake
        COMMENT "Embedding OpenCL kernels" VERBATIM)
    list(APPEND HYS_SOURCES ${opencl_sources} ${embedded})
endif()

add_library(hyscale_internal INTERFACE)
target_link_libraries(hyscale_internal INTERFACE hyscale_options ${HYS_LIBRARIES})
target_compile_definitions(hyscale_internal INTERFACE _POSIX_C_SOURCE=200809L _FILE_OFFSET_BITS=64 ${HYS_DEFINITIONS})
if(NOT HYS_WITH_OPENMP)
    target_compile_options(hyscale_internal INTERFACE -Wno-unknown-pragmas) # the loops run serially
endif()
if(HYS_WITH_OPENCL)
    # The library calls nothing newer than OpenCL 1.2, so that it loads with every ICD loader.
    target_compile_definitions(hyscale_internal INTERFACE CL_TARGET_OPENCL_VERSION=120)
endif()
target_include_directories(hyscale_internal INTERFACE
    ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/backends/openmp ${PROJECT_SOURCE_DIR}/backends/opencl
    ${PROJECT_SOURCE_DIR})
