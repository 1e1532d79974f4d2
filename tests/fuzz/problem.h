/* Random problems for fuzzers: numbers out of a fuzzer's bytes, and a subject on every kernel row of the
 * processor, against the oracle and against itself with another number of threads. */
#ifndef HYS_FUZZ_PROBLEM_H
#define HYS_FUZZ_PROBLEM_H

#include "subject.h"

struct problem_bytes {
	const uint8_t *at;
	size_t left;
	uint64_t seed; /* of all bytes */
	int32_t q_lengths[5], k_lengths[5];
};

void problem_begin(struct problem_bytes *bytes, const uint8_t *data, size_t size);
/* [0, choices); 0 when the bytes are used up. */
int32_t problem_pick(struct problem_bytes *bytes, int32_t choices);
bool problem_flag(struct problem_bytes *bytes);
/* [1, most], now and then at the edge of a tile. */
int32_t problem_size(struct problem_bytes *bytes, int32_t most);
/* The bits of `features`, each or not. */
unsigned problem_features(struct problem_bytes *bytes, unsigned features);
/* Rows and keys: one document or several, of which some are empty. `bytes` must live as long. */
struct visible_spec problem_visible(struct problem_bytes *bytes);
/* Ranges need three rows, and are whole tensors' or their own. */
unsigned problem_range(const struct visible_spec *visible, unsigned features, unsigned range,
		       unsigned range_cut);
/* The name, which the operands' seed is made of. */
void problem_name(struct suite_case *about, const struct problem_bytes *bytes);

/* Aborts, with what is wrong on stderr, when any kernel row is. A problem that the library refuses is left
 * alone. */
void problem_try(const struct subject *subject, struct problem_bytes *bytes);

#endif
