#!/usr/bin/env bash
. tools/ci/common.sh
. tools/ci/opencl.bash

# Planted bugs (tests/controls), and what has to notice them, with what words. Without the plant nobody may say anything.
#
# plant            ; kernel row             ; case                ; detector    ; what it says
table='
missing_barrier    ; select.tile            ; select, two tiles   ; accesses    ; data race at local memory
divergent_barrier  ; select.tile            ; select, two tiles   ; accesses    ; Work-group divergence detected
plain_histogram    ; select.tile            ; select, ties        ; accesses    ; data race at local memory
beyond_the_row     ; attention_forward.tile ; forward             ; accesses    ; Invalid read of size
wrong_argument     ; attention_forward.tile ; forward             ; accesses    ; CL_INVALID_ARG_SIZE
much_local_memory  ; attention_forward.tile ; forward             ; accesses    ; CL_OUT_OF_RESOURCES
no_first_sum       ; attention_forward.tile ; forward             ; initialised ; depends on uninitialized value
tail_of_keys       ; attention_forward.tile ; forward, two tiles  ; oracle      ; attention_forward.tile on .*: o: error
late_ties          ; select.tile            ; select, ties        ; oracle      ; select.tile on .*: row
swapped_heads      ; attention_forward.tile ; forward, two tiles  ; oracle      ; attention_forward.tile on .*: o: error
tail_of_keys       ; attention_forward.tile ; forward, two tiles  ; self-test   ; failed its self-test
swapped_heads      ; attention_forward.tile ; forward, two tiles  ; self-test   ; failed its self-test
'

# Runs the case under the detector; what is said is in $output and, by Oclgrind, in $log.
detect() { # detector row case [plant]
    case $1 in
        accesses|initialised) oclgrind "$1" "$log" ;;
        oracle) use pocl64 ;;
        self-test) use pocl64 && under+=(HYS_TEST_SELFTEST=1) ;;
    esac || return
    HYS_CACHE_DIR='' HYS_PLANT=${4:-} HYS_TEST_DEVICES=opencl HYS_TEST_KERNELS=$2 HYS_TEST_FILTER=$3 \
        "${under[@]}" timeout 300 "$HYS_CI_ROOT/dev/tests/control_kernels" > "$output" 2>&1
}

control() { # plant row case detector words
    local name=$1-$4 output log status
    output=$HYS_CI_FOLDER/$name.out log=$HYS_CI_FOLDER/$name.log
    detect "$4" "$2" "$3" "$1"
    status=$?
    if ! grep -qxF "planted $1" "$output"; then
        fail "$1 was not planted" "the text that it replaces is gone: see tests/controls/planted_kernels.c"
    elif { [ $status != 0 ] || [ -s "$log" ]; } && grep -qE "$5" "$output" "$log" 2>/dev/null; then
        pass
        printf '%-18s noticed by %s\n' "$1" "$4"
    else
        fail "$1 passed unnoticed by: $4" "read $output"
    fi
}

clean() { # row case detector
    local name output log
    name=clean-$3-${1%%.*}-${2//[ ,]/_}
    output=$HYS_CI_FOLDER/$name.out log=$HYS_CI_FOLDER/$name.log
    if detect "$3" "$1" "$2" && [ -z "$(findings "$log" "$output")" ]; then pass
    else fail "$1 without a plant: $3 says something of \"$2\"" "read $output"
    fi
}

# One buffer that is never released, for who counts OpenCL's objects; then none.
leak() {
    local output=$HYS_CI_FOLDER/leak.out
    use pocl64 || return
    if HYS_PLANT=leaked_buffer "${under[@]}" "$HYS_CI_ROOT/dev/tests/fault/fault_opencl_calls" > "$output" 2>&1; then
        fail "leaked_buffer passed unnoticed" "read $output"
    elif grep -qE '0x[0-9a-f]+ != |things are held' "$output"; then
        pass
        printf '%-18s noticed by %s\n' leaked_buffer "counting objects"
    else
        fail "leaked_buffer: the program fails for another reason" "read $output"
    fi
}

need oclgrind oclgrind
build dev dev || finish
trim() { sed -E 's/^ +| +$//g' <<< "$1"; }
while IFS=';' read -r plant row case detector words; do
    control "$(trim "$plant")" "$(trim "$row")" "$(trim "$case")" "$(trim "$detector")" "$(trim "$words")"
done < <(grep ';' <<< "$table")
while IFS=';' read -r row case detector; do
    clean "$(trim "$row")" "$(trim "$case")" "$(trim "$detector")"
done < <(grep ';' <<< "$table" | cut -d ';' -f 2-4 | sort -u)
leak
finish
