#!/usr/bin/env bash
# Scripts by shellcheck. OpenCL C as strict as clang can be, one set of options for each program of each row: no doubles, no lossy conversions, no extensions.
. tools/ci/common.sh

clang=$(command -v clang-19 || command -v clang) || skip_stage 'no clang here: tools/setup.sh test (Debian: clang)'
programs='list_programs ptx_rewrite' build dev dev || finish
note "$("$clang" --version | head -n 1)"

lint() { # standard file option...
    local standard=$1 file=$2
    shift 2
    "$clang" -x cl "-cl-std=$standard" -fsyntax-only -target spir64 -Xclang -finclude-default-header -Xclang -cl-ext=-cl_khr_fp64,-__opencl_c_fp64 \
        -Wall -Wextra -Wconversion -Wno-sign-conversion -Wshadow -Wdouble-promotion -Wvla -Werror -Icl_kernels "$@" "$file"
}

mkdir -p "$HYS_CI_FOLDER/programs"
"$HYS_CI_ROOT/dev/tests/list_programs" "$HYS_CI_FOLDER/programs" > "$HYS_CI_FOLDER/list" || { fail 'list_programs'; finish; }
# the first program of each row, of those that any device may be given
while IFS=$'\t' read -r row file options; do
    read -r -a options <<< "${options#-cl-std=CL1.2}"
    for standard in CL1.2 CL2.0 CL3.0; do
        if lint "$standard" "cl_kernels/$file" "${options[@]}"; then pass; else fail "$row as $standard: $file ${options[*]}"; fi
    done
done < <(awk -F '\t' '$1 == "program" && $2 ~ /^(gpu|cpu8)$/ && !seen[$3 $4]++ { print $3 "\t" $4 "\t" $8 }' "$HYS_CI_FOLDER/list")

# The scripts.
if command -v shellcheck > /dev/null; then
    while read -r script; do
        if shellcheck -x -S warning "$script"; then pass; else fail "$script"; fi
    done < <(git ls-files -co --exclude-standard '*.sh')
else
    skip 'scripts: no shellcheck here: tools/setup.sh ci (Debian: shellcheck)'
fi

# Planted mistakes: each must be found.
for plant in tests/controls/lint/*.cl; do
    if lint CL1.2 "$plant" > "$HYS_CI_FOLDER/control.log" 2>&1; then fail "nothing was found in $plant"
    elif grep -q "$(sed -n 's|^/\* Planted: .*\[\(.*\)\] \*/$|\1|p' "$plant")" "$HYS_CI_FOLDER/control.log"; then pass
    else fail "something else was found in $plant: $(grep -m 1 error "$HYS_CI_FOLDER/control.log")"
    fi
done
finish
