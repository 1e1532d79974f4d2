/* Decisions: from options, step and layer to what is done now. */
#include <math.h>
#include <string.h>

#include "schedule.h"

#define TOPK_MAX_DEFAULT 2048
#define SHRINK_DEFAULT 0.8
#define GROW_DEFAULT 1.25
#define SMOOTHING_DEFAULT 0.5
#define FEEDBACK_PERIOD_DEFAULT 100
#define LAYERS_MAX 65536
#define PIECES_MAX 65536

const char *hys_phase_name(hys_phase phase)
{
	static const char *const names[HYS_PHASE_COUNT] = {"dense", "coarse", "coarse_to_fine",
							   "exact"};

	return (unsigned)phase < HYS_PHASE_COUNT ? names[phase] : "unknown";
}

/* ---- options ---- */

static hys_status bad(struct hys_error *error, const char *array, int32_t i, const char *field,
		      double value, const char *expected)
{
	return hys_fail(error, HYS_INVALID_ARGUMENT, 0, "%s[%d].%s is %g, expected %s", array, i,
			field, value, expected);
}

/* True for numbers in [least, most]; false for NaN. */
static bool within(double value, double least, double most)
{
	return value >= least && value <= most;
}

static hys_status check_piece(const struct hys_schedule_options *options, int32_t i,
			      struct hys_error *error)
{
	const struct hys_schedule_piece *piece = &options->pieces[i];
	const bool sparse = piece->phase != HYS_PHASE_DENSE;

	if (i == 0 ? piece->step != 0 : piece->step <= piece[-1].step)
		return bad(error, "pieces", i, "step", (double)piece->step,
			   i == 0 ? "0" : "more than the piece before");
	if (piece->step >= options->steps)
		return bad(error, "pieces", i, "step", (double)piece->step, "less than steps");
	if ((unsigned)piece->phase >= HYS_PHASE_COUNT)
		return bad(error, "pieces", i, "phase", piece->phase, "a hys_phase");
	if (piece->loss_row_stride < 0)
		return bad(error, "pieces", i, "loss_row_stride", piece->loss_row_stride,
			   "0 or more");
	if (!sparse)
		return HYS_OK;
	if (!within(piece->topk, 0, options->topk_max))
		return bad(error, "pieces", i, "topk", piece->topk, "0 to topk_max");
	if (!within(piece->topk_end, 0, options->topk_max))
		return bad(error, "pieces", i, "topk_end", piece->topk_end, "0 to topk_max");
	if (!within(piece->density, 0, 1) || (piece->density > 0) == (piece->topk > 0))
		return bad(error, "pieces", i, "density", piece->density,
			   "a share in (0, 1], or 0 and topk instead");
	if (!within(piece->density_end, 0, 1))
		return bad(error, "pieces", i, "density_end", piece->density_end, "0 to 1");
	return HYS_OK;
}

static hys_status check_override(const struct hys_schedule_options *options, int32_t i,
				 struct hys_error *error)
{
	const struct hys_schedule_override *over = &options->overrides[i];

	if (!within(over->layer_first, 0, options->layers - 1))
		return bad(error, "overrides", i, "layer_first", over->layer_first, "a layer");
	if (!within(over->layer_count, 0, options->layers - over->layer_first))
		return bad(error, "overrides", i, "layer_count", over->layer_count,
			   "0 or layers that there are");
	if (!within(over->group_first, 0, options->groups - 1))
		return bad(error, "overrides", i, "group_first", over->group_first, "a group");
	if (!within(over->group_count, 0, options->groups - over->group_first))
		return bad(error, "overrides", i, "group_count", over->group_count,
			   "0 or groups that there are");
	if (!within(over->factor, 0, 1e9))
		return bad(error, "overrides", i, "factor", over->factor, "0 or more");
	if (!within(over->topk_least, 0, options->topk_max))
		return bad(error, "overrides", i, "topk_least", over->topk_least, "0 to topk_max");
	if (!within(over->topk_most, 0, INT32_MAX) ||
	    (over->topk_most > 0 && over->topk_most < over->topk_least))
		return bad(error, "overrides", i, "topk_most", over->topk_most,
			   "0, or topk_least or more");
	return HYS_OK;
}

static hys_status check_sources(const struct hys_schedule_options *options, struct hys_error *error)
{
	const int32_t *source = options->source_layers;

	if (source && options->share_every > 0)
		return hys_fail(error, HYS_INVALID_ARGUMENT, 0,
				"share_every is %d, expected 0: source_layers is given",
				options->share_every);
	for (int32_t l = 0; source && l < options->layers; l++)
		if (source[l] < 0 || source[l] > l || source[source[l]] != source[l])
			return hys_fail(error, HYS_INVALID_ARGUMENT, 0,
					"source_layers[%d] is %d, expected a layer up to %d that "
					"is its own source",
					l, source[l], l);
	return HYS_OK;
}

static void default_to(double *field, double value)
{
	if (*field == 0)
		*field = value;
}

static void complete(struct hys_schedule_options *options)
{
	if (options->groups == 0)
		options->groups = 1;
	if (options->topk_max == 0)
		options->topk_max = TOPK_MAX_DEFAULT;
	if (options->block == 0)
		options->block = 1;
	if (options->coarse_block == 0)
		options->coarse_block = options->block;
	if (options->feedback_period == 0)
		options->feedback_period =
			options->key_period > 0 ? options->key_period : FEEDBACK_PERIOD_DEFAULT;
	default_to(&options->shrink, SHRINK_DEFAULT);
	default_to(&options->grow, GROW_DEFAULT);
	default_to(&options->smoothing, SMOOTHING_DEFAULT);
}

static hys_status check_feedback_options(const struct hys_schedule_options *options,
					 struct hys_error *error)
{
	const struct {
		const char *name;
		double value, least, most;
	} reals[] = {
		{"recall_floor", options->recall_floor, 0, 1},
		{"overlap_floor", options->overlap_floor, 0, 1},
		{"loss_limit", options->loss_limit, 0, HUGE_VAL},
		{"shrink", options->shrink, 1e-3, 1},
		{"grow", options->grow, 1, 1e3},
		{"smoothing", options->smoothing, 1e-3, 1},
	};

	for (size_t i = 0; i < sizeof(reals) / sizeof(reals[0]); i++)
		if (!within(reals[i].value, reals[i].least, reals[i].most))
			return hys_fail(error, HYS_INVALID_ARGUMENT, 0,
					"%s is %g, expected %g to %g", reals[i].name,
					reals[i].value, reals[i].least, reals[i].most);
	return HYS_OK;
}

static hys_status check_options(struct hys_schedule_options *options, struct hys_error *error)
{
	hys_status status;

	complete(options);
	HYS_TRY(hys_check_range(error, "steps", options->steps, 1, INT64_MAX / 2));
	HYS_TRY(hys_check_range(error, "layers", options->layers, 1, LAYERS_MAX));
	HYS_TRY(hys_check_range(error, "groups", options->groups, 1, HYS_SCHEDULE_GROUPS_MAX));
	HYS_TRY(hys_check_range(error, "topk_max", options->topk_max, 1, INT32_MAX));
	HYS_TRY(hys_check_range(error, "block", options->block, 1, INT32_MAX));
	HYS_TRY(hys_check_range(error, "coarse_block", options->coarse_block, 1, INT32_MAX));
	HYS_TRY(hys_check_range(error, "share_every", options->share_every, 0, INT32_MAX));
	HYS_TRY(hys_check_range(error, "key_period", options->key_period, 0, INT64_MAX / 2));
	HYS_TRY(hys_check_range(error, "feedback_period", options->feedback_period, 1,
				INT64_MAX / 2));
	HYS_TRY(hys_check_range(error, "piece_count", options->piece_count, 1, PIECES_MAX));
	HYS_TRY(hys_check_range(error, "override_count", options->override_count, 0, PIECES_MAX));
	HYS_TRY(check_feedback_options(options, error));
	if (!options->pieces)
		return hys_fail(error, HYS_INVALID_ARGUMENT, 0,
				"pieces is NULL, expected piece_count of them");
	if (!options->overrides && options->override_count > 0)
		return hys_fail(error, HYS_INVALID_ARGUMENT, 0,
				"overrides is NULL, expected override_count of them");
	for (int32_t i = 0; i < options->piece_count; i++)
		HYS_TRY(check_piece(options, i, error));
	for (int32_t i = 0; i < options->override_count; i++)
		HYS_TRY(check_override(options, i, error));
	HYS_TRY(check_sources(options, error));
cleanup:
	return status;
}

/* ---- signature ---- */

static void hash_integer(uint64_t *hash, int64_t value)
{
	*hash = hys_hash(*hash, &value, sizeof(value));
}

static void hash_real(uint64_t *hash, double value)
{
	*hash = hys_hash(*hash, &value, sizeof(value));
}

static uint64_t signature_of(const struct hys_schedule_options *o)
{
	const int64_t integers[] = {o->steps,	    o->layers,	       o->groups,
				    o->topk_max,    o->block,	       o->coarse_block,
				    o->piece_count, o->override_count, o->share_every,
				    o->key_period,  o->feedback_period};
	const double reals[] = {o->recall_floor, o->overlap_floor, o->loss_limit,
				o->shrink,	 o->grow,	   o->smoothing};
	uint64_t hash = hys_hash_start;

	for (size_t i = 0; i < sizeof(integers) / sizeof(integers[0]); i++)
		hash_integer(&hash, integers[i]);
	for (size_t i = 0; i < sizeof(reals) / sizeof(reals[0]); i++)
		hash_real(&hash, reals[i]);
	for (int32_t i = 0; i < o->piece_count; i++) {
		const struct hys_schedule_piece *p = &o->pieces[i];

		hash_integer(&hash, p->step);
		hash_integer(&hash, (int64_t)p->phase);
		hash_integer(&hash, p->topk);
		hash_integer(&hash, p->topk_end);
		hash_real(&hash, p->density);
		hash_real(&hash, p->density_end);
		hash_integer(&hash, p->loss_row_stride);
	}
	for (int32_t i = 0; i < o->override_count; i++) {
		const struct hys_schedule_override *v = &o->overrides[i];

		hash_integer(&hash, v->layer_first);
		hash_integer(&hash, v->layer_count);
		hash_integer(&hash, v->group_first);
		hash_integer(&hash, v->group_count);
		hash_real(&hash, v->factor);
		hash_integer(&hash, v->topk_least);
		hash_integer(&hash, v->topk_most);
	}
	for (int32_t l = 0; o->source_layers && l < o->layers; l++)
		hash_integer(&hash, o->source_layers[l]);
	return hash;
}

/* ---- making ---- */

/* A copy of `count` elements; NULL for none. */
static hys_status copy_array(const void **array, int64_t count, size_t size,
			     struct hys_error *error)
{
	void *copy;

	if (!*array)
		return HYS_OK;
	copy = hys_alloc_array(&hys_allocator_default, count, size);
	if (!copy) {
		*array = NULL;
		return hys_fail(error, HYS_OUT_OF_MEMORY, 0, "no memory for a schedule");
	}
	memcpy(copy, *array, (size_t)count * size);
	*array = copy;
	return HYS_OK;
}

static int64_t first_sparse(const struct hys_schedule_options *options)
{
	for (int32_t i = 0; i < options->piece_count; i++)
		if (options->pieces[i].phase != HYS_PHASE_DENSE)
			return options->pieces[i].step;
	return options->steps;
}

static hys_status copy_options(struct hys_schedule_options *own, struct hys_error *error)
{
	const void *pieces = own->pieces, *overrides = own->overrides;
	const void *sources = own->source_layers;
	hys_status status;

	/* Whatever fails, what is left is this schedule's or NULL. */
	own->pieces = NULL;
	own->overrides = NULL;
	own->source_layers = NULL;
	HYS_TRY(copy_array(&pieces, own->piece_count, sizeof(*own->pieces), error));
	own->pieces = pieces;
	HYS_TRY(copy_array(&overrides, own->override_count, sizeof(*own->overrides), error));
	own->overrides = overrides;
	HYS_TRY(copy_array(&sources, own->layers, sizeof(*own->source_layers), error));
	own->source_layers = sources;
cleanup:
	return status;
}

static hys_status start_learning(struct hys_schedule *schedule, struct hys_error *error)
{
	const int32_t layers = schedule->options.layers, groups = schedule->options.groups;

	schedule->learned = hys_alloc_array(&hys_allocator_default, (int64_t)layers * groups,
					    sizeof(*schedule->learned));
	schedule->learned_layers =
		hys_alloc_array(&hys_allocator_default, layers, sizeof(*schedule->learned_layers));
	if (!schedule->learned || !schedule->learned_layers)
		return hys_fail(error, HYS_OUT_OF_MEMORY, 0, "no memory for a schedule");
	for (int64_t i = 0; i < (int64_t)layers * groups; i++)
		schedule->learned[i] = (struct hys_learned){
			.cleared = schedule->first_sparse, .boost = 1, .recall = -1, .loss = -1};
	for (int32_t l = 0; l < layers; l++)
		schedule->learned_layers[l].overlap = -1;
	return HYS_OK;
}

hys_status hys_schedule_create(const struct hys_schedule_options *options,
			       struct hys_schedule **schedule, struct hys_error *error)
{
	struct hys_schedule *made = NULL;
	struct hys_schedule_options whole;
	hys_status status;

	HYS_TRY(hys_check_struct(options, sizeof(*options), "options", error));
	if (!schedule)
		return hys_fail(error, HYS_INVALID_ARGUMENT, 0, "schedule is NULL");
	whole = *options;
	HYS_TRY(check_options(&whole, error));
	made = hys_alloc(&hys_allocator_default, sizeof(*made));
	if (!made)
		return hys_fail(error, HYS_OUT_OF_MEMORY, 0, "no memory for a schedule");
	made->options = whole;
	HYS_TRY(copy_options(&made->options, error));
	made->first_sparse = first_sparse(&made->options);
	made->signature = signature_of(&made->options);
	HYS_TRY(start_learning(made, error));
	*schedule = made;
	made = NULL;
cleanup:
	hys_schedule_destroy(made);
	return status;
}

void hys_schedule_destroy(struct hys_schedule *schedule)
{
	if (!schedule)
		return;
	hys_free(&hys_allocator_default, (void *)(uintptr_t)schedule->options.pieces);
	hys_free(&hys_allocator_default, (void *)(uintptr_t)schedule->options.overrides);
	hys_free(&hys_allocator_default, (void *)(uintptr_t)schedule->options.source_layers);
	hys_free(&hys_allocator_default, schedule->learned);
	hys_free(&hys_allocator_default, schedule->learned_layers);
	hys_free(&hys_allocator_default, schedule);
}
