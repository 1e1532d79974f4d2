#include "launches.h"

#include <stdarg.h>
#include <string.h>

#include "suite.h"

#include <setjmp.h>
#include <cmocka.h>

#include "ocl_internal.h"

#define LAUNCHES_MAX 1024

static struct launch {
	const struct hys_kernel *row;
	char name[64];
} launches[LAUNCHES_MAX];
static int32_t launch_count;

static bool launched(const struct hys_kernel *row, const char *name)
{
	for (int32_t i = 0; i < launch_count; i++)
		if (launches[i].row == row && strcmp(launches[i].name, name) == 0)
			return true;
	return false;
}

/* Rows of one program, or of one variant, share code: what one of them need not launch the
 * other does. */
static bool related(const struct hys_kernel *a, const struct hys_kernel *b)
{
	const struct hys_ocl_source *of_a = a->detail, *of_b = b->detail;

	return strcmp(of_a->file, of_b->file) == 0 ||
	       strcmp(strrchr(a->name, '.'), strrchr(b->name, '.')) == 0;
}

static bool launched_by_relative(const struct hys_kernel *row, const char *name)
{
	for (int32_t i = 0; i < launch_count; i++)
		if (related(launches[i].row, row) && strcmp(launches[i].name, name) == 0)
			return true;
	return false;
}

static void note(cl_kernel kernel)
{
	const struct suite_row *row = suite_current();
	struct launch *next = &launches[launch_count];

	/* Self-tests run before the row is the suite's current one: nobody judges them here. */
	if (!row || !row->kernel || row->info->backend != &hys_backend_opencl ||
	    launch_count == LAUNCHES_MAX ||
	    clGetKernelInfo(kernel, CL_KERNEL_FUNCTION_NAME, sizeof(next->name), next->name,
			    NULL) != CL_SUCCESS ||
	    launched(row->kernel, next->name))
		return;
	next->row = row->kernel;
	launch_count++;
}

cl_int __real_clEnqueueNDRangeKernel(cl_command_queue queue, cl_kernel kernel, cl_uint dims,
				     const size_t *offset, const size_t *global,
				     const size_t *local, cl_uint count, const cl_event *events,
				     cl_event *event);
cl_int __wrap_clEnqueueNDRangeKernel(cl_command_queue queue, cl_kernel kernel, cl_uint dims,
				     const size_t *offset, const size_t *global,
				     const size_t *local, cl_uint count, const cl_event *events,
				     cl_event *event);
cl_int __wrap_clEnqueueNDRangeKernel(cl_command_queue queue, cl_kernel kernel, cl_uint dims,
				     const size_t *offset, const size_t *global,
				     const size_t *local, cl_uint count, const cl_event *events,
				     cl_event *event)
{
	note(kernel);
	return __real_clEnqueueNDRangeKernel(queue, kernel, dims, offset, global, local, count,
					     events, event);
}

int32_t launches_missing(void)
{
	int32_t missing = 0;

	for (int32_t i = 0; i < hys_backend_opencl.kernel_count; i++) {
		const struct hys_kernel *row = &hys_backend_opencl.kernels[i];
		const struct hys_ocl_source *source = row->detail;
		bool ran = false;

		for (int32_t j = 0; j < launch_count; j++)
			ran = ran || launches[j].row == row;
		for (const char *const *entry = source->entries; ran && *entry; entry++)
			if (!launched_by_relative(row, *entry)) {
				print_error("%s: no case launched %s\n", row->name, *entry);
				missing++;
			}
	}
	return missing;
}
