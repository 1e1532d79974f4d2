/* The completed problem: no zero that means "default", nothing illegal. */
#include <float.h>
#include <math.h>

#include "core.h"

#define TOPK_DEFAULT 2048
#define COARSE_KEEP_DEFAULT 64
/* Far above any model; keeps every product of two of them in 32 bits. */
#define HEADS_MAX 32768
#define DIM_MAX 32768

static hys_status bad(struct hys_error *error, const char *field, int64_t value,
		      const char *expected)
{
	return hys_fail(error, HYS_INVALID_ARGUMENT, 0, "%s is %lld, expected %s", field,
			(long long)value, expected);
}

/* Kernels compute in f32: a factor must be a number there too. */
static hys_status check_factor(struct hys_error *error, const char *field, double value,
			       bool zero_is_fine)
{
	double size = fabs(value);

	if ((size >= (double)FLT_MIN && size <= (double)FLT_MAX) || (zero_is_fine && size == 0))
		return HYS_OK;
	return hys_fail(error, HYS_INVALID_ARGUMENT, 0,
			"%s is %g, expected a finite number that fits in f32", field, value);
}

static void default_to(int32_t *field, int32_t value)
{
	if (*field == 0)
		*field = value;
}

static hys_status complete_scoring(struct hys_scoring *scoring, struct hys_error *error)
{
	hys_status status;

	default_to(&scoring->groups, 1);
	default_to(&scoring->block, 1);
	default_to(&scoring->pool, 1);
	if (scoring->dtype == HYS_DTYPE_DEFAULT)
		scoring->dtype = HYS_F32;
	HYS_TRY(hys_check_range(error, "scoring.heads", scoring->heads, 0, HEADS_MAX));
	HYS_TRY(hys_check_range(error, "scoring.dim", scoring->dim, scoring->heads > 0, DIM_MAX));
	HYS_TRY(hys_check_range(error, "scoring.groups", scoring->groups, 1, HYS_GROUPS_MAX));
	HYS_TRY(hys_check_range(error, "scoring.block", scoring->block, 1, INT32_MAX));
	HYS_TRY(hys_check_range(error, "scoring.pool", scoring->pool, 1, INT32_MAX));
	if ((unsigned)scoring->dtype > HYS_F8E4M3)
		return bad(error, "scoring.dtype", scoring->dtype, "f32, f16, bf16 or f8e4m3");
	if ((unsigned)scoring->activation > HYS_ACTIVATION_NONE)
		return bad(error, "scoring.activation", scoring->activation, "relu or none");
	if (scoring->heads % scoring->groups != 0)
		return hys_fail(error, HYS_INVALID_ARGUMENT, 0,
				"scoring.groups is %d, expected a divisor of scoring.heads, %d",
				scoring->groups, scoring->heads);
	if (scoring->scale == 0 && scoring->dim > 0)
		scoring->scale = 1 / sqrt(scoring->dim);
	HYS_TRY(check_factor(error, "scoring.scale", scoring->scale, scoring->heads == 0));
cleanup:
	return status;
}

static hys_status complete_choosing(struct hys_choosing *choosing, int32_t block,
				    struct hys_error *error)
{
	hys_status status;

	default_to(&choosing->topk_max, TOPK_DEFAULT);
	default_to(&choosing->coarse_keep, COARSE_KEEP_DEFAULT);
	if (choosing->method == HYS_METHOD_DEFAULT)
		choosing->method = HYS_METHOD_EXACT;
	HYS_TRY(hys_check_range(error, "choosing.topk_max", choosing->topk_max, 1, INT32_MAX));
	HYS_TRY(hys_check_range(error, "choosing.first_blocks", choosing->first_blocks, 0,
				INT32_MAX));
	HYS_TRY(hys_check_range(error, "choosing.local_blocks", choosing->local_blocks, 0,
				INT32_MAX));
	HYS_TRY(hys_check_range(error, "choosing.coarse_block", choosing->coarse_block, 0,
				INT32_MAX));
	HYS_TRY(hys_check_range(error, "choosing.coarse_keep", choosing->coarse_keep, 1,
				INT32_MAX));
	if ((unsigned)choosing->method > HYS_METHOD_COARSE_TO_FINE)
		return bad(error, "choosing.method", choosing->method,
			   "exact, coarse or coarse_to_fine");
	if (choosing->method != HYS_METHOD_EXACT && choosing->coarse_block == 0)
		return bad(error, "choosing.coarse_block", 0, "a size: choosing.method needs it");
	if (choosing->coarse_block % block != 0)
		return hys_fail(
			error, HYS_INVALID_ARGUMENT, 0,
			"choosing.coarse_block is %d, expected a multiple of scoring.block, "
			"%d",
			choosing->coarse_block, block);
cleanup:
	return status;
}

static hys_status check_heads(const struct hys_attending *attending, int32_t groups,
			      struct hys_error *error)
{
	if (attending->heads % attending->kv_heads != 0)
		return hys_fail(
			error, HYS_INVALID_ARGUMENT, 0,
			"attending.kv_heads is %d, expected a divisor of attending.heads, %d",
			attending->kv_heads, attending->heads);
	if (attending->heads % groups != 0)
		return hys_fail(error, HYS_INVALID_ARGUMENT, 0,
				"scoring.groups is %d, expected a divisor of attending.heads, %d",
				groups, attending->heads);
	return HYS_OK;
}

/* With pooled keys an index stands for its pool, whatever the block. */
static hys_status complete_granularity(struct hys_attending *attending,
				       const struct hys_scoring *scoring, struct hys_error *error)
{
	if (attending->granularity == 0 && scoring->pool > 1 && scoring->block > 1 &&
	    attending->heads > 0)
		return hys_fail(error, HYS_UNSUPPORTED, 0,
				"attention over blocks of pooled keys: scoring.block is %d and "
				"scoring.pool %d, expected one of them 1, or "
				"attending.granularity 1 to attend to one pool per index",
				scoring->block, scoring->pool);
	default_to(&attending->granularity, scoring->pool > 1 ? 1 : scoring->block);
	if (scoring->pool > 1 && attending->granularity != 1)
		return bad(error, "attending.granularity", attending->granularity,
			   "1: scoring.pool is more than 1");
	return hys_check_range(error, "attending.granularity", attending->granularity, 1,
			       INT32_MAX);
}

static hys_status complete_attending(struct hys_attending *attending,
				     const struct hys_scoring *scoring, struct hys_error *error)
{
	hys_status status;

	default_to(&attending->kv_heads, 1);
	default_to(&attending->value_dim, attending->head_dim);
	if (attending->dtype == HYS_DTYPE_DEFAULT)
		attending->dtype = HYS_F32;
	HYS_TRY(hys_check_range(error, "attending.heads", attending->heads, 0, HEADS_MAX));
	HYS_TRY(hys_check_range(error, "attending.kv_heads", attending->kv_heads, 1, HEADS_MAX));
	HYS_TRY(hys_check_range(error, "attending.head_dim", attending->head_dim,
				attending->heads > 0, DIM_MAX));
	HYS_TRY(hys_check_range(error, "attending.value_dim", attending->value_dim,
				attending->heads > 0, DIM_MAX));
	HYS_TRY(hys_check_range(error, "attending.window", attending->window, 0, INT32_MAX));
	HYS_TRY(hys_check_range(error, "attending.first", attending->first, 0, INT32_MAX));
	if ((unsigned)attending->dtype > HYS_BF16)
		return bad(error, "attending.dtype", attending->dtype, "f32, f16 or bf16");
	if (attending->flags & ~HYS_ATTENDING_DENSE)
		return bad(error, "attending.flags", attending->flags, "HYS_ATTENDING_DENSE or 0");
	HYS_TRY(check_heads(attending, scoring->groups, error));
	HYS_TRY(complete_granularity(attending, scoring, error));
	if (attending->scale == 0 && attending->head_dim > 0)
		attending->scale = 1 / sqrt(attending->head_dim);
	HYS_TRY(check_factor(error, "attending.scale", attending->scale, attending->heads == 0));
	HYS_TRY(check_factor(error, "attending.softcap", attending->softcap, true));
	if (attending->softcap < 0)
		return hys_fail(error, HYS_INVALID_ARGUMENT, 0,
				"attending.softcap is %g, expected 0 or more", attending->softcap);
cleanup:
	return status;
}

hys_status hys_problem_complete(struct hys_problem *problem, struct hys_error *error)
{
	hys_status status;
	struct hys_problem whole;

	HYS_TRY(hys_check_struct(problem, sizeof(*problem), "problem", error));
	whole = *problem;
	HYS_TRY(complete_scoring(&whole.scoring, error));
	HYS_TRY(complete_choosing(&whole.choosing, whole.scoring.block, error));
	HYS_TRY(complete_attending(&whole.attending, &whole.scoring, error));
	if (whole.scoring.heads == 0 && whole.attending.heads == 0 && whole.scoring.pool == 1 &&
	    whole.choosing.coarse_block == 0)
		return hys_fail(error, HYS_INVALID_ARGUMENT, 0,
				"the problem is empty: scoring.heads, attending.heads, "
				"scoring.pool and choosing.coarse_block are all unset");
	*problem = whole;
cleanup:
	return status;
}

static uint64_t hash_integer(uint64_t hash, int64_t value)
{
	return hys_hash(hash, &value, sizeof(value));
}

static uint64_t hash_real(uint64_t hash, double value)
{
	return hys_hash(hash, &value, sizeof(value));
}

/* Field by field: the struct has padding. */
uint64_t hys_problem_hash(const struct hys_problem *problem)
{
	const struct hys_scoring *s = &problem->scoring;
	const struct hys_choosing *c = &problem->choosing;
	const struct hys_attending *a = &problem->attending;
	const int64_t integers[] = {
		s->heads,    s->dim,	      s->groups,      s->block,	       s->pool,
		s->dtype,    s->activation,   c->topk_max,    c->first_blocks, c->local_blocks,
		c->method,   c->coarse_block, c->coarse_keep, a->heads,	       a->kv_heads,
		a->head_dim, a->value_dim,    a->granularity, a->window,       a->first,
		a->dtype,    a->flags,
	};
	uint64_t hash = hys_hash_start;

	for (size_t i = 0; i < sizeof(integers) / sizeof(integers[0]); i++)
		hash = hash_integer(hash, integers[i]);
	hash = hash_real(hash, s->scale);
	hash = hash_real(hash, a->scale);
	return hash_real(hash, a->softcap);
}
