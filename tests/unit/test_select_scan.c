/* Workspace of the exact selects of NVIDIA's tensor cores, which need no device for that: what a plan asks for its
 * largest call is enough for all smaller ones. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#ifdef HYS_WITH_OPENCL
#include "ocl_select_scan.h"

static int64_t workspace(const struct hys_ocl_scan *scan, int64_t rows, int64_t entries,
			 int64_t topk)
{
	const struct hys_kernel kernel = {.detail = scan};
	const struct hys_device device = {
		.info = {.compute_units = 132, .memory_bytes = (int64_t)139 << 30}};
	const struct hys_problem problem = {
		.scoring = {.heads = 64,
			    .groups = 1,
			    .dim = 128,
			    .dtype = scan->e4m3 ? HYS_F8E4M3 : HYS_BF16}};
	const struct hys_size size = {.problem = &problem,
				      .rows = rows,
				      .keys = entries,
				      .entries = entries,
				      .row_entries = entries,
				      .entry_pairs = (double)rows * (double)entries,
				      .topk = topk};
	return hys_ocl_scan_workspace(&kernel, &device, &size);
}

/* Entries about the multiples at which samples grow. */
static void test_entries(void **state)
{
	static const struct hys_ocl_scan *const scans[] = {
		&hys_ocl_scan_wgmma, &hys_ocl_scan_wgmma_e4m3, &hys_ocl_scan_mma};
	static const int64_t rows[] = {64, 4096};
	(void)state;
	for (size_t i = 0; i < sizeof scans / sizeof *scans; i++)
		for (size_t r = 0; r < sizeof rows / sizeof *rows; r++)
			for (int64_t topk = 1; topk <= 4096; topk += topk < 1024 ? 31 : 512) {
				int64_t before = 0;
				for (int64_t at = 4096; at <= 196608; at += 4096)
					for (int64_t entries = at - 33; entries <= at + 33;
					     entries += 11) {
						const int64_t bytes =
							workspace(scans[i], rows[r], entries, topk);
						assert_true(bytes >= before);
						before = bytes;
					}
			}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_entries)};
	return cmocka_run_group_tests_name("workspace of exact select", tests, NULL, NULL);
}

#else

int main(void)
{
	printf("skipped: built without OpenCL\n");
	return 77;
}

#endif
