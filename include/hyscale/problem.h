/* hyscale/problem.h - the mathematics: heads, dimensions, types, method.
 *
 * A problem is a plain struct. Zero means "default" in every field, so
 * `struct hys_problem p = { sizeof p };` plus the fields that matter is
 * enough. A part whose `heads` is 0 is not used by the plan. */
#ifndef HYSCALE_PROBLEM_H
#define HYSCALE_PROBLEM_H

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum hys_activation { HYS_ACTIVATION_RELU = 0, HYS_ACTIVATION_NONE } hys_activation;

typedef enum hys_method {
	HYS_METHOD_DEFAULT = 0, /* exact in a problem, the problem's in a call */
	HYS_METHOD_EXACT,
	HYS_METHOD_COARSE,
	HYS_METHOD_COARSE_TO_FINE
} hys_method;

/* The indexer. score(t,u,s) = sum over index heads j of group u of
 * w[t,j] * activation(scale * <index_q[t,j], index_k[s]>). */
struct hys_scoring {
	int32_t heads;	 /* HI, index heads; 0 = no indexer */
	int32_t dim;	 /* DI */
	int32_t groups;	 /* U, default 1; divides heads and attending.heads */
	int32_t block;	 /* B, entries per selected block, default 1 */
	int32_t pool;	 /* r, key rows per entry, default 1 */
	hys_dtype dtype; /* of index_q and index_k: f32 f16 bf16 f8 */
	hys_activation activation;
	double scale; /* default 1/sqrt(dim) */
};

/* How entries are chosen. */
struct hys_choosing {
	int32_t topk_max;     /* K, the largest of any call; 0 = 2048 */
	int32_t first_blocks; /* always kept, count towards K */
	int32_t local_blocks; /* the last L up to the last visible entry */
	hys_method method;    /* default exact */
	int32_t coarse_block; /* entries per coarse block; 0 = no coarse pass */
	int32_t coarse_keep;  /* coarse blocks kept per row; 0 = 64 */
};

/* `dense`: every visible row is attended, indices are not read. */
#define HYS_ATTENDING_DENSE 1u

/* The attention itself. */
struct hys_attending {
	int32_t heads;	     /* H, query heads; 0 = no attention */
	int32_t kv_heads;    /* G, default 1; divides heads */
	int32_t head_dim;    /* D */
	int32_t value_dim;   /* V, default head_dim; V <= D when v is shared */
	int32_t granularity; /* g, key rows one index stands for; default
				scoring.block; with scoring.pool > 1 it must be
				1: an index then stands for its pool */
	int32_t window;	     /* last visible rows that are always attended */
	int32_t first;	     /* first visible rows that are always attended */
	hys_dtype dtype;     /* of q, k, v, o: f32 f16 bf16 */
	double scale;	     /* default 1/sqrt(head_dim) */
	double softcap;	     /* c of c*tanh(l/c); 0 = none */
	uint32_t flags;	     /* HYS_ATTENDING_* */
};

struct hys_problem {
	size_t struct_size; /* sizeof(struct hys_problem) */
	struct hys_scoring scoring;
	struct hys_choosing choosing;
	struct hys_attending attending;
};

/* Fills *problem with a published model's shapes: "dsv32", "glm5", "hyv4",
 * "msa", "nsa", "moba", "qsa", "dsv4-csa", "smollm2".
 * HYS_OK, or HYS_INVALID_ARGUMENT with the known names in the message.
 * Thread safe. */
HYS_API hys_status hys_problem_named(const char *name, struct hys_problem *problem,
				     struct hys_error *error);
/* The i-th known name, NULL past the end. Static storage. */
HYS_API const char *hys_problem_name(int32_t i);

/* Replaces every 0 that means "default" by its value and checks the whole:
 * HYS_OK, HYS_INVALID_ARGUMENT or HYS_UNSUPPORTED, *problem untouched on
 * failure. Plans do this themselves; it is here for tools. Thread safe. */
HYS_API hys_status hys_problem_complete(struct hys_problem *problem, struct hys_error *error);

#ifdef __cplusplus
}
#endif
#endif
