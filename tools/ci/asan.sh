#!/usr/bin/env bash
. tools/ci/common.sh
# The emulated matrix units test kernels, not this code, and repeated runs repeat; both take minutes. So do training, whose command is tested here, and
# the .portable and .ref kernels, which run some cases (Valgrind watches all of the former). Other drivers than PoCL may crash under the sanitizer: Intel's
# loads libraries in a way that it refuses.
# hwloc's plugin for PCI (Debian's Open MPI brings it) is unloaded with what it allocated, and so leaks memory that has no name to be excused by.
here=(HWLOC_PLUGINS_BLACKLIST=hwloc_pci.so OCL_ICD_VENDORS=/etc/OpenCL/vendors/pocl.icd)
if build asan asan "${watched[@]}"; then
    run_tests asan "${here[@]}" 'HYS_TEST_KERNELS=*.[!pr]*' -- -LE '^(install|docs|portability|train)$' -E '\.(matrix|determinism)'
    run_tests asan "${here[@]}" 'HYS_TEST_KERNELS=*.[pr]*' 'HYS_TEST_FILTER=f*' -- -R '^conformance\.' -E '\.(matrix|determinism|halves|several_devices|pool)'
    run_tests asan "${here[@]}" 'HYS_TEST_KERNELS=*.ref' -- -R '^conformance\.pool'
fi
finish
