#!/usr/bin/env bash
. tools/ci/common.sh
# What 65,536 rows take, which is the same without, is measured in the stage basics. The other tests are built without anything in the stage minimal.
without() { # name labels option...
    local name=$1 labels=$2
    shift 2
    build dev "no-$name" -DHYS_TEST_FOLDERS=unit "$@" && run_tests "no-$name" -- -L "^($labels)$" -E '^unit\.memory$'
}
without opencl 'unit|install' -DWITH_OPENCL=OFF -DWITH_CLBLAST=OFF
without openmp 'unit|install' -DWITH_OPENMP=OFF
without hwloc 'unit|install' -DWITH_HWLOC=OFF
without clblast 'unit|install' -DWITH_CLBLAST=OFF
# The library is the same without MPI, and so would unit tests be.
without mpi install -DWITH_MPI=OFF -DHYS_TEST_FOLDERS=
finish
