/* omp_parallel.c - the only user of OpenMP's pragmas. */
#include "omp_internal.h"

#ifdef HYS_WITH_OPENMP
#include <omp.h>

void omp_for(int32_t threads, int64_t count, omp_body *body, void *context)
{
	const int32_t team = (int32_t)hys_min64(threads, count);
	if (team <= 1) {
		for (int64_t i = 0; i < count; i++)
			body(context, i, 0);
		return;
	}
#pragma omp parallel for schedule(dynamic, 1) num_threads(team)
	for (int64_t i = 0; i < count; i++)
		body(context, i, omp_get_thread_num());
}

void omp_for_rows(int32_t threads, int64_t count, omp_body *body, void *context)
{
	const int32_t team = (int32_t)hys_min64(threads, count);
	if (team <= 1) {
		for (int64_t i = count - 1; i >= 0; i--)
			body(context, i, 0);
		return;
	}
#pragma omp parallel for schedule(dynamic, 1) num_threads(team)
	for (int64_t i = count - 1; i >= 0; i--)
		body(context, i, omp_get_thread_num());
}

#else

void omp_for(int32_t threads, int64_t count, omp_body *body, void *context)
{
	(void)threads;
	for (int64_t i = 0; i < count; i++)
		body(context, i, 0);
}

void omp_for_rows(int32_t threads, int64_t count, omp_body *body, void *context)
{
	omp_for(threads, count, body, context);
}

#endif
