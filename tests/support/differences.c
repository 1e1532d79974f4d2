#include "differences.h"

#include "oracle_internal.h"
#include "rng.h"

#define DIRECTIONS 4
#define TOLERANCE 5e-3

static void move(double *x, const double *from, const double *direction, double step, int64_t count)
{
	for (int64_t i = 0; i < count; i++)
		x[i] = round_f32(from[i] + step * direction[i]);
}

static double norm_of(const double *values, int64_t count)
{
	return sqrt(ora_dot(values, values, count));
}

/* The derivative along one direction of length 1, by differences and by the gradient. */
static void compare(const struct suite_run *run, const char *name, differences_value *value,
		    void *context, double *x, const double *from, const double *gradient,
		    const double *direction, int64_t count, double step)
{
	const double slope = ora_dot(gradient, direction, count);
	const double allowed = TOLERANCE * norm_of(gradient, count);
	double above, below;

	move(x, from, direction, step, count);
	above = value(context, run);
	move(x, from, direction, -step, count);
	below = value(context, run);
	if (!(fabs((above - below) / (2 * step) - slope) <= allowed))
		suite_fail(run, "d/d %s: differences give %.6g, the gradient %.6g, tolerance %.2g",
			   name, (above - below) / (2 * step), slope, allowed);
}

void differences_check(const struct suite_run *run, const char *name, differences_value *value,
		       void *context, double *x, const double *gradient, int64_t count, double step)
{
	double *from = ora_doubles(count), *direction = ora_doubles(count);
	struct rng rng;

	if (count > 0 && norm_of(gradient, count) == 0)
		suite_fail(run, "d/d %s: the gradient is zero", name);
	memcpy(from, x, (size_t)count * sizeof(*x));
	rng_seed(&rng, (uint64_t)count);
	for (int i = 0; i < DIRECTIONS; i++) {
		double length;

		/* The first goes along the gradient, where there is most to see. */
		rng_fill_normal(&rng, direction, count, 1);
		if (i == 0)
			memcpy(direction, gradient, (size_t)count * sizeof(*x));
		length = norm_of(direction, count);
		for (int64_t j = 0; j < count; j++)
			direction[j] /= length > 0 ? length : 1;
		compare(run, name, value, context, x, from, gradient, direction, count, step);
	}
	memcpy(x, from, (size_t)count * sizeof(*x));
	free(from);
	free(direction);
}
