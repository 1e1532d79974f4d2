/* omp_measure.c - peak multiply-add rate and copy rate. */
#include "omp_measure.h"

#include <string.h>
#include <time.h>

#define COPY_BYTES (INT64_C(64) << 20)
#define COPY_REPEATS 5
#define PEAK_SECONDS 0.02 /* of one repeat, at least */
#define PEAK_REPEATS 4

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

struct peak {
	const struct omp_isa *isa;
	int64_t rounds;
	float *sinks;  /* [threads][16] */
	double *flops; /* [threads][8] */
};

static void peak_item(void *context, int64_t item, int32_t thread)
{
	struct peak *peak = context;
	(void)thread;
	peak->flops[item * 8] = peak->isa->peak(peak->rounds, peak->sinks + item * 16);
}

/* Operations per second of one repeat on all threads. */
static double time_peak(struct peak *peak, int32_t threads, double *seconds)
{
	double flops = 0.0;
	const double start = now();
	omp_for(threads, threads, peak_item, peak);
	*seconds = now() - start;
	for (int32_t i = 0; i < threads; i++)
		flops += peak->flops[(int64_t)i * 8];
	return flops / *seconds;
}

/* The best of PEAK_REPEATS, of as much work as takes PEAK_SECONDS at the
 * nominal rate: on a busy machine the time of a short repeat is that of waiting
 * for a turn, so that it may not say how much is enough. */
static double measure_peak(struct peak *peak, int32_t threads, double nominal)
{
	double best = 0.0, seconds = 0.0, rate = 0.0;
	for (peak->rounds = 1024; rate * seconds < nominal * PEAK_SECONDS; peak->rounds *= 2)
		rate = time_peak(peak, threads, &seconds);
	for (int32_t i = 0; i < PEAK_REPEATS; i++) {
		rate = time_peak(peak, threads, &seconds);
		best = rate > best ? rate : best;
	}
	return best;
}

struct copy {
	char *to;
	const char *from;
	int64_t part; /* bytes of one item */
};

static void copy_item(void *context, int64_t item, int32_t thread)
{
	const struct copy *copy = context;
	(void)thread;
	memcpy(copy->to + item * copy->part, copy->from + item * copy->part, (size_t)copy->part);
}

static double measure_copy(const struct copy *copy, int32_t threads)
{
	const int64_t items = COPY_BYTES / copy->part;
	double best = 0.0;
	for (int32_t i = 0; i < COPY_REPEATS; i++) {
		const double start = now();
		omp_for(threads, items, copy_item, (void *)(uintptr_t)copy);
		const double rate = 2.0 * (double)COPY_BYTES / (now() - start);
		best = rate > best ? rate : best;
	}
	return best;
}

hys_status omp_measure(const struct omp_device *device, const struct omp_isa *isa,
		       struct hys_device_speed *speed, struct hys_error *error)
{
	const struct hys_allocator *allocator = &device->base.host->allocator;
	const int32_t threads = device->threads;
	hys_status status = HYS_OK;
	struct peak peak = {.isa = isa};
	char *arrays = NULL;

	peak.sinks = hys_alloc_array(allocator, threads, 16 * sizeof *peak.sinks);
	peak.flops = hys_alloc_array(allocator, threads, 8 * sizeof *peak.flops);
	arrays = hys_alloc(allocator, 2 * COPY_BYTES);
	if (!peak.sinks || !peak.flops || !arrays) {
		status = hys_fail(error, HYS_OUT_OF_MEMORY, 0,
				  "no memory to measure the CPU (%lld bytes)",
				  (long long)(2 * COPY_BYTES));
		goto cleanup;
	}
	const struct copy copy = {arrays, arrays + COPY_BYTES, INT64_C(1) << 20};
	speed->bytes_per_s = measure_copy(&copy, threads);
	speed->flops_per_s = measure_peak(&peak, threads, device->base.info.nominal_flops_per_s);
cleanup:
	hys_free(allocator, arrays);
	hys_free(allocator, peak.flops);
	hys_free(allocator, peak.sinks);
	return status;
}
