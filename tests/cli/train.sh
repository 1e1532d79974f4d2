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
few=("$data" --topk 32 --coarse-block 8 --coarse-keep 8 --steps 100 --warmup 40 --eval 20 --save 20)
small() { train "${few[@]}" "$@"; }

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
grep -qE '^mean +32 +0\.' parts.txt && pass || fail "no table: $(cat parts.txt)"
# Killed at any moment, the last checkpoint is whole. (Not by the function: a shell that ran it would be killed, and the training would write on.)
"$hyscale" train-indexer "${few[@]}" --out killed.safetensors --device openmp > /dev/null 2>&1 &
sleep 0.5; kill -9 $! 2>/dev/null; wait $! 2>/dev/null
small --out killed.safetensors --resume > /dev/null || fail "going on after a kill"
cmp -s whole.safetensors killed.safetensors && pass || fail "a killed and resumed run has other bits"
small --out whole2.safetensors --beside exact.safetensors --steps 2 --warmup 1 > beside.txt && grep -q 'exact.safetensors' beside.txt && pass || fail "--beside"
if command -v gnuplot > /dev/null; then
    small --out whole.safetensors --resume --beside exact.safetensors --plot plot.png > /dev/null && head -c 4 plot.png | grep -q PNG && pass || fail "--plot"
else
    refuses "no gnuplot" "gnuplot" small --out plotted.safetensors --plot plot.png
fi

# ---- K follows what held-out text says ----
follow() { small --eval 5 --topk-end 8 "$@"; }
topks() { sed -nE 's/.*"step":.*"topk":([0-9.]+).*/\1/p' "$1"; }
follow --out held.safetensors --recall-floor 0.9 --json > held.json || fail "a floor that holds"
holds "K shrinks while recall holds" "$(topks held.json | tail -n 1)" '<' 16
holds "it does not jump" 24 '<' "$(topks held.json | awk '$1 < 32 { print; exit }')"
follow --out never.safetensors --recall-floor 1 --json > never.json || fail "a floor out of reach"
holds "K stays below the floor" 31.5 '<' "$(topks never.json | tail -n 1)"
follow --out moved.safetensors --recall-floor 0.97 --json > moved.json || fail "a floor that is crossed"
topks moved.json | awk 'NR > 1 && $1 < last { fell = 1 } NR > 1 && $1 > last && fell { rose = 1 } { last = $1 } END { exit !rose }' && pass || fail "K does not grow back: $(topks moved.json | paste -s -d ' ')"
holds "recall stays near the floor" 0.965 '<' "$(grep '"step"' moved.json | tail -n 1 | value recall)"
follow --out line.safetensors --json > line.json || fail "no floor"
holds "without a floor K follows the line" "$(topks line.json | tail -n 1)" '<' 9.5
follow --out follow.safetensors --recall-floor 0.97 --stop-after 73 > /dev/null && follow --out follow.safetensors --recall-floor 0.97 --resume > /dev/null &&
    cmp -s moved.safetensors follow.safetensors && pass || fail "a resumed run with a floor has other bits"

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
refuses "a floor above 1" "a share up to 1" small --out x.safetensors --recall-floor 1.5
refuses "a K that rises" "at most --topk" small --out x.safetensors --topk-end 64
refuses "heads that do not divide" "multiple of the 3 key heads" train "$data" --out x.safetensors --index-heads 4 --topk 8
sed 's/hyscale-indexer-2/hyscale-indexer-9/' whole.safetensors > later.safetensors
refuses "a later version" "has format hyscale-indexer-9" small --out later.safetensors --resume
head -c 100000 whole.safetensors > cut.safetensors
refuses "a cut checkpoint" "cut.safetensors" small --out cut.safetensors --resume
# A NaN (bf16 7fc0) in place of the last element: the numbers before cu_seqlens, which comes last.
cp "$data" nan.safetensors
printf '\xc0\x7f' | dd of=nan.safetensors bs=1 seek=$(($(stat -c %s nan.safetensors) - 36 - 2)) conv=notrunc 2> /dev/null
refuses "NaN in the data" "is not finite in row" train nan.safetensors --out x.safetensors --topk 8
# Two empty documents at the front: cu_seqlens is the last tensor, nine words of 32 bits.
cp "$data" empty.safetensors
printf '\0\0\0\0\0\0\0\0' | dd of=empty.safetensors bs=1 seek=$(($(stat -c %s empty.safetensors) - 32)) conv=notrunc 2> /dev/null
train empty.safetensors --out empty.out --topk 8 --steps 2 --warmup 1 > empty.txt 2>&1 && grep -q '2 documents without a second token are left out' empty.txt && pass ||
    fail "empty documents: $(cat empty.txt)"
# A disk that is full from the start, and one that fills up: what was written stays, and the run goes on when there is room.
refuses "a device that takes nothing" "could not be written|is there already" small --out /dev/full
full() ( # runs a command whose files may have so many blocks of 1,024 bytes
    trap '' XFSZ
    ulimit -f "$1"
    shift
    "$@"
)
refuses "a full disk" "could not be written" full 100 small --out nothing.safetensors
[ ! -e nothing.safetensors ] && pass || fail "half a checkpoint"
small --out filled.safetensors --stop-after 20 > /dev/null && cp filled.safetensors kept.safetensors
refuses "a disk that fills up" "nothing is lost" full 100 small --out filled.safetensors --resume
cmp -s filled.safetensors kept.safetensors && pass || fail "a full disk changed the checkpoint"
small --out filled.safetensors --resume > /dev/null && cmp -s whole.safetensors filled.safetensors && pass || fail "going on after a full disk has other bits"

echo "$passed of $((passed + failed)) train checks passed"
[ $failed = 0 ]
