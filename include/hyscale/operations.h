/* hyscale/operations.h - select, attend, learn.
 *
 * Every operation checks its arguments, enqueues and returns. It allocates
 * nothing and writes nothing when a check fails. Outputs belong to the caller
 * and must not overlap each other or an input. Tensors that are left all zero
 * are absent.
 *
 * Rows: `row_first` and `row_count` name a range of the batch's rows
 * (row_count 0 = all from row_first on). A tensor whose first dimension is
 * "rows" has either one entry per row of the batch, of which the range is
 * used, or exactly row_count entries, which are the range.
 *
 * With a plan of several devices tensors are host memory or replicated buffers
 * (hys_buffer_replicate; else HYS_UNSUPPORTED); every device computes a share
 * of the rows.
 *
 * Statuses of all: HYS_OK, HYS_INVALID_ARGUMENT, HYS_UNSUPPORTED,
 * HYS_WORKSPACE_TOO_SMALL, HYS_FORKED, or the exec's earlier failure. */
#ifndef HYSCALE_OPERATIONS_H
#define HYSCALE_OPERATIONS_H

#include "batch.h"
#include "exec.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Chooses, for each row and group, the K best entries (or blocks).
 * Ascending, left packed, then -1; ties go to the smaller index. An index is an
 * entry's number in the batch; a block goes by that of its first entry. */
struct hys_select_args {
	size_t struct_size; /* sizeof(struct hys_select_args) */
	int64_t row_first, row_count;
	hys_method method;		 /* default: the problem's */
	const int32_t *topk;		 /* [U], each 1..topk_max; NULL = topk_max; read
				during the call */
	struct hys_tensor index_q;	 /* [rows,HI,DI] */
	struct hys_tensor index_k;	 /* [E,DI] */
	struct hys_tensor index_w;	 /* f32 [rows,HI]; absent = 1 */
	struct hys_tensor index_q_scale; /* f32 [rows,HI], with f8 only */
	struct hys_tensor index_k_scale; /* f32 [E], with f8 only */
	/* outputs; K here is the tensor's own last size, >= every topk[u] */
	struct hys_tensor indices;  /* i32 [rows,U,K] */
	struct hys_tensor counts;   /* i32 [rows,U], optional */
	struct hys_tensor scores;   /* f32 [rows,U,K], of the chosen, 0 behind
				       counts; optional */
	struct hys_tensor kth;	    /* f32 [rows,U], lowest score among the
				       chosen that were not forced, -inf when
				       fewer than topk were visible; optional */
	struct hys_tensor nan_rows; /* i32 [1], rows with a NaN score; optional */
};

HYS_API hys_status hys_select(struct hys_exec *exec, struct hys_batch *batch,
			      const struct hys_select_args *args, struct hys_error *error);

/* Softmax attention over the rows of the indices, the window and the first
 * rows (or all visible rows, dense), a second source and a sink. */
struct hys_attention_args {
	size_t struct_size; /* sizeof(struct hys_attention_args) */
	int64_t row_first, row_count;
	struct hys_tensor q;	    /* [rows,H,D] */
	struct hys_tensor k;	    /* [S,G,D] */
	struct hys_tensor v;	    /* [S,G,V]; absent = k[..., :V] */
	struct hys_tensor indices;  /* i32 [rows,U,K]; absent = none */
	struct hys_tensor sink;	    /* f32 [H], optional */
	struct hys_tensor window_k; /* [S2,G,D], optional */
	struct hys_tensor window_v; /* [S2,G,V]; absent = window_k[..., :V] */
	struct hys_tensor o;	    /* out [rows,H,V], type of q */
	struct hys_tensor lse;	    /* out f32 [rows,H], natural log, without sink;
				  optional */
};

HYS_API hys_status hys_attention_forward(struct hys_exec *exec, struct hys_batch *batch,
					 const struct hys_attention_args *args,
					 struct hys_error *error);

/* Add to the gradients instead of writing them. */
#define HYS_GRAD_ACCUMULATE 1u
/* hys_attention_backward: add to those that are sums over rows, and write dq. */
#define HYS_GRAD_ACCUMULATE_KEYS 2u

/* Gradients have the type of their tensor, or f32. Each is optional. Rows that
 * were never read get 0 (or stay, when accumulating). Same bits every run. */
struct hys_attention_grad_args {
	size_t struct_size; /* sizeof(struct hys_attention_grad_args) */
	int64_t row_first, row_count;
	uint32_t flags;		   /* HYS_GRAD_* */
	struct hys_tensor q, k, v; /* as forward */
	struct hys_tensor indices;
	struct hys_tensor sink;
	struct hys_tensor window_k, window_v;
	struct hys_tensor o; /* of the forward pass */
	struct hys_tensor lse;
	struct hys_tensor grad_o;    /* [rows,H,V], type of q */
	struct hys_tensor dq;	     /* out [rows,H,D] */
	struct hys_tensor dk;	     /* out [S,G,D]; both parts when v is shared */
	struct hys_tensor dv;	     /* out [S,G,V]; not with a shared v */
	struct hys_tensor dsink;     /* out f32 [H] */
	struct hys_tensor dwindow_k; /* out [S2,G,D] */
	struct hys_tensor dwindow_v; /* out [S2,G,V] */
};

HYS_API hys_status hys_attention_backward(struct hys_exec *exec, struct hys_batch *batch,
					  const struct hys_attention_grad_args *args,
					  struct hys_error *error);

typedef enum hys_reduction { HYS_REDUCTION_MEAN = 0, HYS_REDUCTION_SUM } hys_reduction;

#define HYS_LOSS_ACCUMULATE 1u /* gradients and loss are added to */
#define HYS_LOSS_DENSE 2u      /* the set is every visible entry (warm-up) */

/* coefficient * reduce over non-empty (row, group) of
 * KL(teacher || softmax(score over the set)), and its gradients. The teacher
 * is the attention's share of each index, summed over the heads of the group
 * and normalised over the set; q and k get no gradient. */
struct hys_loss_args {
	size_t struct_size; /* sizeof(struct hys_loss_args) */
	int64_t row_first, row_count;
	uint32_t flags; /* HYS_LOSS_* */
	hys_reduction reduction;
	double coefficient; /* 0 = 1 */
	/* What `mean` divides by; 0 = the non-empty (row, group) of this call.
	 * Callers who stream rows pass the number of all. */
	double divisor;
	/* Only batch rows t with t % row_stride == row_offset count; 0 = all.
	 * `sum` is multiplied by the stride. Gradients of the other rows are 0
	 * (or stay, when accumulating), their teacher_out is 0. */
	int32_t row_stride, row_offset;
	struct hys_tensor index_q;    /* [rows,HI,DI], not f8 */
	struct hys_tensor index_k;    /* [E,DI] */
	struct hys_tensor index_w;    /* f32 [rows,HI]; absent = 1 */
	struct hys_tensor indices;    /* i32 [rows,U,K]; not with DENSE */
	struct hys_tensor q;	      /* [rows,H,D]; not with teacher_in */
	struct hys_tensor k;	      /* [S,G,D]; not with teacher_in */
	struct hys_tensor lse;	      /* f32 [rows,H]; absent = over the set */
	struct hys_tensor sink;	      /* f32 [H], optional */
	struct hys_tensor scores;     /* f32 [rows,U,K] from select: saves
					 scoring again; optional */
	struct hys_tensor teacher_in; /* f32 [rows,U,K], need not be normalised;
					 not with DENSE */
	/* outputs, each optional, one at least */
	struct hys_tensor loss;	       /* out f32 [1] */
	struct hys_tensor d_index_q;   /* out [rows,HI,DI], own type or f32 */
	struct hys_tensor d_index_k;   /* out [E,DI], own type or f32 */
	struct hys_tensor d_index_w;   /* out f32 [rows,HI] */
	struct hys_tensor teacher_out; /* out f32 [rows,U,K], not normalised, so
					  that ranks can add it up; not with
					  DENSE */
};

HYS_API hys_status hys_indexer_loss(struct hys_exec *exec, struct hys_batch *batch,
				    const struct hys_loss_args *args, struct hys_error *error);

/* How many (row, group) of such a call are not empty: what `mean` divides by,
 * for callers who share rows between calls. `indices` and `teacher_in` must be
 * host memory. Computed at once. */
HYS_API hys_status hys_loss_groups(struct hys_exec *exec, struct hys_batch *batch,
				   const struct hys_loss_args *args, int64_t *groups,
				   struct hys_error *error);

typedef enum hys_pooling {
	HYS_POOL_MEAN = 0,   /* y[e] = mean of x over the unit's rows */
	HYS_POOL_GATED,	     /* y[e,c] = sum_i softmax_i(gate[i,c] + bias[i,c])
			      * x[i,c] over the unit's rows */
	HYS_POOL_OVERLAPPED, /* DeepSeek-V4: x, gate and bias are 2C wide; the
				first half of the previous unit's rows and the
				second half of the own rows share one softmax;
				a document's first unit has only its own */
	HYS_POOL_BOUNDS	     /* summaries for exact skipping, see outputs */
} hys_pooling;

typedef enum hys_pool_unit {
	HYS_POOL_ENTRIES = 0, /* scoring.pool key rows into one entry */
	HYS_POOL_BLOCKS	      /* choosing.coarse_block entries into one block;
				 only complete blocks exist */
} hys_pool_unit;

/* Output rows ("units") are those of the whole batch: E entries, or
 * hys_batch_coarse_blocks(); row_first and row_count count in units. */
struct hys_pool_args {
	size_t struct_size; /* sizeof(struct hys_pool_args) */
	int64_t row_first, row_count;
	hys_pooling pooling;
	hys_pool_unit unit;
	struct hys_tensor x;	/* [N,C] or [N,2C]; N = S or E */
	struct hys_tensor gate; /* like x; gated and overlapped only */
	struct hys_tensor bias; /* f32 [size,C] or [size,2C], optional; gated and
				   overlapped only */
	struct hys_tensor y;	/* out [units,C], type of x or f32; for bounds
				   the centre: the mean, optional */
	/* bounds only, each optional */
	struct hys_tensor norm;		   /* out f32 [units], largest Euclidean norm, NaN
				     if any element is */
	struct hys_tensor radius;	   /* out f32 [units], largest distance from y */
	struct hys_tensor lowest, highest; /* out f32 [units,C] */
};

HYS_API hys_status hys_pool(struct hys_exec *exec, struct hys_batch *batch,
			    const struct hys_pool_args *args, struct hys_error *error);

/* Backward of mean, gated and overlapped pooling. Rows are those of x: a range
 * of N. Rows of x that no unit covers get 0. */
struct hys_pool_grad_args {
	size_t struct_size; /* sizeof(struct hys_pool_grad_args) */
	int64_t row_first, row_count;
	uint32_t flags; /* HYS_GRAD_ACCUMULATE */
	hys_pooling pooling;
	hys_pool_unit unit;
	struct hys_tensor x; /* as forward, all N rows */
	struct hys_tensor gate;
	struct hys_tensor bias;
	struct hys_tensor grad_y; /* [units,C], all units */
	struct hys_tensor dx;	  /* out [rows of x], type of x or f32 */
	struct hys_tensor dgate;  /* out, like gate or f32, optional */
	struct hys_tensor dbias;  /* out f32 like bias, optional */
};

HYS_API hys_status hys_pool_backward(struct hys_exec *exec, struct hys_batch *batch,
				     const struct hys_pool_grad_args *args,
				     struct hys_error *error);

/* Combines attention over two disjoint key sets, exactly:
 * lse = logaddexp(lse_a, lse_b), o = exp(lse_a - lse) o_a + exp(lse_b - lse)
 * o_b. Without sink: add a sink to neither, or scale afterwards. */
struct hys_merge_args {
	size_t struct_size; /* sizeof(struct hys_merge_args) */
	int64_t row_first, row_count;
	struct hys_tensor o_a, o_b;	/* [rows,H,V] */
	struct hys_tensor lse_a, lse_b; /* f32 [rows,H] */
	struct hys_tensor o;		/* out [rows,H,V], type of q */
	struct hys_tensor lse;		/* out f32 [rows,H], optional */
};

HYS_API hys_status hys_merge(struct hys_exec *exec, struct hys_batch *batch,
			     const struct hys_merge_args *args, struct hys_error *error);

/* Vectors to f8 with a scale each, as hys_select takes them: x is about f8 *
 * scale. A vector's scale is the smallest power of two, 2^-100 at least, by
 * which no finite element exceeds 448, or 1 when all are 0; elements are
 * rounded to nearest, ties to even, infinite ones become 448 with their sign,
 * NaN stays. The same bits on every device, but for the sign of NaN. */
struct hys_quantize_args {
	size_t struct_size;	 /* sizeof(struct hys_quantize_args) */
	struct hys_tensor x;	 /* f32, f16 or bf16, [N,HI,DI] or [N,DI] */
	struct hys_tensor f8;	 /* out f8e4m3, of x's shape */
	struct hys_tensor scale; /* out f32 [N,HI] or [N] */
};

/* Needs no batch, and no operation of the plan: an exec of one device, made
 * with HYS_EXEC_QUANTIZE. Tensors lie in buffers of the device, or in host
 * memory where the device is a processor of the openmp backend. In the exec's
 * order. HYS_UNSUPPORTED also with several devices, without the flag, and for
 * host memory elsewhere. */
HYS_API hys_status hys_quantize(struct hys_exec *exec, const struct hys_quantize_args *args,
				struct hys_error *error);

/* How much of dense attention a selection captures, on sampled rows (batch
 * rows t with t % row_stride == row_offset); the others are not written.
 * Shares are of dense softmax attention over all visible rows, averaged over
 * the heads of a group. O(S) memory per thread. */
struct hys_fidelity_args {
	size_t struct_size; /* sizeof(struct hys_fidelity_args) */
	int64_t row_first, row_count;
	int32_t row_stride, row_offset; /* stride 0 = 1 */
	double target_mass;		/* of topk_needed; 0 = 0.95 */
	struct hys_tensor q;		/* [rows,H,D] */
	struct hys_tensor k;		/* [S,G,D] */
	struct hys_tensor indices;	/* i32 [rows,U,K], the selection */
	struct hys_tensor reference;	/* i32 [rows,U,K2], exact selection;
					for recall */
	struct hys_tensor mass;		/* out f32 [rows,U], window and first rows
				     included; optional */
	struct hys_tensor recall;	/* out f32 [rows,U], share of reference found
				     in indices, 1 when empty; optional */
	struct hys_tensor topk_needed;	/* out i32 [rows,U], fewest keys, by true
					  mass, that reach the target; optional */
};

HYS_API hys_status hys_fidelity(struct hys_exec *exec, struct hys_batch *batch,
				const struct hys_fidelity_args *args, struct hys_error *error);

#ifdef __cplusplus
}
#endif
#endif
