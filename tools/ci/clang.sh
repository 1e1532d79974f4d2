#!/usr/bin/env bash
. tools/ci/common.sh
need clang clang
build dev clang -DCMAKE_C_COMPILER=clang && run_tests clang -- -L '^unit$'
finish
