/* schedule.h - what the files of the schedule share. */
#ifndef HYS_SCHEDULE_INSIDE_H
#define HYS_SCHEDULE_INSIDE_H

#include "core.h"
#include "hyscale/schedule.h"

/* What feedback has taught about one layer and group. */
struct hys_learned {
	int64_t cleared;     /* K may be what the options say up to this step */
	double boost;	     /* factor on it, >= 1 */
	double recall, loss; /* running means; below 0 = none yet */
};

struct hys_learned_layer {
	double overlap; /* running mean; below 0 = none yet */
	int32_t raised; /* phases finer than the options say */
};

struct hys_schedule {
	struct hys_schedule_options options; /* completed; arrays are own copies */
	int64_t first_sparse;		     /* first step of the first piece that is not dense */
	uint64_t signature;		     /* of all options */
	struct hys_learned *learned;	     /* [layers][groups] */
	struct hys_learned_layer *learned_layers; /* [layers] */
};

/* The piece that holds `step`, and the step behind its last. */
const struct hys_schedule_piece *hys_schedule_piece_at(const struct hys_schedule *schedule,
						       int64_t step, int64_t *end);
/* Entries that the options alone say, factors included, before limits and
 * rounding; 0 in a dense piece. */
double hys_schedule_wish(const struct hys_schedule *schedule, int64_t step, int32_t layer,
			 int32_t group, int64_t keys);
/* The same within the limits, rounded up. */
int64_t hys_schedule_target(const struct hys_schedule *schedule, int64_t step, int32_t layer,
			    int32_t group, int64_t keys);
/* The same with what was learned. */
int64_t hys_schedule_entries(const struct hys_schedule *schedule, int64_t step, int32_t layer,
			     int32_t group, int64_t keys);
/* `finer` phases up from `phase`; dense stays. */
hys_phase hys_phase_finer(hys_phase phase, int32_t finer);
bool hys_schedule_key_step(const struct hys_schedule *schedule, int64_t step);
/* The layer whose choice `layer` uses. */
int32_t hys_schedule_source(const struct hys_schedule *schedule, int32_t layer);
/* Entries that one index of the phase stands for. */
int32_t hys_schedule_granularity(const struct hys_schedule *schedule, hys_phase phase);

#endif
