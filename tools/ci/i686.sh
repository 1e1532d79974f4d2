#!/usr/bin/env bash
. tools/ci/common.sh
need gcc-i686-linux-gnu i686-linux-gnu-gcc
foreign i686 gcc -DWITH_OPENMP=REQUIRED -DWITH_OPENCL=REQUIRED -DWITH_HWLOC=REQUIRED && run_tests i686-gcc -- -L '^(unit|conformance|gradient|fault|control)$'
foreign i686 clang -DWITH_OPENCL=REQUIRED -DWITH_HWLOC=REQUIRED && run_tests i686-clang -- -L '^(unit|control)$' -E '^unit.memory$'
finish
