#!/usr/bin/env bash
. tools/ci/common.sh
need clang clang
programs=fuzzers build fuzz fuzz "${watched[@]}" -DHYS_FUZZ_SECONDS=120 && run_tests fuzz -- -L '^fuzz$'
finish
