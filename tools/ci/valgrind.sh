#!/usr/bin/env bash
. tools/ci/common.sh
# The portable kernels under Valgrind, which knows no AVX-512: what was read and never written, accesses out of bounds, leaks.
need valgrind valgrind
build minimal minimal || finish
folder=$HYS_CI_ROOT/minimal

watched() { # log program...
    local log=$1
    shift
    valgrind --quiet --leak-check=full --errors-for-leak-kinds=definite --error-exitcode=9 "$@" > "$log" 2>&1
}

# It must find what is planted.
for control in heap_overflow leak; do
    log=$HYS_CI_FOLDER/$control.log
    cc -g -std=c11 -D_POSIX_C_SOURCE=200809L -Iinclude -Isrc "tests/controls/$control.c" "$folder/libhyscale.a" -lm -pthread -o "$HYS_CI_FOLDER/$control" &&
        watched "$log" "$HYS_CI_FOLDER/$control"
    if [ $? = 9 ]; then pass; else fail "$control was not found" "read $log"; fi
done

run() { # program kernels
    local log status
    log=$HYS_CI_FOLDER/$(basename "$1")${2//\*/}.log
    HYS_DISABLE=avx2,neon HYS_TEST_KERNELS=$2 watched "$log" "$folder/tests/$1"
    status=$?
    echo "$status $1 $2: $(grep -cE '^\[       OK ' "$log") cases; $log"
}
export -f run watched
export folder HYS_CI_FOLDER

for program in attention attention_backward select select_coarse loss determinism; do
    echo "conformance/conformance_$program *.portable"
done > "$HYS_CI_FOLDER/list"
for program in merge pool pool_backward fidelity; do echo "conformance/conformance_$program *.ref"; done >> "$HYS_CI_FOLDER/list"
for program in isa topk bound convert batch; do echo "unit/unit_$program *"; done >> "$HYS_CI_FOLDER/list"
while read -r status what; do
    if [ "$status" = 0 ]; then pass; note "${what%;*}"; else fail "${what%;*} (exit $status)" "read ${what#*; }"; fi
done < <(xargs -P "$HYS_CI_JOBS" -L 1 bash -c 'run "$@"' run < "$HYS_CI_FOLDER/list")
finish
