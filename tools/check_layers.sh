#!/usr/bin/env bash
# Keeps the layering: include <- src <- backends; one file per dependency; malloc only in alloc.c; tools see only include/.
# Prints each line that breaks a rule; exit status 1 if there is one.
set -u
cd "$(dirname "$0")/.." || exit 1

broken=0

# rule PATTERN REASON FILE... : no line of the files may match
rule() {
	local pattern=$1 reason=$2 found
	shift 2
	[ $# -gt 0 ] || return 0
	found=$(grep -nHE "$pattern" "$@" 2>/dev/null) || return 0
	sed "s|\$|    <- $reason|" <<< "$found"
	broken=1
}

# all_but FILE|NONE GLOB... : the files there are
all_but() {
	local except=$1
	shift
	printf "%s\n" "$@" | grep -vxE "$except"
}

include='^[ 	]*#[ 	]*include[ 	]*'
public=$(all_but NONE include/hyscale/*.h)
core=$(all_but NONE src/*.[ch])
openmp=$(all_but NONE backends/openmp/*.[ch] backends/openmp/isa/*.[ch])
opencl=$(all_but NONE backends/opencl/*.[ch])
tools=$(all_but NONE tools/*.[ch])
core_private=$(cd src && printf "%s\n" *.h | grep -vxE 'backend\.h|alloc\.h|check\.h' | sed 's/\./\\./' | paste -sd '|')
backend_headers='(omp|ocl)_[a-z0-9_]+\.h'

# shellcheck disable=SC2046,SC2086
{
rule "${include}(\"[^\"]*/|<(omp|hwloc|clblast))" "public headers include only each other and the standard library" $public
rule "${include}<CL/" "only hyscale/opencl.h names CL" $(all_but include/hyscale/opencl.h include/hyscale/*.h)
rule "${include}<mpi" "only hyscale/mpi.h names MPI" $(all_but include/hyscale/mpi.h include/hyscale/*.h)
rule "${include}(<CL/|<omp\.h|<clblast|.*backends/|\"$backend_headers)" "the core knows no backend" $core
rule "${include}<hwloc" "only topology.c uses hwloc" $(all_but src/topology.c src/*.[ch]) $openmp $opencl $tools
rule "${include}<mpi" "only context_parallel.c uses MPI" $(all_but src/context_parallel.c src/*.[ch]) $openmp $opencl
rule "${include}\"(src/)?($core_private)\"" "backends see backend.h, alloc.h, check.h and the public headers" $openmp $opencl
rule "${include}(<CL/|<clblast|.*opencl|\"ocl_)" "backends know nothing of each other" $openmp
rule "${include}(<omp\.h|.*openmp|\"omp_)" "backends know nothing of each other" $opencl
rule "${include}<clblast" "only ocl_gemm.c uses CLBlast" $(all_but backends/opencl/ocl_gemm.c backends/opencl/*.[ch])
rule "${include}(.*(src|backends)/|\"(backend|alloc|check|${core_private//\\.h/})\.h|\"$backend_headers)" "tools see only include/" $tools
rule '(^|[^A-Za-z0-9_.>])(malloc|calloc|realloc|aligned_alloc|posix_memalign|strdup|free) ?\(' "memory comes from alloc.h" \
	$(all_but src/alloc.c src/*.c) $openmp $opencl
rule '(^|[^A-Za-z0-9_.>])(exit|abort|atexit|assert|printf|puts|perror) ?\(' "a library neither ends the process nor prints" $core $openmp $opencl
}
exit $broken
