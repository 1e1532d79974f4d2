# shellcheck shell=bash
# Runs programs of the tests on OpenCL implementations that are not installed for all, and under Oclgrind. For stages to source
# behind common.sh; none of it touches /etc/OpenCL or what other stages run on.

packages=$HYS_CI_PACKAGES
implementations=$HYS_CI_ROOT/implementations

vendor() { # folder library: the loader knows this one only
    mkdir -p "$implementations/$1" && echo "$2" > "$implementations/$1/$1.icd"
}

libraries() { # folder...: as LD_LIBRARY_PATH takes them
    local IFS=:
    echo "$*"
}

# Mesa's rusticl on llvmpipe. It looks for libclc in /usr/lib/clc, which another version may own: here below the working folder.
# Its loops end after 65535 rounds, which is not enough for the rows for processors: they give a work-item much to do.
use_rusticl() {
    local folder=$implementations/rusticl from=$packages/rusticl/usr/lib library
    library=$(ls "$from"/*/libRusticlOpenCL.so.1 2>/dev/null) && [ -e "$from/clc/spirv64-mesa3d-.spv" ] || return 1
    vendor rusticl "$folder/libRusticlOpenCL.so.1"
    sed 's|/usr/lib/clc/|./clc////////|g' "$library" > "$folder/libRusticlOpenCL.so.1"
    ln -sfn "$from/clc" "$folder/clc"
    under=(env -C "$folder" LD_LIBRARY_PATH="$(libraries "$(dirname "$library")")" OCL_ICD_VENDORS="$folder/rusticl.icd"
           RUSTICL_ENABLE=llvmpipe MESA_SHADER_CACHE_DIR="$folder/cache" "HYS_DISABLE=defects,cpu")
    device=llvmpipe
}

# Intel's runtime for processors. It brings a loader of its own, which must not take the system's place.
use_intel() {
    local folders=("$packages"/intel_cpu/*.data/data/lib) library
    library=$(ls "$packages"/intel_cpu/*.data/data/lib/libintelocl.so 2>/dev/null) || return 1
    rm -f "$packages"/intel_cpu/*.data/data/lib/libOpenCL.so*
    vendor intel "$library"
    under=(env LD_LIBRARY_PATH="$(libraries "${folders[@]}")" OCL_ICD_VENDORS="$implementations/intel/intel.icd")
    device=$(lscpu | sed -n 's/^Model name: *//p' | head -n 1)
}

# PoCL with the smallest work-groups that the library takes.
use_pocl64() {
    [ -e /etc/OpenCL/vendors/pocl.icd ] || return 1
    under=(env OCL_ICD_VENDORS=/etc/OpenCL/vendors/pocl.icd POCL_MAX_WORK_GROUP_SIZE=64 POCL_CACHE_DIR="$HYS_CI_ROOT/pocl")
    device=pthread
}

# Sets `under`, what a command runs under, and `device`, part of its device's name. Where it cannot be had, this counts as skipped.
use() { # rusticl | intel | pocl64
    under=() device=''
    "use_$1" || { skip "$1 is not here: tools/setup.sh ci"; return 1; }
}

# Sets `under` for Oclgrind. Its compiler is told to leave functions as calls: inlined ones need what it does not know.
#   accesses     races, accesses out of bounds, divergent barriers, calls with wrong arguments
#   initialised  reads of what nothing has written
oclgrind() { # accesses | initialised; log
    vendor oclgrind /usr/lib/oclgrind/liboclgrind-rt-icd.so
    rm -f "$2"
    device=Oclgrind
    under=(env OCL_ICD_VENDORS="$implementations/oclgrind/oclgrind.icd" OCLGRIND_LOG="$2" OCLGRIND_MAX_ERRORS=1000
           OCLGRIND_CHECK_API=1 OCLGRIND_LOCAL_MEM_SIZE="${oclgrind_local_memory:-32768}" OCLGRIND_MAX_WGSIZE=256 OCLGRIND_GLOBAL_MEM_SIZE=2000000000
           HYS_TEST_DEVICES=opencl HYS_TEST_GRANT=cpu)
    if [ "$1" = accesses ]; then
        under+=(OCLGRIND_DATA_RACES=1 "OCLGRIND_BUILD_OPTIONS=-debug-info-kind=limited -fno-inline")
    else # of CLBlast's buffers it loses count
        under+=(OCLGRIND_UNINITIALIZED=1 "OCLGRIND_BUILD_OPTIONS=-cl-opt-disable -debug-info-kind=limited"
                HYS_TEST_KERNEL_WRITES=1 HYS_DISABLE=clblast)
    fi
}

# What Oclgrind said: in its log, and of failures and of wrong calls beside it.
findings() { # log output
    cat "$1" 2>/dev/null
    grep -A 4 -E '^(Oclgrind|OCLGRIND)' "$2"
}

# Adds what a program of the tests says of itself to the counts; it must have run on `device`.
count_program() { # name status output
    local good bad
    good=$(sed -nE 's/^\[  PASSED  \] ([0-9]+) test\(s\).*/\1/p' "$3" | tail -n 1)
    bad=$(sed -nE 's/^\[  FAILED  \] ([0-9]+) test\(s\).*/\1/p' "$3" | tail -n 1)
    pass "${good:-0}"
    if [ "$2" != 0 ] || [ "${good:-0}" = 0 ]; then
        grep -vE '^\[ (RUN|      OK)' "$3" | head -n 20
        fail "$1 ended with status $2${bad:+, $bad tests failed}" "read $3"
    # (Not by grep -q behind a pipe: it ends early, and then the pipe counts as failed.)
    elif ! device=$device awk '/[1-9][0-9]* x / && index($0, ENVIRON["device"]) { found = 1 } END { exit !found }' "$3"; then
        fail "$1 ran on no device called $device" "read $3"
    fi
}

# Runs a program of the tests under Oclgrind, to be judged later; several may run at once.
watch() { # name accesses|initialised program [argument]...
    local output=$HYS_CI_FOLDER/$1.out
    oclgrind "$2" "$HYS_CI_FOLDER/$1.log"
    "${under[@]}" timeout 3000 "$HYS_CI_ROOT/dev/tests/$3" "${@:4}" > "$output" 2>&1
    echo $? > "$HYS_CI_FOLDER/$1.status"
}

judge() { # name
    local output=$HYS_CI_FOLDER/$1.out log=$HYS_CI_FOLDER/$1.log
    device=Oclgrind
    count_program "$1" "$(cat "$HYS_CI_FOLDER/$1.status")" "$output"
    [ -n "$(findings "$log" "$output")" ] || return
    findings "$log" "$output" | head -n 40
    fail "Oclgrind has something to say about $1" "read $log and $output"
}
