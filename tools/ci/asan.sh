#!/usr/bin/env bash
. tools/ci/common.sh
# The emulated matrix units test kernels, not this code, and take minutes. Other drivers than PoCL may crash under the sanitizer: Intel's loads libraries in a way that it refuses.
# hwloc's plugin for PCI (Debian's Open MPI brings it) is unloaded with what it allocated, and so leaks memory that has no name to be excused by.
build asan asan && run_tests asan HWLOC_PLUGINS_BLACKLIST=hwloc_pci.so OCL_ICD_VENDORS=/etc/OpenCL/vendors/pocl.icd -- -LE '^(install|docs|portability)$' -E '\.matrix'
finish
