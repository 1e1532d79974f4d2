#!/usr/bin/env bash
. tools/ci/common.sh
without() { # name option...
    local name=$1
    shift
    build dev "no-$name" "$@" && run_tests "no-$name" -- -L '^(unit|install)$'
}
without opencl -DWITH_OPENCL=OFF -DWITH_CLBLAST=OFF
without openmp -DWITH_OPENMP=OFF
without hwloc -DWITH_HWLOC=OFF
without clblast -DWITH_CLBLAST=OFF
without mpi -DWITH_MPI=OFF
finish
