#!/usr/bin/env bash
. tools/ci/common.sh
# What takes long under the emulator is in aarch64_long.
need gcc-aarch64-linux-gnu aarch64-linux-gnu-gcc
need qemu-user qemu-aarch64
foreign aarch64 gcc -DWITH_OPENMP=REQUIRED && run_tests aarch64-gcc -- -L '^(unit|gradient|fault|control)$' -E '^unit\.(memory|topk|isa)$'
foreign aarch64 clang && run_tests aarch64-clang -- -R '^(case\..*|control\..*|unit.(abi|problem|convert|stage))$'
finish
