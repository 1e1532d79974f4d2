#!/usr/bin/env bash
. tools/ci/common.sh
# What 65,536 rows take, which is the same without, is measured in the stage basics. The other tests are built without anything in the stage minimal.
without() { # name option...
    local name=$1
    shift
    build dev "no-$name" -DHYS_TEST_FOLDERS=unit "$@" && run_tests "no-$name" -- -L '^(unit|install)$' -E '^unit\.memory$'
}
without opencl -DWITH_OPENCL=OFF -DWITH_CLBLAST=OFF
without openmp -DWITH_OPENMP=OFF
without hwloc -DWITH_HWLOC=OFF
without clblast -DWITH_CLBLAST=OFF
without mpi -DWITH_MPI=OFF
finish
