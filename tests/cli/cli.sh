#!/usr/bin/env bash
# The command as a user meets it: good input works, bad input is told in one line and leaves with 2.
#   cli.sh HYSCALE SOURCE_DIR WORK_DIR
set -u
hyscale=$1 source=$2 work=$3
cases=$source/tests/cases passed=0 failed=0
rm -rf "$work" && mkdir -p "$work" && cd "$work" || exit 1

note_failure() { # name, reason
    echo "FAIL $1: $2"
    sed 's/^/     /' out err | head -n 8
    failed=$((failed + 1))
}

# expect NAME EXIT PATTERN COMMAND...: exit status, and a pattern in stdout or stderr. What exits with 2
# complains in one line; the bare command alone shows its usage.
expect() {
    local name=$1 exit=$2 pattern=$3 status
    shift 3
    "$@" > out 2> err < /dev/null
    status=$?
    if [ $status != "$exit" ]; then note_failure "$name" "exit $status, expected $exit"
    elif ! cat out err | grep -qE -- "$pattern"; then note_failure "$name" "nothing matches '$pattern'"
    elif [ "$exit" = 2 ] && [ $# -gt 1 ] && [ "$(wc -l < err)" -gt 2 ]; then note_failure "$name" "more than one line of complaint"
    else passed=$((passed + 1)); fi
}

# The same for what takes a while because it measures: left out with HYS_TEST_SHORT=1.
measure() { [ -n "${HYS_TEST_SHORT:-}" ] || expect "$@"; }

# header JSON [DATA_BYTES]: a safetensors file with that header and zeros behind it.
header() {
    local json=$1 bytes=${2:-0} length=${#1} i
    for i in 0 1 2 3 4 5 6 7; do printf "\\x$(printf %02x $((length >> (8 * i) & 255)))"; done
    printf %s "$json"
    head -c "$bytes" /dev/zero
}

good=$cases/select_dsv32_S160_H4_D32_k16.safetensors
attention=$cases/attention_gqa_f32.safetensors

expect "no command" 2 "Usage" "$hyscale"
expect "help" 0 "Commands:" "$hyscale" --help
expect "version" 0 "^hyscale [0-9]" "$hyscale" --version
expect "unknown command" 2 "unknown command 'frobnicate'" "$hyscale" frobnicate
for command in devices plan check run bench demo stream tune; do
    expect "$command --help" 0 "Examples:" "$hyscale" $command --help
done

expect "devices" 0 "openmp" "$hyscale" devices
expect "devices as JSON" 0 '"backend":"openmp"' "$hyscale" devices --json
expect "devices without OpenCL" 0 "openmp" env OCL_ICD_VENDORS=/nonexistent "$hyscale" devices
expect "devices as a tree" 0 '`- [0-9]*  ' "$hyscale" devices
expect "no such device" 2 "no device matches 'nonsuch'" "$hyscale" check --device nonsuch "$good"
expect "masked capability" 0 "select" env HYS_DISABLE=avx2 "$hyscale" plan --model smollm2 --tokens 512 --device openmp

for model in dsv32 glm5 hyv4 msa nsa moba qsa dsv4-csa smollm2; do
    expect "plan $model" 0 "attention_backward" "$hyscale" plan --model $model --tokens 4096 --device openmp
done
expect "plan as JSON" 0 '"useful_flops":' "$hyscale" plan --model dsv32 --tokens 1048576 --device openmp --json
expect "plan unknown model" 2 "dsv32" "$hyscale" plan --model gpt --tokens 4096
expect "plan a schedule" 0 "whole run" "$hyscale" plan --model dsv32 --tokens 1048576 --device openmp --schedule progressive --layers 61
expect "plan a list of devices" 0 "predicted +exact +dense +memory" "$hyscale" plan --model dsv32 --tokens 65536 --devices 0,0 --schedule progressive
expect "plan a list with a stranger" 2 "no device matches 'abacus'" "$hyscale" plan --model dsv32 --tokens 65536 --devices 0,abacus
expect "plan a schedule as JSON" 0 '"always_exact":' "$hyscale" plan --model msa --tokens 65536 --device openmp --schedule progressive --json
expect "plan a short schedule" 0 "whole run" "$hyscale" plan --model nsa --tokens 4096 --device openmp --schedule exact --steps 3
expect "plan unknown schedule" 2 "progressive, exact, dense" "$hyscale" plan --model dsv32 --tokens 4096 --device openmp --schedule eager
expect "plan no room for a schedule" 2 "steps" "$hyscale" plan --model dsv32 --tokens 4096 --device openmp --schedule progressive --steps 2
expect "plan schedule unknown at once" 2 "^hyscale plan: --schedule" sh -c '"$1" plan --model dsv32 --schedule foo 2>&1' sh "$hyscale"
expect "plan cut without ranks" 2 "[-][-]ranks is needed" "$hyscale" plan --model dsv32 --cut zigzag
expect "plan network without ranks" 2 "[-][-]ranks is needed" "$hyscale" plan --model dsv32 --network 400,2
expect "plan unknown cut" 2 "balanced, contiguous, zigzag" "$hyscale" plan --model dsv32 --ranks 2 --cut zig --device openmp
expect "plan more rows than tokens" 2 "[-][-]rows is 100000, expected at most the 100" "$hyscale" plan --model dsv32 --tokens 100 --rows 100000
expect "plan more than memory" 0 "^the largest needs [0-9.]+ [TPE]iB, .* has [0-9.]+ .iB left: price fewer" "$hyscale" plan --model dsv32 --tokens 2147483647 --device openmp
expect "plan times" 0 "predicted: [0-9.]+ (days|years), on one" "$hyscale" plan --model dsv32 --tokens 2147483647 --device openmp
expect "disable what is not" 2 "HYS_DISABLE has 'avx-512', expected some of .*avx512" env HYS_DISABLE=avx-512 "$hyscale" devices
expect "help to a full disk" 2 "standard output cannot be written" sh -c '"$1" devices --help > /dev/full' sh "$hyscale"
for wrong in "bench select --rows" "stream --range" "demo -k" "plan --model dsv32 --tokens" "tune --model dsv32 --rows"; do
    option=${wrong##* }
    expect "number of $wrong" 2 "[-][-](${option#--}|topk) is '0', expected a whole number from 1 to [0-9]" "$hyscale" $wrong 0 x
done
expect "unknown dtype" 2 "'f64' is unknown; it is one of f32, f16, bf16, f8" "$hyscale" bench select --dtype f64
# Commands of a help as they stand: none may be broken but by a backslash.
for command in devices plan check run bench demo stream tune; do
    "$hyscale" $command --help > out 2> err
    if awk '/^Examples:/ { on = 1; next } on && !/^  / && !/^$/ && !/^Exit status/ { bad = 1 } END { exit bad }' out; then passed=$((passed + 1))
    else note_failure "$command --help" "an example is broken in two"; fi
done
expect "plan bad layers" 2 "[-][-]layers is '0'" "$hyscale" plan --model dsv32 --tokens 4096 --layers 0
expect "plan bad tokens" 2 "[-][-]tokens is '-5'" "$hyscale" plan --model dsv32 --tokens -5

expect "check" 0 "1 passed, 0 failed" "$hyscale" check --device openmp "$good"
{ header '{"__metadata__":{"format":"hyscale-case-1","op":"attention","problem":"{\"dense\":true}"},"q":{"dtype":"F32","shape":[1,1,4],"data_offsets":[0,16]},"k":{"dtype":"F32","shape":[1,1,4],"data_offsets":[16,32]},"v":{"dtype":"F32","shape":[1,1,4],"data_offsets":[32,48]},"expect.o":{"dtype":"F32","shape":[1,1,4],"data_offsets":[48,64]}}' 60
    printf '\0\0\200\077'; } > failing.safetensors
expect "check a failure" 1 "^      o .0, 0, 3.: expected 1, got 0" "$hyscale" check --device openmp failing.safetensors
expect "check a failure as JSON" 1 '"at":.0,0,3.,"expected":1,"got":0' "$hyscale" check --device openmp --json failing.safetensors
mkfifo pipe && expect "a pipe" 2 "not a regular file" "$hyscale" check --device openmp pipe
cp "$good" $'named\xff\xc3\xa9.safetensors'
expect "JSON of a strange name" 0 '"case":"named.é.safetensors"' "$hyscale" check --device openmp --json $'named\xff\xc3\xa9.safetensors'
expect "check as JSON" 0 '"pass":true' "$hyscale" check --device openmp --json "$attention"
expect "missing file" 2 "cannot be opened" "$hyscale" check --device openmp missing.safetensors
: > empty.safetensors
expect "empty file" 2 "too few" "$hyscale" check --device openmp empty.safetensors
head -c 4000 "$good" > truncated.safetensors
expect "truncated file" 2 "truncated" "$hyscale" check --device openmp truncated.safetensors
head -c 9000 /dev/urandom > noise.safetensors
expect "noise" 2 "not a safetensors file" "$hyscale" check --device openmp noise.safetensors
printf '\xff\xff\xff\xff\xff\xff\xff\x7fxxxx' > oversized.safetensors
expect "oversized header" 2 "header of" "$hyscale" check --device openmp oversized.safetensors
header '{"q":{"dtype":"F32","shape":[4,2,8],"data_offsets":[0,256]}}' 256 > no_op.safetensors
expect "no operation" 2 "no 'op'" "$hyscale" check --device openmp no_op.safetensors
header '{"__metadata__":{"op":"select","problem":"{"},"q":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}' 4 > bad_problem.safetensors
expect "bad problem" 2 "not a JSON object" "$hyscale" check --device openmp bad_problem.safetensors
header '{"q":{"dtype":"F32","shape":[1000000,1000000,1000000],"data_offsets":[0,4]}}' 4 > huge.safetensors
expect "huge shape" 2 "size 2 is not a size|its shape needs" "$hyscale" check --device openmp huge.safetensors
header '{"__metadata__":{"op":"attention"},"q":{"dtype":"F64","shape":[4,2,8],"data_offsets":[0,512]},"k":{"dtype":"F64","shape":[4,2,8],"data_offsets":[512,1024]},"v":{"dtype":"F64","shape":[4,2,8],"data_offsets":[1024,1536]}}' 1536 > f64.safetensors
expect "wrong dtype" 2 "dtype|type" "$hyscale" run attention_forward f64.safetensors o.safetensors --device openmp
header '{"__metadata__":{"op":"attention"},"q":{"dtype":"F32","shape":[4,2,8],"data_offsets":[0,256]},"k":{"dtype":"F32","shape":[4,2,7],"data_offsets":[256,480]},"v":{"dtype":"F32","shape":[4,2,8],"data_offsets":[480,736]}}' 736 > shape.safetensors
expect "wrong shape" 2 "expected" "$hyscale" run attention_forward shape.safetensors o.safetensors --device openmp --set dense=true
[ ! -e o.safetensors ] || { : > out; : > err; note_failure "no output on failure" "o.safetensors exists"; }

expect "run select" 0 "written to picks.safetensors" "$hyscale" run select "$good" picks.safetensors --device openmp
expect "run with a set" 0 "written" "$hyscale" run select "$good" picks.safetensors --device openmp --set topk=7 --set activation=none
expect "run backward" 0 "dk" "$hyscale" run attention_backward "$attention" grads.safetensors --device openmp
expect "run twice" 0 "written" "$hyscale" run select "$good" again.safetensors --device openmp --set topk=7 --set activation=none
cmp -s picks.safetensors again.safetensors && passed=$((passed + 1)) || { : > out; : > err; note_failure "same bits" "two runs differ"; }
cp "$good" own.safetensors && ln -s own.safetensors link.safetensors
expect "run on itself" 2 "both the input and the output" "$hyscale" run select own.safetensors ./link.safetensors --device openmp
cmp -s "$good" own.safetensors && passed=$((passed + 1)) || { : > out; : > err; note_failure "run on itself" "the input is another"; }
expect "run with K beyond the keys" 2 "topk is 999999, expected at most the 160 that there are" "$hyscale" run select "$good" picks.safetensors --device openmp --set topk=999999
expect "run with K 0" 2 "topk is 0, expected a whole number from 1 on" "$hyscale" run select "$good" picks.safetensors --device openmp --set topk=0
expect "run without q" 2 "no tensor 'q', which attention_forward reads" "$hyscale" run attention_forward "$good" o.safetensors --device openmp
expect "run without o_a" 2 "no tensor 'o_a', which merge reads" "$hyscale" run merge "$good" o.safetensors --device openmp
expect "bad set" 2 "expected key=value" "$hyscale" run select "$good" picks.safetensors --set topk
expect "bad topk" 2 "topk" "$hyscale" run select "$good" picks.safetensors --device openmp --set topk=-3
expect "bad method" 2 "expected one of default, exact, coarse, coarse_to_fine" "$hyscale" run select "$good" picks.safetensors --set method=fast
bad_sets=('topk=8x|topk is "8x", expected a whole number' 'topk=|topk is "", expected a whole number' 'topk=1.5|topk is 1.5, expected a whole'
    'topk=4e9|expected a whole number' 'topk=[8]|topk is .8., expected' 'scale=nan|scale is "nan", expected a finite number'
    'scale=1e999|scale is .*, expected a finite' 'dense=yes|dense is "yes", expected true or false' 'dense=2|dense is 2, expected true'
    'reduction=avg|expected one of mean, sum' 'tokp=8|unknown key .tokp.' '=8|expected key=value')
for bad in "${bad_sets[@]}"; do
    expect "bad set ${bad%%|*}" 2 "^hyscale run: --set .*${bad#*|}" "$hyscale" run select "$good" picks.safetensors --set "${bad%%|*}"
done
problem() { # JSON of the metadata's problem: a file with it
    header '{"__metadata__":{"format":"hyscale-case-1","op":"select","problem":"'"$1"'"},"index_q":{"dtype":"F32","shape":[2,1,4],"data_offsets":[0,32]},"index_k":{"dtype":"F32","shape":[2,4],"data_offsets":[32,64]}}' 64 > problem.safetensors
}
problem '{\"topk\":1}' && expect "good problem" 0 "written" "$hyscale" run select problem.safetensors picks.safetensors --device openmp
bad_problems=('{\"topk\":1} x|is not a JSON object' '[1]|is not a JSON object' '{\"topk\":\"1\"}|problem.: topk is "1", expected a whole number'
    '{\"tokp\":1}|unknown key .tokp.' '{\"topk\":1,\"topk\":2}|.topk. twice' '{\"to\nk\":1}|unknown key .to.' '{\"scale\":null}|scale is null, expected a finite')
for bad in "${bad_problems[@]}"; do
    problem "${bad%|*}" && expect "bad problem ${bad%|*}" 2 "^hyscale check: problem.safetensors.*${bad##*|}" "$hyscale" check --device openmp problem.safetensors
done
header '{"__metadata__":{"format":"hyscale-case-1","op":"select","problem":"{}"},"index_Q":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}' 4 > misspelt.safetensors
expect "misspelt tensor" 2 "tensor 'index_Q' is none that select reads" "$hyscale" check --device openmp misspelt.safetensors
header '{"index_q":{"dtype":"F32","shape":[2,1,4],"data_offsets":[0,32]},"index_k":{"dtype":"F32","shape":[2,4],"data_offsets":[32,64]},"index_W":{"dtype":"F32","shape":[2,1],"data_offsets":[64,72]}}' 72 > misspelt.safetensors
expect "ignored tensor" 0 "ignored: index_W" "$hyscale" run select misspelt.safetensors picks.safetensors --device openmp --set topk=1
expect "ignored tensor as JSON" 0 '"ignored":."index_W".' "$hyscale" run select misspelt.safetensors picks.safetensors --device openmp --set topk=1 --json
header '{"q":{"dtype":"F32","shape":[2,1,4],"data_offsets":[0,32]},"k":{"dtype":"F32","shape":[2,1,4],"data_offsets":[0,32]},"v":{"dtype":"F32","shape":[2,1,4],"data_offsets":[0,32]},"cu_seqlens_q":{"dtype":"I32","shape":[0],"data_offsets":[0,0]}}' 32 > lengths.safetensors
expect "no lengths" 2 "documents" "$hyscale" run attention_forward lengths.safetensors o.safetensors --device openmp --set dense=true
expect "failure as JSON" 2 '^."error":"missing.safetensors: cannot be opened' sh -c '"$1" check --device openmp --json missing.safetensors 2> /dev/null' sh "$hyscale"
expect "full standard output" 2 "standard output cannot be written" sh -c '"$1" devices > /dev/full' sh "$hyscale"
expect "unwritable output" 2 "cannot be written" "$hyscale" run select "$good" /nonexistent/x.safetensors --device openmp

expect "bench select" 0 '"fraction_of_peak":[0-9]' "$hyscale" bench select --device openmp --rows 32 --keys 96 --pause 0 --share 0 --key-spread 0 --weights positive --index-heads 4 --index-dim 16 --topk 8 \
    --repeat 2 --json
for op in attention_forward attention_backward indexer_loss pool dense_forward dense_backward; do
    measure "bench $op" 0 '"fraction_of_peak":[0-9]' "$hyscale" bench $op --device openmp --rows 32 --keys 96 --index-heads 4 \
        --index-dim 16 --topk 8 --heads 4 --head-dim 24 --value-dim 16 --repeat 2 --json
done
measure "bench explained" 0 "% of the roof" "$hyscale" bench select --device openmp --rows 32 --keys 96 --index-heads 4 --index-dim 16 \
    --topk 8 --repeat 2 --explain
measure "bench scores nothing" 0 "every row keeps all that it sees, with K 64" "$hyscale" bench select --device openmp --rows 32 --keys 64 --index-heads 2 \
    --index-dim 16 --topk 64 --repeat 1
measure "bench scores some" 0 '"useful_flops":40320,.*"above_peak":(true|false),"unscored_rows":8,' "$hyscale" bench select --device openmp --rows 32 --keys 64 \
    --index-heads 1 --index-dim 16 --topk 40 --repeat 1 --json
for method in exact coarse_to_fine; do
    expect "stream $method" 0 '"loss":[0-9].*"peak_memory_bytes":[1-9]' "$hyscale" stream --device openmp --tokens 500 --range 96 --method $method \
        --index-heads 4 --index-dim 16 --topk 32 --coarse-block 16 --coarse-keep 4 --heads 4 --head-dim 24 --value-dim 16 --json
done
measure "tune" 0 "select" "$hyscale" tune --model smollm2 --tokens 64 --rows 16 --device openmp --wisdom wisdom.txt
measure "tune what is known" 0 "choose " sh -c '"$1" tune --model smollm2 --tokens 64 --rows 16 --device openmp --wisdom wisdom.txt --operations select && cat wisdom.txt' sh "$hyscale"
expect "tune damaged wisdom" 2 "line|wisdom" sh -c 'echo junk > junk.txt; "$1" tune --model smollm2 --device openmp --wisdom junk.txt' sh "$hyscale"
measure "tune as JSON" 0 '"op":"select","kernel":"select\.' "$hyscale" tune --model smollm2 --tokens 64 --rows 16 --device openmp --wisdom wisdom.txt --operations select --json
measure "tune says times" 0 "select +0 +select\..* the fastest here, [0-9]" "$hyscale" tune --model smollm2 --tokens 64 --rows 16 --device openmp --wisdom wisdom.txt --operations select
expect "tune nowhere" 2 "^hyscale tune: wisdom: /nonexistent/w: cannot create" "$hyscale" tune --model dsv32 --wisdom /nonexistent/w
[ -s err ] && ! grep -q " of " err && passed=$((passed + 1)) || note_failure "tune nowhere" "it measured first"
expect "stream some ranges" 0 "192 of 512 rows" "$hyscale" stream --device openmp --tokens 512 --range 64 --ranges 3 --index-heads 4 --index-dim 16 \
    --topk 32 --heads 4 --kv-heads 2 --head-dim 16 --value-dim 16
expect "stream more than memory" 2 "^hyscale stream: --tokens 2147483647 needs [0-9.]+ [TP]iB .* at most --tokens [0-9]+ fits .HYS_OUT_OF_MEMORY" "$hyscale" stream \
    --tokens 2147483647 --device openmp
expect "bench more than memory" 2 "needs [0-9.]+ [TP]iB, .* has [0-9.]+ .iB left: take fewer --rows" "$hyscale" bench attention_forward --rows 2147483647 \
    --keys 2147483647 --device openmp
expect "stream selects with f8" 0 '"select_dtype":"f8e4m3"' "$hyscale" stream --device openmp --tokens 256 --range 64 --dtype bf16 --select-dtype f8 \
    --index-heads 4 --index-dim 16 --topk 32 --heads 4 --head-dim 24 --value-dim 16 --json
expect "stream pools" 2 "not streamed" "$hyscale" stream --model dsv4-csa --tokens 256
expect "bench devices" 0 '"same_bits":true' "$hyscale" bench devices --twice --device openmp --rows 256 --index-heads 2 --index-dim 16 --topk 8 --heads 4 \
    --head-dim 32 --value-dim 16 --repeat 1 --documents 3 --split equal --json
measure "bench devices, shapes" 0 '"rows":64,"documents":2,' "$hyscale" bench devices --twice --device openmp --rows 256 --index-heads 2 --index-dim 16 --topk 8 \
    --heads 4 --head-dim 32 --value-dim 16 --repeat 1 --documents 2 --sweep --json
expect "plan, less than no time a row" 2 "is not OPERATION=FLOPS" "$hyscale" plan --model dsv32 --tokens 4096 --ranks 2 --rate select=1e12,-5
expect "bench devices, no shapes" 2 "takes --rows in fours" "$hyscale" bench devices --twice --device openmp --rows 255 --documents 2 --sweep
expect "bench devices, one" 2 "1 devices match" "$hyscale" bench devices --device openmp --rows 64
measure "bench balance" 0 "^Zipf documents .*" "$hyscale" bench balance --rows 512 --device openmp --twice
expect "bench quantize" 0 '"dtype":"bf16",.*"bytes":11968,' "$hyscale" bench quantize --device openmp --rows 16 --keys 32 --index-heads 2 --index-dim 61 --dtype bf16 --repeat 2 --json
expect "bench quantize, f8" 2 "of --dtype f32, f16 or bf16" "$hyscale" bench quantize --dtype f8
expect "bench overlap" 0 '"overlapped_s":[0-9]' "$hyscale" bench overlap --device openmp --rows 64 --keys 128 --index-heads 2 --index-dim 16 --topk 8 \
    --heads 4 --head-dim 32 --value-dim 16 --repeat 1 --trace "$work/trace.json" --json
expect "a trace" 0 '"name":.*"attention_forward: kernel"' cat "$work/trace.json"
expect "bench with a trace" 0 '"op":"select"' "$hyscale" bench select --device openmp --rows 32 --keys 64 --index-heads 2 --index-dim 16 --topk 8 --repeat 1 \
    --trace "$work/select.json" --json
expect "no trace to write" 2 "cannot be written" "$hyscale" bench select --device openmp --rows 32 --keys 64 --index-heads 2 --index-dim 16 --topk 8 --repeat 1 \
    --trace /nonexistent/trace
expect "bench unknown op" 2 "unknown operation" "$hyscale" bench sort
expect "bench bad shape" 2 "heads" "$hyscale" bench attention_forward --heads 5 --kv-heads 2 --device openmp
measure "demo" 0 '"mass_exact":0\.[0-9]' "$hyscale" demo --device openmp --repeat 1 --topk 32 --json "$source/tools/models/smollm2_layers.safetensors"
expect "demo without layers" 2 "LAYER.q" "$hyscale" demo --device openmp "$good"

echo "$passed passed, $failed failed"
[ $failed = 0 ]
