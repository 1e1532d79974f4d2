#!/usr/bin/env bash
# Installs what the build (or with "test", the whole test suite) needs and this machine lacks.
#
#   tools/setup.sh [demo|test] [--check]
#
# Prints the missing package names before it does anything; prints nothing and returns at once when nothing is missing.
# --check only names them, exit status 1 if there are any.
set -u

# package                 set   what it is for                            a way to look for it where there is no dpkg
packages='
gcc                       demo  C compiler                                cmd:cc
libc6-dev                 demo  C library headers                         header:stdlib.h
cmake                     demo  build system                              cmd:cmake
ninja-build               demo  build system                              cmd:ninja
pkg-config                demo  finds libraries                           cmd:pkg-config
libcjson-dev              demo  JSON in the hyscale tool                  pc:libcjson
ocl-icd-opencl-dev        demo  OpenCL loader (WITH_OPENCL)               pc:OpenCL
opencl-c-headers          demo  OpenCL headers (WITH_OPENCL)              header:CL/cl.h
pocl-opencl-icd           demo  OpenCL on the processor                   none
libhwloc-dev              demo  machine topology (WITH_HWLOC)             pc:hwloc
libclblast-dev            demo  OpenCL GEMM (WITH_CLBLAST)                pc:clblast
g++                       test  headers are checked as C++ too            cmd:c++
libcmocka-dev             test  unit tests                                pc:cmocka
clang                     test  sanitizers and fuzzers                    cmd:clang
@clang-rt                 test  sanitizer runtimes                        none
libomp-dev                test  OpenMP runtime that TSan understands      none
doxygen                   test  API documentation                         cmd:doxygen
clinfo                    test  shows the OpenCL devices of a failed run  cmd:clinfo
'

want=demo check=0
for arg in "$@"; do
    case $arg in
        demo|test) want=$arg ;;
        --check) check=1 ;;
        *) echo "usage: tools/setup.sh [demo|test] [--check]" >&2; exit 2 ;;
    esac
done

say() { echo "setup: $*" >&2; }

# The sanitizer runtimes carry the version of the distribution's clang in their name.
clang_runtime() {
    local version
    version=$({ dpkg-query -W -f '${Depends}\n' clang || apt-cache depends clang; } 2>/dev/null |
              sed -n 's/.*clang-\([0-9][0-9]*\).*/\1/p' | head -n 1)
    echo "libclang-rt-${version:-14}-dev"
}

wanted_rows() {
    local package set rest
    while read -r package set rest; do
        [ -n "$package" ] && { [ "$set" = demo ] || [ "$want" = test ]; } || continue
        [ "$package" != @clang-rt ] || package=$(clang_runtime)
        echo "$package ${rest##* }"
    done <<< "$packages"
}

missing_by_dpkg() {
    local rows installed package probe
    rows=$(wanted_rows)
    installed=$(dpkg-query -W -f '${binary:Package} ${Package} ${db:Status-Status}\n' \
                $(cut -d ' ' -f 1 <<< "$rows") 2>/dev/null | sed -n 's/^[^ ]* \([^ ]*\) installed$/\1/p')
    while read -r package probe; do
        grep -qxF "$package" <<< "$installed" || echo "$package"
    done <<< "$rows"
}

missing_by_probe() {
    local package probe
    while read -r package probe; do
        case $probe in
            cmd:*) command -v "${probe#cmd:}" >/dev/null || echo "$package" ;;
            pc:*) pkg-config --exists "${probe#pc:}" 2>/dev/null || echo "$package" ;;
            header:*) echo "#include <${probe#header:}>" | cc -E -x c - >/dev/null 2>&1 || echo "$package" ;;
        esac
    done < <(wanted_rows)
}

if command -v dpkg-query >/dev/null && command -v apt-get >/dev/null; then debian=1; else debian=0; fi
if [ $debian = 1 ]; then missing=$(missing_by_dpkg); else missing=$(missing_by_probe); fi
[ -n "$missing" ] || exit 0
missing=$(tr '\n' ' ' <<< "$missing")

say "missing: $missing"
[ $check = 0 ] || exit 1
if [ $debian = 0 ]; then
    say "this is not a Debian system; install the packages that correspond to these Debian names by hand, then run this again"
    exit 1
fi
if [ "$(id -u)" = 0 ]; then as_root=
elif command -v sudo >/dev/null; then as_root=sudo
else
    say "neither root nor sudo here; ask an administrator to run: apt-get install $missing"
    exit 1
fi

install_missing() { $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $missing </dev/null; }

log=$(mktemp) && trap 'rm -f "$log"' EXIT
if ! { $as_root apt-get update -q </dev/null && install_missing; } > "$log" 2>&1; then
    tail -n 20 "$log" >&2
    say "apt-get failed (its last lines are above)"
    say "next: see that the package sources answer (apt-get update), then: ${as_root:+$as_root }apt-get install $missing"
    exit 1
fi
say "installed: $missing"
