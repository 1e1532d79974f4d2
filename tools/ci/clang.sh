#!/usr/bin/env bash
. tools/ci/common.sh
# What 65,536 rows take is measured in the stage basics.
need clang clang
build dev clang -DCMAKE_C_COMPILER=clang && run_tests clang -- -L '^unit$' -E '^unit\.memory$'
finish
