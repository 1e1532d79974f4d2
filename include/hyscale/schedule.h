/* hyscale/schedule.h - when to choose how, over a whole training run.
 *
 * A schedule answers, for a step and a layer: dense, coarse, coarse to fine or
 * exact; how many keys; choose anew or reuse; which rows enter the indexer's
 * loss; whether this is a key step, which refines. It uses no device: what it
 * knows are its options and the feedback that it is given, and the same of
 * both give the same decisions on any machine. Its state is saved and restored
 * as bytes. One thread at a time; deciding alone may be done by many. */
#ifndef HYSCALE_SCHEDULE_H
#define HYSCALE_SCHEDULE_H

#include "operations.h"

#ifdef __cplusplus
extern "C" {
#endif

struct hys_schedule;

typedef enum hys_phase {
	HYS_PHASE_DENSE = 0, /* attend to everything, learn from everything */
	HYS_PHASE_COARSE,    /* whole coarse blocks */
	HYS_PHASE_COARSE_TO_FINE,
	HYS_PHASE_EXACT,
	HYS_PHASE_COUNT
} hys_phase;

/* "dense", "coarse", "coarse_to_fine", "exact"; "unknown" otherwise. */
HYS_API const char *hys_phase_name(hys_phase phase);

/* From `step` to the next piece's step, or to the end of the run. */
struct hys_schedule_piece {
	int64_t step; /* 0 in the first piece, then ascending */
	hys_phase phase;
	/* Entries that a row keeps, at the piece's first step and at its end,
	 * in a straight line between them; 0 in `topk_end` = topk. Not read in
	 * a dense piece. Instead of `topk`, a share of the entries that there
	 * are, in (0, 1]. */
	int32_t topk, topk_end;
	double density, density_end;
	int32_t loss_row_stride; /* one row in so many enters the loss; 0 = 1 */
};

/* Other numbers for some layers and head groups. Of several that apply, the
 * factors multiply and the tightest limits hold. */
struct hys_schedule_override {
	int32_t layer_first, layer_count; /* count 0 = to the last */
	int32_t group_first, group_count; /* the same */
	double factor;			  /* of K; 0 = 1 */
	int32_t topk_least, topk_most;	  /* entries; 0 = no limit */
};

struct hys_schedule_options {
	size_t struct_size; /* sizeof(struct hys_schedule_options) */
	int64_t steps;	    /* of the run */
	int32_t layers;
	int32_t groups;	      /* U; 0 = 1 */
	int32_t topk_max;     /* most entries of any decision: the plan's topk_max
				 times block; 0 = 2048 */
	int32_t block;	      /* entries of one index; 0 = 1 */
	int32_t coarse_block; /* entries of one index in a coarse phase; 0 = block */
	const struct hys_schedule_piece *pieces;
	int32_t piece_count;
	const struct hys_schedule_override *overrides; /* NULL = none */
	int32_t override_count;
	/* Layers that use the choice of an earlier one: every share_every-th
	 * layer chooses for itself and those behind it (0 = all do), or
	 * source_layers[l] <= l says whose choice layer l uses. */
	int32_t share_every;
	const int32_t *source_layers; /* [layers], NULL = share_every */
	/* Every so many steps one phase finer is used; 0 = never. */
	int64_t key_period;
	/* Feedback. 0 in recall_floor = none is asked for and none changes
	 * anything. K goes down only after feedback at or above the floor, by
	 * `shrink` at most each time, and up by `grow` after one below it. */
	double recall_floor;
	double overlap_floor;	 /* below it a layer goes one phase finer; 0 = never */
	double loss_limit;	 /* K does not go down above it; 0 = not looked at */
	double shrink, grow;	 /* 0 = 0.8 and 1.25 */
	double smoothing;	 /* weight of the newest feedback; 0 = 0.5 */
	int64_t feedback_period; /* steps; 0 = key_period, or 100 */
};

/* Copies all of the options. HYS_OK, HYS_INVALID_ARGUMENT (message names the
 * field), HYS_OUT_OF_MEMORY. */
HYS_API hys_status hys_schedule_create(const struct hys_schedule_options *options,
				       struct hys_schedule **schedule, struct hys_error *error);
/* NULL is fine. */
HYS_API void hys_schedule_destroy(struct hys_schedule *schedule);

typedef enum hys_pass {
	HYS_PASS_FORWARD = 0,
	HYS_PASS_RECOMPUTE, /* the same layer again, for its backward */
	HYS_PASS_BACKWARD,
	HYS_PASS_COUNT
} hys_pass;

struct hys_schedule_question {
	size_t struct_size; /* sizeof(struct hys_schedule_question) */
	int64_t step;
	int64_t data; /* number of the micro-batch, chosen by the caller */
	int64_t keys; /* entries of its longest row; needed with a density */
	int32_t layer;
	hys_pass pass;
};

typedef enum hys_source {
	HYS_SOURCE_NONE = 0, /* dense: no selection is needed */
	HYS_SOURCE_SELECT,   /* call hys_select */
	HYS_SOURCE_REUSE     /* the selection of source_layer for source_data */
} hys_source;

#define HYS_SCHEDULE_GROUPS_MAX 256

/* Fills the fields of the same names in the args structs. */
struct hys_decision {
	hys_phase phase;
	hys_source source;
	int32_t source_layer;		       /* the layer itself when it selects */
	int64_t source_data;		       /* always the question's: other data is never used */
	hys_method method;		       /* of hys_select_args; default when dense */
	int32_t granularity;		       /* entries that one index stands for */
	int32_t topk[HYS_SCHEDULE_GROUPS_MAX]; /* [U], indices; 0 when dense */
	int32_t key_step;		       /* 1 on key steps */
	int32_t measure;		       /* 1 when feedback is wanted of this step */
	uint32_t loss_flags;		       /* HYS_LOSS_DENSE or 0 */
	int32_t row_stride, row_offset;	       /* of the loss; the offset moves on each step */
};

/* HYS_OK or HYS_INVALID_ARGUMENT; changes nothing, so it may be asked again
 * and by many threads. */
HYS_API hys_status hys_schedule_decide(const struct hys_schedule *schedule,
				       const struct hys_schedule_question *question,
				       struct hys_decision *decision, struct hys_error *error);

/* What was seen. A value below 0 was not measured. */
struct hys_schedule_feedback {
	size_t struct_size; /* sizeof(struct hys_schedule_feedback) */
	int64_t step;
	int64_t keys; /* as in the question */
	int32_t layer;
	int32_t group;	/* -1 = all groups of the layer */
	double recall;	/* teacher's mass captured, of what the best choice of as
			    many keys captures; 0..1, hys_fidelity's mass */
	double overlap; /* with the exact choice; 0..1, hys_fidelity's recall */
	double loss;
};

/* HYS_OK, or HYS_INVALID_ARGUMENT: out of range, NaN. */
HYS_API hys_status hys_schedule_feedback(struct hys_schedule *schedule,
					 const struct hys_schedule_feedback *feedback,
					 struct hys_error *error);

/* State as bytes, little-endian, the same on every machine; like snprintf,
 * answers the length needed and writes nothing when `size` is less. Loading
 * needs a schedule made with the same options. HYS_FORMAT (not a state, cut
 * short, changed), HYS_VERSION_MISMATCH (other version of the format or other
 * options); the schedule is untouched then. */
HYS_API size_t hys_schedule_save(const struct hys_schedule *schedule, void *bytes, size_t size);
HYS_API hys_status hys_schedule_load(struct hys_schedule *schedule, const void *bytes, size_t size,
				     struct hys_error *error);

/* Useful work of all layers, attention forward and backward, and the seconds
 * that the plan's devices are predicted to take for it: NaN when the plan
 * lacks one of the operations. */
struct hys_schedule_cost {
	double select_flops, attend_flops, loss_flops;
	double select_s, attend_s, loss_s;
};

typedef enum hys_run {
	HYS_RUN_SCHEDULED = 0,
	HYS_RUN_EXACT, /* every layer chooses anew and exactly, as many keys */
	HYS_RUN_DENSE, /* dense throughout */
	HYS_RUN_COUNT
} hys_run;

/* Prices steps [step_first, step_first + step_count) (count 0 = to the end),
 * for one causal document of the plan's rows_max last rows and keys_max keys,
 * K as in the options (feedback at or above the floor). The middles of up to
 * 64 stretches of each piece are summed.
 * HYS_OK, HYS_INVALID_ARGUMENT, HYS_FORKED. Thread safe. */
HYS_API hys_status hys_schedule_price(const struct hys_schedule *schedule,
				      const struct hys_plan *plan, hys_run run, int64_t step_first,
				      int64_t step_count, struct hys_schedule_cost *cost,
				      struct hys_error *error);

/* The run as a table for people; `plan` prices it, NULL = no prices. Like
 * snprintf, answers the length needed without the terminator. */
HYS_API size_t hys_schedule_describe(const struct hys_schedule *schedule,
				     const struct hys_plan *plan, char *text, size_t size);

#ifdef __cplusplus
}
#endif
#endif
