#!/usr/bin/env bash
# Every program of the OpenCL backend, for devices that are not here. See the files in tools/ci/offline.
# While working on kernels: HYS_CI_ROWS='select.*' and HYS_CI_TARGETS='sm_90 gfx942' leave out all others, and the comparison of figures.
. tools/ci/common.sh

here=tools/ci/offline
work=$HYS_CI_FOLDER/work
export CACHE=$HYS_CI_ROOT/offline-cache VERSIONS=$work/versions LIBCLC=$HYS_CI_PACKAGES/libclc/usr/lib/clc
export PTX_REWRITE=$HYS_CI_ROOT/dev/tests/ptx_rewrite OCLOC=$work/ocloc PTXAS
PTXAS=$(command -v ptxas || ls /usr/local/cuda/bin/ptxas 2>/dev/null)
intel=$HYS_CI_PACKAGES/intel

rm -rf "$work" && mkdir -p "$work/programs" "$work/results" "$CACHE"
programs='list_programs ptx_rewrite' build dev dev || finish

# ---- compilers: which vendors' targets can be compiled, and by what ----

have() { # vendor what-to-get command...
    local vendor=$1 what=$2 command
    shift 2
    for command in "$@"; do
        command -v "$command" > /dev/null || { skip "$vendor: no $(basename "$command"): tools/setup.sh ci (Debian: $what)"; return 1; }
    done
}

version_of() { "$@" 2> /dev/null | grep -m 1 -oE '(V|version )[0-9][^ ,]*( \([^)]*\))?' | sed -E 's/^(V|version )//'; }

# ocloc looks for its libraries by names that only its development package has.
make_ocloc() {
    local libraries=$intel/usr/lib/x86_64-linux-gnu
    mkdir -p "$work/iga" && ln -sf "$(realpath "$libraries")/libiga64.so.1" "$work/iga/libiga64.so"
    printf '#!/bin/sh\nLD_LIBRARY_PATH=%s:%s exec %s/usr/bin/ocloc "$@"\n' "$work/iga" "$(realpath "$libraries")" "$(realpath "$intel")" > "$OCLOC"
    chmod +x "$OCLOC"
}

declare -A targets_of=([amd]='gfx90a gfx942 gfx1100 gfx1201' [nvidia]='sm_75 sm_80 sm_89 sm_90' [intel]='tgllp dg2 pvc' [spirv]='gpu cpu8 cpu16')
targets=''
if have 'AMD, NVIDIA' 'clang-19 llvm-19' clang-19 llc-19 llvm-objdump-19; then
    if [ -e "$LIBCLC/amdgcn--amdhsa.bc" ]; then
        targets="${targets_of[amd]} ${targets_of[nvidia]}"
        clang="clang $(version_of clang-19 --version), libclc $(cat "$HYS_CI_PACKAGES/libclc/.libclc-19")"
        echo "amd $clang" >> "$VERSIONS"
        if [ -n "$PTXAS" ]; then
            echo "nvidia $clang, ptxas $(version_of "$PTXAS" --version)" >> "$VERSIONS"
        else
            echo "nvidia $clang, not assembled" >> "$VERSIONS"
            skip 'NVIDIA: no ptxas (part of the CUDA toolkit): compiled, but not assembled, and no figures'
        fi
    else
        skip 'AMD, NVIDIA: no libclc for clang-19: tools/setup.sh ci'
    fi
fi
if [ -x "$intel/usr/bin/ocloc" ] && make_ocloc && "$OCLOC" --help > /dev/null 2>&1; then
    targets="$targets ${targets_of[intel]}"
    echo "intel ocloc $(cat "$intel/.intel-opencl-icd"), igc $(cat "$intel/.libigc1")" >> "$VERSIONS"
else
    skip 'Intel: no ocloc that runs: tools/setup.sh ci'
fi
if have SPIR-V 'clang-15 llvm-spirv-15 spirv-tools' clang-15 llvm-spirv-15 spirv-val; then
    targets="$targets ${targets_of[spirv]}"
    echo "spirv clang $(version_of clang-15 --version)" >> "$VERSIONS"
fi
if [ -n "${HYS_CI_TARGETS:-}" ]; then
    for target in $targets; do [[ " $HYS_CI_TARGETS " != *" $target "* ]] || echo "$target"; done > "$work/wanted"
    targets=$(tr '\n' ' ' < "$work/wanted")
fi
[ -n "$targets" ] || skip_stage 'no compiler for any device: tools/setup.sh ci'
sed 's/^/  /' "$VERSIONS"

# ---- what there is to compile ----

"$HYS_CI_ROOT/dev/tests/list_programs" "$work/programs" > "$work/list" || { fail 'a row has no program that could be compiled' "see above, and tests/offline/list_programs.c"; finish; }

for file in cl_kernels/*.cl; do
    grep -qP "^program\t.*\t$(basename "$file")\t" "$work/list" || fail "$file is of no row" 'add a row, or the program to tests/offline/list_programs.c'
done
while IFS=$'\t' read -r _ row first; do
    grep -q "^$first " $here/kernels.txt || fail "$here/kernels.txt has no line for $row" 'add it: which of its kernels are hot?'
done < <(grep '^row' "$work/list")

# Programs that differ only in their kernels' names are compiled once: jobs are what is compiled, uses what for.
if [ -n "${HYS_CI_ROWS:-}" ]; then
    while IFS= read -r line; do
        # shellcheck disable=SC2053
        [[ $(cut -f 3 <<< "$line") != $HYS_CI_ROWS ]] || echo "$line"
    done < "$work/list" > "$work/part" && mv "$work/part" "$work/list"
fi
awk -F '\t' -v targets=" $targets " -v jobs="$work/jobs" -v uses="$work/uses" '
    $1 == "program" && index(targets, " " $2 " ") {
        job = $2 "\t" $4 "\t" $6 "\t" $8
        if (!(job in number)) { number[job] = ++n; print n "\t" job > jobs }
        print number[job] "\t" $2 "\t" $3 "\t" $5 "\t" $7 > uses
    }' "$work/list"

# ---- compile ----

compile_job() { # number target file rewrite options, between tabs
    local number target file rewrite options
    IFS=$'\t' read -r number target file rewrite options <<< "$1"
    tools/ci/offline/compile.sh "$target" "$work/programs/$file" "$rewrite" "$options" > "$work/results/$number" 2> "$work/results/$number.error" ||
        mv "$work/results/$number" "$work/results/$number.failed"
}
export -f compile_job
export work
began=$SECONDS
tr '\n' '\0' < "$work/jobs" | xargs -0 -n 1 -P "$HYS_CI_JOBS" bash -c 'compile_job "$1"' compile
for target in $targets; do
    note "$target: $(grep -cP "^\d+\t$target\t" "$work/jobs") programs"
done
note "compiled in $((SECONDS - began)) s"

while IFS=$'\t' read -r number target file rewrite options; do
    if [ -e "$work/results/$number" ]; then pass; continue; fi
    fail "$file for $target" "tools/ci/offline/compile.sh $target ... $rewrite '$options'"
    { grep -A 2 'error' "$work/results/$number.error" || grep -v 'remark:' "$work/results/$number.error"; } | head -n 12
done < "$work/jobs"

# target row kernel registers spilled scratch local matrix problem
while IFS=$'\t' read -r number target row kernels problem; do
    [ -e "$work/results/$number" ] || continue
    for kernel in $kernels; do
        line=$(grep -m 1 "^$kernel " "$work/results/$number") || { fail "$row for $target has no kernel $kernel"; continue; }
        echo "$target $row $line $problem"
    done
done < "$work/uses" > "$work/figures"

# ---- judge ----

judge() { # kernels-table figures
    awk -f $here/check.awk "$1" "$2" | sort -u
}

judge $here/kernels.txt "$work/figures" > "$work/forbidden"
while read -r line; do fail "$line"; done < "$work/forbidden"
[ -s "$work/forbidden" ] || pass

if [ -n "${HYS_CI_ROWS:-}${HYS_CI_TARGETS:-}" ]; then
    while IFS=$'\t' read -r number target row _; do [ ! -e "$work/results/$number" ] || echo "$row $target"; done < "$work/uses" | sort -u | while read -r row target; do
        note "$row on $target: kernel registers/spilled/scratch/local, matrix instructions"
        awk -v row="$row" -v target="$target" '$1 == target && $2 == row { print "  " $3 " " $4 "/" $5 "/" $6 "/" $7 ", " $8 }' "$work/figures" | sort -u
    done
    finish
fi

# Columns that cannot be compared: of vendors whose compilers are not here (absent, which stay as they are), or are not those that
# resources.txt was made with.
absent='' other=''
: > "$work/now"
for vendor in amd nvidia intel; do
    line=$(grep "^$vendor " "$VERSIONS" | grep -v 'not assembled')
    if [ -z "$line" ]; then
        absent="$absent ${targets_of[$vendor]}"
        grep "^# $vendor " $here/resources.txt >> "$work/now"
        continue
    fi
    echo "# $line" >> "$work/now"
    grep -qxF "# $line" $here/resources.txt && continue
    other="$other ${targets_of[$vendor]}"
    note "$vendor: $here/resources.txt was made with other compilers ($(grep "^# $vendor " $here/resources.txt)): only limits were checked"
done

table() { # targets-to-keep versions-file figures
    sed '/^# Made with:/q' $here/resources.txt
    cat "$2"
    echo
    awk -f $here/table.awk "keep=$1" $here/resources.txt "$3"
}
grep -E '^# (amd|nvidia|intel) ' $here/resources.txt > "$work/before"
table "$absent" "$work/now" "$work/figures" > "$HYS_CI_FOLDER/resources.txt"
table "$absent$other" "$work/before" "$work/figures" > "$work/comparable.txt"
if diff -U 0 $here/resources.txt "$work/comparable.txt" > "$work/diff"; then pass
else
    fail "figures differ from $here/resources.txt" "if that is meant: cp $HYS_CI_FOLDER/resources.txt $here/"
    grep -E '^[-+][^-+]' "$work/diff" | head -n 60
fi

# ---- planted mistakes: each must be found, for every vendor whose compilers are here ----

control() { # target name options what-must-be-found ("" = nothing)
    local found
    if tools/ci/offline/compile.sh "$1" "tests/controls/offline/$2.cl" - "-cl-std=CL1.2 $3" > "$work/control" 2> "$work/control.error"; then
        sed "s/^/$1 control.$2 /; s/\$/ planted/" "$work/control" > "$work/control.figures"
        found=$(judge tests/controls/offline/kernels.txt "$work/control.figures")
    else
        found=$(grep -E 'error' "$work/control.error")
    fi
    if [[ $found =~ $4 ]] && [ -n "$4$found" ] || [ -z "$4$found" ]; then pass; else fail "control $2 $3 on $1: expected '$4', found '$found'"; fi
}

for vendor in amd nvidia intel; do
    grep "^$vendor " "$VERSIONS" | grep -qv 'not assembled' || continue
    read -r target large <<< "$(case $vendor in
        amd) echo 'gfx90a local memory .* exceeds limit' ;;
        nvidia) echo 'sm_80 uses too much shared data' ;;
        intel) echo 'pvc 160000 bytes of local memory' ;;
    esac)"
    control "$target" spill '' 'spills [0-9]+ bytes of registers'
    control "$target" large_local '' "$large"
    control "$target" matrix '' 'no matrix instruction'
    control "$target" matrix -DRIGHT ''
done
# and a figure that changes
awk '!done && $5 == 0 { $4 = $4 "1"; done = 1 } { print }' "$work/figures" > "$work/changed"
table "$absent$other" "$work/before" "$work/changed" | diff -q $here/resources.txt - > /dev/null && fail 'a changed figure was not noticed' || pass
finish
