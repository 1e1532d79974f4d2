#include "lessons.h"

#include <math.h>

/* Of what a device takes, its rows are that much at least: less is chance. */
#define LEAST_OF_ROWS 0.2
/* Until two unknowns agree. */
#define PASSES 16

void hys_seen_note(struct hys_seen *seen, double busy_s, double weight, double flops)
{
	if (!(weight > 0) || seen->calls == HYS_ROUNDS_MOST)
		return;
	seen->busy_s[seen->calls] = busy_s;
	seen->weight[seen->calls++] = weight;
	seen->row_flops = flops / weight;
}

/* What a row took in the call that was disturbed least, without what the call takes whatever its
 * rows; *noise: what all took on average over that. */
static double least_row_s(const struct hys_seen *seen, double fixed_s, double *noise)
{
	double least_s = (double)INFINITY, sum_s = 0;

	for (int32_t n = 0; n < seen->calls; n++) {
		const double busy_s = seen->busy_s[n];
		const double row_s =
			fmax(busy_s - fixed_s, LEAST_OF_ROWS * busy_s) / seen->weight[n];

		least_s = fmin(least_s, row_s);
		sum_s += row_s;
	}
	*noise = seen->calls > 0 ? sum_s / (least_s * seen->calls) : 1;
	return seen->calls > 0 ? least_s : 0;
}

/* What a row takes, and *fixed_s, what a call takes whatever its rows: keys are made ready,
 * threads and caches awake. That is what the fewest rows take without what these take each.
 * *noise becomes that of these calls if it is less. */
static double solve_act(const struct hys_seen *seen, double fixed_least_s, double *fixed_s,
			double *noise)
{
	double row_s, settled;

	*fixed_s = fixed_least_s;
	row_s = least_row_s(seen, *fixed_s, &settled);
	for (int32_t pass = 0; seen->tiny_weight > 0 && pass < PASSES; pass++) {
		*fixed_s = fmax(seen->tiny_s - seen->tiny_weight * row_s, fixed_least_s);
		row_s = least_row_s(seen, *fixed_s, &settled);
	}
	*noise = fmax(*noise, settled);
	return row_s;
}

/* Light rows tell what a row takes, copies included, heavy rows what its work takes. Without light
 * ones both are as much more as rows took than was foretold. */
void hys_lessons_learn(const struct hys_seen *seen, int32_t acts, double fixed_least_s,
		       struct hys_lesson *lesson)
{
	const double heavy_flops = seen[HYS_HEAVY].row_flops;
	const double foretold_s = lesson->row_s + heavy_flops * lesson->flop_s;
	double heavy_s, light_s = 0, unused;

	lesson->noise = 1;
	heavy_s = solve_act(&seen[HYS_HEAVY], fixed_least_s, &lesson->fixed_s, &lesson->noise);
	if (acts > HYS_LIGHT)
		light_s = fmin(solve_act(&seen[HYS_LIGHT], fixed_least_s, &unused, &lesson->noise),
			       heavy_s); /* they have less work: what is more is chance */
	lesson->row_s *= heavy_s / fmax(foretold_s, 1e-12);
	lesson->flop_s *= heavy_s / fmax(foretold_s, 1e-12);
	for (int32_t pass = 0; light_s > 0 && heavy_flops > 0 && pass < PASSES; pass++) {
		lesson->row_s = fmax(light_s - seen[HYS_LIGHT].row_flops * lesson->flop_s, 0);
		lesson->flop_s = fmax(heavy_s - lesson->row_s, 0) / heavy_flops;
	}
}
