/* ocl_measure.c - what a device reaches: a multiply-add loop and a copy. */
#include <time.h>

#include "ocl_internal.h"

#define PEAK_LOCAL 64
#define PEAK_STEPS 4096
#define PEAK_FLOPS_PER_STEP 256 /* of one work-item, see peak.cl */
#define COPY_BYTES ((int64_t)64 << 20)
#define WANTED_S 0.1

static const char *const entries[] = {"peak_fma", NULL};
const struct hys_ocl_source hys_ocl_peak_source = {"peak.cl", entries, NULL, NULL, NULL};

struct measuring {
	struct hys_stream stream;
	struct hys_ocl_instance instance;
	cl_program program;
	cl_mem a, b;
	int64_t groups;
};

static double now_s(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static hys_status run_fma(struct measuring *m, struct hys_error *error)
{
	const int64_t local = PEAK_LOCAL;
	struct hys_ocl_args args = hys_ocl_begin(&m->stream, &m->instance, 0);
	hys_ocl_arg(&args, &m->a, sizeof(m->a));
	hys_ocl_arg_i32(&args, PEAK_STEPS);
	hys_ocl_arg_f32(&args, 0.999);
	return hys_ocl_launch(&args, 1, &m->groups, &local, error);
}

static hys_status run_copy(struct measuring *m, struct hys_error *error)
{
	return hys_ocl_check(
		error,
		clEnqueueCopyBuffer(m->stream.queue, m->a, m->b, 0, 0, COPY_BYTES, 0, NULL, NULL),
		"clEnqueueCopyBuffer");
}

/* Seconds of one run: the best of batches, after one run to warm up. */
static hys_status time_runs(struct measuring *m,
			    hys_status (*run)(struct measuring *m, struct hys_error *error),
			    double *seconds, struct hys_error *error)
{
	hys_status status = HYS_OK;
	double best = 0, spent = 0;
	for (int32_t runs = 0; spent < WANTED_S; runs = runs ? runs * 2 : 1) {
		int32_t given = runs ? runs : 1;
		double start = now_s();
		for (int32_t i = 0; i < given; i++)
			HYS_TRY(run(m, error));
		HYS_TRY(hys_ocl_check(error, clFinish(m->stream.queue), "clFinish"));
		double each = (now_s() - start) / given;
		if (runs) { /* the first one warms up */
			spent += each * given;
			best = best == 0 || each < best ? each : best;
		}
	}
	*seconds = best;
cleanup:
	return status;
}

static hys_status open_measuring(struct measuring *m, struct hys_error *error)
{
	struct hys_ocl_device *device = m->stream.device;
	hys_status status = HYS_OK;
	cl_int code = CL_SUCCESS;
	HYS_TRY(hys_ocl_program_build(device, &hys_ocl_peak_source, NULL, &m->program, error));
	m->instance.entries = entries;
	m->instance.kernels[0] = clCreateKernel(m->program, entries[0], &code);
	HYS_TRY(hys_ocl_check(error, code, "clCreateKernel"));
	m->a = clCreateBuffer(device->context, CL_MEM_READ_WRITE, COPY_BYTES, NULL, &code);
	HYS_TRY(hys_ocl_check_bytes(error, code, "clCreateBuffer", COPY_BYTES));
	m->b = clCreateBuffer(device->context, CL_MEM_READ_WRITE, COPY_BYTES, NULL, &code);
	HYS_TRY(hys_ocl_check_bytes(error, code, "clCreateBuffer", COPY_BYTES));
	m->groups = hys_max64(1, device->base.info.compute_units) * 64;
cleanup:
	return status;
}

hys_status hys_ocl_measure(struct hys_device *base, struct hys_device_speed *speed,
			   struct hys_error *error)
{
	struct measuring m = {.stream = {.device = hys_ocl_device(base)}};
	double fma_s = 0, copy_s = 0;
	hys_status status = HYS_OK;
	m.stream.queue = m.stream.device->queue;
	HYS_TRY(open_measuring(&m, error));
	HYS_TRY(time_runs(&m, run_fma, &fma_s, error));
	HYS_TRY(time_runs(&m, run_copy, &copy_s, error));
	speed->flops_per_s =
		(double)m.groups * PEAK_LOCAL * PEAK_STEPS * PEAK_FLOPS_PER_STEP / fma_s;
	speed->bytes_per_s = 2.0 * (double)COPY_BYTES / copy_s;
cleanup:
	if (m.b)
		clReleaseMemObject(m.b);
	if (m.a)
		clReleaseMemObject(m.a);
	if (m.instance.kernels[0])
		clReleaseKernel(m.instance.kernels[0]);
	if (m.program)
		clReleaseProgram(m.program);
	return status;
}
