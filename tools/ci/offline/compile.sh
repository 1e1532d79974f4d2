#!/usr/bin/env bash
# Compiles one program for one target, without a device.
#
#   compile.sh TARGET FILE.cl REWRITE OPTIONS       REWRITE: "-", or what ptx_rewrite takes ("local" for "")
#
# Prints a line per kernel: name, registers (Intel: the width that the compiler chose, as s16), bytes of spilled registers of a
# work-item, bytes of its scratch memory (spilled registers and private arrays), bytes of local memory, and how many matrix instructions there are.
# Fails, with the compilers' words on standard error, when something does not compile, link or assemble.
# Answers from the cache ($CACHE) when nothing has changed: $VERSIONS is a file with the compilers' versions.
set -u -o pipefail

target=$1 source=$2 rewrite=$3
read -r -a options <<< "$4"
here=$(dirname "$0")

key=$({ cat "$source" "$VERSIONS" "$0" "$here"/*.awk; [ "$rewrite" = - ] || cat "$PTX_REWRITE"; echo "$target $rewrite $4"; } | sha256sum | cut -c 1-40)
if [ -e "$CACHE/$key" ]; then
    cat "$CACHE/$key"
    exit 0
fi
work=$(mktemp -d "$CACHE/work-XXXXXX") && trap 'rm -rf "$work"' EXIT

# Options that only the vendor's own compiler knows.
plain=()
for option in "${options[@]}"; do
    [[ $option == -cl-nv-* || $option == -cl-intel-* ]] || plain+=("$option")
done

clang=(clang-19 -x cl -O3 -nogpulib -Xclang -finclude-default-header -Wno-linker-warnings "${plain[@]}")
with_libclc() { echo -Xclang -mlink-builtin-bitcode -Xclang "$LIBCLC/$1.bc"; }

# The instructions of the matrix units, per function of a disassembly or PTX text.
count_matrix() { awk -v pattern="$1" -f "$here/matrix.awk"; }

compile_amd() {
    # shellcheck disable=SC2046
    "${clang[@]}" -target amdgcn-amd-amdhsa "-mcpu=$target" $(with_libclc amdgcn--amdhsa) \
        -Rpass-analysis=kernel-resource-usage -c "$source" -o "$work/k.o" 2> "$work/remarks" || { cat "$work/remarks" >&2; return 1; }
    llvm-nm-19 -u "$work/k.o" > "$work/undefined"
    if [ -s "$work/undefined" ]; then echo "undefined: $(tr -s '\n ' ' ' < "$work/undefined")" >&2; return 1; fi
    llvm-objdump-19 -d "--mcpu=$target" "$work/k.o" | count_matrix 'v_mfma|v_wmma|v_smfmac' > "$work/matrix"
    awk -f "$here/amd.awk" "$work/matrix" "$work/remarks"
}

compile_nvidia() {
    local arch=$target from=$work/k.ptx
    # shellcheck disable=SC2046
    "${clang[@]}" -target nvptx64-nvidia-nvcl "-march=$target" -D__NV_CL_C_VERSION=120 $(with_libclc nvptx64--nvidiacl) \
        -S -emit-llvm "$source" -o "$work/k.ll" || return 1
    llc-19 -O3 -mcpu="$target" -mattr=+ptx83 "$work/k.ll" -o "$work/bare.ptx" || return 1
    # clang drops the work-groups' sizes, by which ptxas limits registers
    awk -f "$here/reqntid.awk" "$work/k.ll" "$work/bare.ptx" > "$from" || return 1
    if [ "$rewrite" != - ]; then
        [ "$rewrite" = local ] || arch=$rewrite
        "$PTX_REWRITE" "${rewrite/local/}" < "$from" > "$work/rewritten.ptx" || return 1
        from=$work/rewritten.ptx
    fi
    count_matrix '(^|[^a-z_])(mma\.sync|wgmma\.mma_async)' < "$from" > "$work/matrix"
    if [ -z "$PTXAS" ]; then
        awk '{ print $1, "-", "-", "-", "-", $2 }' "$work/matrix"
        return 0
    fi
    "$PTXAS" "-arch=$arch" -v "$from" -o "$work/k.cubin" > "$work/info" 2>&1 || { cat "$work/info" >&2; return 1; }
    awk -f "$here/nvidia.awk" "$work/matrix" "$work/info"
}

compile_intel() {
    local defines=() wide=32
    # ocloc of Debian does not say that the devices can; drivers do.
    ! grep -q 'intel_sub_group_.*_matrix_mad' "$source" || defines=(-Dcl_intel_subgroup_matrix_multiply_accumulate=1)
    "$OCLOC" compile -file "$source" -device "$target" -options "${options[*]} ${defines[*]:-}" -out_dir "$work" -output k -output_no_suffix > "$work/log" 2>&1
    if [ ! -s "$work/k" ] || grep -qE 'error|INVALID|Build failed' "$work/log"; then cat "$work/log" >&2; return 1; fi
    { echo; cat "$work/log"; } > "$work/said"
    mkdir "$work/parts"
    "$OCLOC" disasm -file "$work/k" -device "$target" -dump "$work/parts" > "$work/log" 2>&1 || { cat "$work/log" >&2; return 1; }
    for asm in "$work"/parts/*_KernelHeap.asm; do
        echo "$(basename "$asm" _KernelHeap.asm):"
        cat "$asm"
    done | count_matrix '^ *(\([^)]*\))? *dpas' > "$work/matrix"
    [ "$target" != pvc ] || wide=64
    awk -f "$here/intel.awk" "register_bytes=$wide" "$work/matrix" "$work/said" "$work/parts/PTM.txt"
}

# Not optimised: llvm-spirv-15 knows no freeze.
compile_spirv() {
    clang-15 -x cl -O0 -target spir64-unknown-unknown -Xclang -finclude-default-header "${plain[@]}" -c -emit-llvm "$source" -o "$work/k.bc" &&
        llvm-spirv-15 --spirv-max-version=1.0 "$work/k.bc" -o "$work/k.spv" && spirv-val --target-env opencl1.2 "$work/k.spv" &&
        llvm-nm-19 --defined-only --format=just-symbols "$work/k.bc" 2>/dev/null | awk '{ print $1, "-", "-", "-", "-", 0 }'
}

case $target in
    gfx*) compile_amd ;;
    sm_*) compile_nvidia ;;
    gpu|cpu*) compile_spirv ;;
    *) compile_intel ;;
esac > "$work/result" && [ -s "$work/result" ] || exit 1
mv "$work/result" "$CACHE/$key" && cat "$CACHE/$key"
