#!/usr/bin/env bash
. tools/ci/common.sh
. tools/ci/opencl.bash

# Both at once: each uses little more than one core.
watch() { # what [argument]
    local output=$HYS_CI_FOLDER/$1.out
    oclgrind "$1" "$HYS_CI_FOLDER/$1.log"
    "${under[@]}" timeout 1500 "$HYS_CI_ROOT/dev/tests/portability/portability_rows" "${@:2}" > "$output" 2>&1
    echo $? > "$HYS_CI_FOLDER/$1.status"
}

judge() { # what
    local output=$HYS_CI_FOLDER/$1.out log=$HYS_CI_FOLDER/$1.log
    count_program "$1" "$(cat "$HYS_CI_FOLDER/$1.status")" "$output"
    [ -z "$(findings "$log" "$output")" ] && return
    findings "$log" "$output" | head -n 40
    fail "Oclgrind has something to say about $1" "read $log and $output"
}

need oclgrind oclgrind
build dev dev || finish
device=Oclgrind
watch accesses &
watch initialised single &
wait
judge accesses
judge initialised
finish
