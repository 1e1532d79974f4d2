/* ocl_gemm.c - plain f32 matrix products by CLBlast, its only user. */
#include <pthread.h>

#include "ocl_internal.h"

bool hys_ocl_gemm_fits(const struct hys_ocl_gemm *gemm)
{
	int64_t a = hys_add64(gemm->a_offset, hys_mul64(gemm->m, gemm->a_pitch));
	int64_t b = hys_add64(gemm->b_offset, hys_mul64(gemm->n, gemm->b_pitch));
	int64_t c = hys_add64(gemm->c_offset, hys_mul64(gemm->m, gemm->c_pitch));
	return a <= INT32_MAX && b <= INT32_MAX && c <= INT32_MAX;
}

#ifdef HYS_WITH_CLBLAST
#include <clblast_c.h>

/* CLBlast's caches are not safe against concurrent calls. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool used;

hys_status hys_ocl_gemm(struct hys_stream *stream, const struct hys_ocl_gemm *gemm,
			struct hys_error *error)
{
	if (gemm->m == 0 || gemm->n == 0)
		return HYS_OK;
	if (!hys_ocl_gemm_fits(gemm))
		return hys_fail(error, HYS_INTERNAL, 0,
				"a matrix product is too large for CLBlast");
	pthread_mutex_lock(&lock);
	used = true;
	CLBlastStatusCode code = CLBlastSgemm(
		CLBlastLayoutRowMajor, CLBlastTransposeNo, CLBlastTransposeYes, (size_t)gemm->m,
		(size_t)gemm->n, (size_t)gemm->k, 1.0f, gemm->a, (size_t)gemm->a_offset,
		(size_t)gemm->a_pitch, gemm->b, (size_t)gemm->b_offset, (size_t)gemm->b_pitch, 0.0f,
		gemm->c, (size_t)gemm->c_offset, (size_t)gemm->c_pitch, &stream->queue, NULL);
	pthread_mutex_unlock(&lock);
	if (code == CLBlastSuccess)
		return HYS_OK;
	if (code == CLBlastTempBufferAllocFailure || code == CLBlastOpenCLOutOfResources ||
	    code == CLBlastOpenCLOutOfHostMemory)
		return hys_fail(error, HYS_OUT_OF_MEMORY, (int32_t)code,
				"CLBlastSgemm: out of memory");
	return hys_fail(error, HYS_DEVICE_FAILED, (int32_t)code, "CLBlastSgemm answers %d",
			(int)code);
}

hys_status hys_ocl_gemm_prepare(struct hys_ocl_device *device, struct hys_error *error)
{
	enum { SIZE = 16 };
	struct hys_stream stream = {.device = device, .queue = device->queue};
	struct hys_ocl_gemm gemm = {
		.m = SIZE, .n = SIZE, .k = SIZE, .a_pitch = SIZE, .b_pitch = SIZE, .c_pitch = SIZE};
	cl_int code = CL_SUCCESS;
	cl_mem memory = clCreateBuffer(device->context, CL_MEM_READ_WRITE,
				       sizeof(float) * 3 * SIZE * SIZE, NULL, &code);
	if (!memory)
		return hys_ocl_check(error, code, "clCreateBuffer");
	gemm.a = gemm.b = gemm.c = memory;
	gemm.b_offset = (int64_t)SIZE * SIZE;
	gemm.c_offset = (int64_t)2 * SIZE * SIZE;
	hys_status status = hys_ocl_gemm(&stream, &gemm, error);
	if (status == HYS_OK)
		status = hys_ocl_check(error, clFinish(device->queue), "clFinish");
	clReleaseMemObject(memory);
	return status;
}

void hys_ocl_gemm_forget(void)
{
	pthread_mutex_lock(&lock);
	if (used)
		(void)CLBlastClearCache();
	used = false;
	pthread_mutex_unlock(&lock);
}

#else

hys_status hys_ocl_gemm(struct hys_stream *stream, const struct hys_ocl_gemm *gemm,
			struct hys_error *error)
{
	(void)stream;
	(void)gemm;
	return hys_fail(error, HYS_UNSUPPORTED, 0, "built without CLBlast");
}

hys_status hys_ocl_gemm_prepare(struct hys_ocl_device *device, struct hys_error *error)
{
	(void)device;
	return hys_fail(error, HYS_UNSUPPORTED, 0, "built without CLBlast");
}

void hys_ocl_gemm_forget(void)
{
}

#endif
