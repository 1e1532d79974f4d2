#!/usr/bin/env bash
. tools/ci/common.sh
need openmpi-bin mpirun
build dev dev -DWITH_MPI=REQUIRED && run_tests dev -- -L '^mpi$'
finish
