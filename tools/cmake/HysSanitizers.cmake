# What the sanitizers' runtimes have to be told, added to HYS_TEST_ENVIRONMENT.

# Watching thread-local storage crashes the leak check now and then while PoCL's threads end ("Tracer caught signal 11").
if("address" IN_LIST HYS_SANITIZE)
    list(APPEND HYS_TEST_ENVIRONMENT "ASAN_OPTIONS=intercept_tls_get_addr=0")
    list(APPEND HYS_TEST_ENVIRONMENT "LSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/tools/cmake/leaks.supp:print_suppressions=0")
endif()

# An OpenMP runtime is not instrumented: Archer tells the thread sanitizer where its threads meet.
if("thread" IN_LIST HYS_SANITIZE)
    set(options "ignore_noninstrumented_modules=1")
    list(APPEND HYS_TEST_ENVIRONMENT "TSAN_OPTIONS=${options}")
    if(HYS_WITH_OPENMP)
        get_filename_component(folder "${OpenMP_omp_LIBRARY}" REALPATH)
        get_filename_component(folder "${folder}" DIRECTORY)
        find_library(HYS_ARCHER NAMES archer libarcher.so HINTS ${folder})
        if(HYS_ARCHER)
            list(APPEND HYS_TEST_ENVIRONMENT "OMP_TOOL_LIBRARIES=${HYS_ARCHER}")
        else()
            message(WARNING "no Archer (libarcher.so) beside ${OpenMP_omp_LIBRARY}: the thread sanitizer will report races that are none")
        endif()
    endif()
endif()
