#!/usr/bin/env bash
. tools/ci/common.sh
# The rest of aarch64; but unit.memory, which measures the emulator.
need gcc-aarch64-linux-gnu aarch64-linux-gnu-gcc
need qemu-user qemu-aarch64
foreign aarch64 gcc -DWITH_OPENMP=REQUIRED && run_tests aarch64-gcc -- -R '^(conformance\..*|unit\.(topk|isa))$'
finish
