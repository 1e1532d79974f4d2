#!/usr/bin/env bash
# Training an indexer on a layer of a real model: loss falls, held-out recall rises, a stopped run goes on to the same bits, half the work reaches
# what all of it reaches, and what is wrong with the input is said.
#   train.sh HYSCALE SOURCE_DIR WORK_DIR
set -u
hyscale=$1 data=$2/tools/models/smollm2_hidden.safetensors work=$3
passed=0 failed=0
rm -rf "$work" && mkdir -p "$work" && cd "$work" || exit 1

pass() { passed=$((passed + 1)); }
fail() { echo "FAIL $*"; failed=$((failed + 1)); }

train() { "$hyscale" train-indexer "$@" --device openmp; }
small() { train "$data" --topk 32 --coarse-block 8 --coarse-keep 8 --steps 100 --warmup 40 --eval 20 --save 20 "$@"; }

# value FIELD < JSON line
value() { sed -E "s/.*\"$1\":([-0-9.e+]+).*/\1/"; }
# holds NAME A < B
holds() { if awk "BEGIN { exit !($2 < $4) }"; then pass; else fail "$1: $2 is not less than $4"; fi; }

refuses() { # NAME PATTERN COMMAND...
    local name=$1 pattern=$2
    shift 2
    "$@" > out 2> err < /dev/null
    status=$?
    if [ $status != 2 ]; then fail "$name: exit $status, expected 2"
    elif ! grep -qE -- "$pattern" err; then fail "$name: nothing matches '$pattern': $(head -n 2 err)"
    else pass; fi
}

# ---- it learns ----
small --out whole.safetensors --json > whole.json || fail "training"
first=$(grep '"step"' whole.json | head -n 1) last=$(grep '"step"' whole.json | tail -n 1) mean=$(grep '"layer":"mean"' whole.json)
holds "loss falls" "$(value loss <<< "$last")" '<' "$(value loss <<< "$first")"
holds "recall rises" "$(value recall <<< "$first")" '<' "$(value recall <<< "$last")"
holds "more than an untrained one" "$(value untrained <<< "$mean")+0.3" '<' "$(value trained <<< "$mean")"
holds "more than the last keys" "$(value window <<< "$mean")+0.3" '<' "$(value trained <<< "$mean")"
holds "nearly what is possible" 0.95 '<' "$(value trained_of_oracle <<< "$mean")"
holds "the oracle is the limit" "$(value trained <<< "$mean")" '<' "$(value oracle <<< "$mean")"

# ---- half the selection, the same recall ----
small --out exact.safetensors --schedule exact --json > exact.json || fail "training, always exact"
other=$(grep '"step"' exact.json | tail -n 1)
holds "selection costs less than half" "$(value select_flops <<< "$last")*2" '<' "$(value select_flops <<< "$other")"
holds "recall is within 1%" "$(value recall <<< "$other")-0.01" '<' "$(value recall <<< "$last")"

# ---- stopped and gone on ----
small --out parts.safetensors --stop-after 47 > parts.txt || fail "stopping"
grep -q 'stopped after step 47 of 100' parts.txt && pass || fail "it does not say where it stopped"
small --out parts.safetensors --resume > parts.txt || fail "going on"
cmp -s whole.safetensors parts.safetensors && pass || fail "a resumed run has other bits"
grep -qE '^mean +0\.' parts.txt && pass || fail "no table: $(cat parts.txt)"
# Killed at any moment, the last checkpoint is whole.
small --out killed.safetensors > /dev/null 2>&1 &
sleep 0.5; kill -9 $! 2>/dev/null; wait $! 2>/dev/null
small --out killed.safetensors --resume > /dev/null || fail "going on after a kill"
cmp -s whole.safetensors killed.safetensors && pass || fail "a killed and resumed run has other bits"
small --out whole2.safetensors --beside exact.safetensors --steps 2 --warmup 1 > beside.txt && grep -q 'exact.safetensors' beside.txt && pass || fail "--beside"
if command -v gnuplot > /dev/null; then
    small --out whole.safetensors --resume --beside exact.safetensors --plot plot.png > /dev/null && head -c 4 plot.png | grep -q PNG && pass || fail "--plot"
else
    refuses "no gnuplot" "gnuplot" small --out plotted.safetensors --plot plot.png
fi

# ---- what is wrong is said ----
refuses "another run's options" "is of another run" small --out whole.safetensors --resume --rate 0.5
refuses "it is there already" "is there already" small --out whole.safetensors
refuses "no checkpoint" "No such file" small --out none.safetensors --resume
refuses "not a checkpoint" "not a checkpoint" small --out "$data" --resume
refuses "nowhere to write" "could not be written" small --out /nonexistent/out.safetensors
refuses "K beyond the context" "less than the 256 keys" train "$data" --out x.safetensors --topk 256
refuses "no document left" "one at least must be left" train "$data" --out x.safetensors --topk 8 --held-out 8
refuses "no hidden states" "hidden" train "$2/tools/models/smollm2_layers.safetensors" --out x.safetensors
refuses "no file" "is needed" train --out x.safetensors
refuses "no --out" "--out is needed" train "$data"
refuses "a bad rate" "--rate is 'fast'" train "$data" --out x.safetensors --rate fast
refuses "bad steps" "--steps is '0'" train "$data" --out x.safetensors --steps 0
refuses "a bad schedule" "progressive or exact" train "$data" --out x.safetensors --schedule eager
refuses "heads that do not divide" "multiple of the 3 key heads" train "$data" --out x.safetensors --index-heads 4 --topk 8
sed 's/hyscale-indexer-1/hyscale-indexer-9/' whole.safetensors > later.safetensors
refuses "a later version" "has format hyscale-indexer-9" small --out later.safetensors --resume
head -c 100000 whole.safetensors > cut.safetensors
refuses "a cut checkpoint" "cut.safetensors" small --out cut.safetensors --resume
# A NaN (bf16 7fc0) in place of the last element: the numbers before cu_seqlens, which comes last.
cp "$data" nan.safetensors
printf '\xc0\x7f' | dd of=nan.safetensors bs=1 seek=$(($(stat -c %s nan.safetensors) - 36 - 2)) conv=notrunc 2> /dev/null
refuses "NaN in the data" "is not finite in row" train nan.safetensors --out x.safetensors --topk 8
# A full disk.
if mkdir full && mount -t tmpfs -o size=1m tmpfs full 2> /dev/null; then
    refuses "a full disk" "could not be written" small --out full/out.safetensors
    umount full
fi

echo "$passed of $((passed + failed)) train checks passed"
[ $failed = 0 ]
