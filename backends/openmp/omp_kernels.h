/* omp_kernels.h - the functions that the kernel table names. What a row of the
 * table stands for is in kernel->detail, a struct omp_isa. */
#ifndef HYS_OMP_KERNELS_H
#define HYS_OMP_KERNELS_H

#include "backend.h"

/* omp_select.c, omp_select_coarse.c: panels of packed keys. */
int64_t omp_select_workspace(const struct hys_kernel *kernel, const struct hys_device *device,
			     const struct hys_size *size);
hys_status omp_select_run(const struct hys_kernel *kernel, struct hys_stream *stream,
			  void *instance, const struct hys_call *call, struct hys_error *error);
/* Whether index_q and index_k are bf16, for rows that multiply that as it is. */
bool omp_select_halves(const struct hys_kernel *kernel, const struct hys_device *device,
		       const struct hys_problem *problem, char reason[HYS_REASON_SIZE]);

/* omp_select_ref.c: plain loops, all methods. */
int64_t omp_select_ref_workspace(const struct hys_kernel *kernel, const struct hys_device *device,
				 const struct hys_size *size);
hys_status omp_select_ref_run(const struct hys_kernel *kernel, struct hys_stream *stream,
			      void *instance, const struct hys_call *call, struct hys_error *error);

/* omp_pool.c, omp_pool_backward.c */
hys_status omp_pool_run(const struct hys_kernel *kernel, struct hys_stream *stream, void *instance,
			const struct hys_call *call, struct hys_error *error);
int64_t omp_pool_backward_workspace(const struct hys_kernel *kernel,
				    const struct hys_device *device, const struct hys_size *size);
hys_status omp_pool_backward_run(const struct hys_kernel *kernel, struct hys_stream *stream,
				 void *instance, const struct hys_call *call,
				 struct hys_error *error);

/* omp_merge.c */
hys_status omp_merge_run(const struct hys_kernel *kernel, struct hys_stream *stream, void *instance,
			 const struct hys_call *call, struct hys_error *error);

/* omp_fidelity.c */
int64_t omp_fidelity_workspace(const struct hys_kernel *kernel, const struct hys_device *device,
			       const struct hys_size *size);
hys_status omp_fidelity_run(const struct hys_kernel *kernel, struct hys_stream *stream,
			    void *instance, const struct hys_call *call, struct hys_error *error);

/* omp_attention.c: tiles of heads and gathered key rows, online softmax. */
int64_t omp_attention_forward_workspace(const struct hys_kernel *kernel,
					const struct hys_device *device,
					const struct hys_size *size);
hys_status omp_attention_forward_run(const struct hys_kernel *kernel, struct hys_stream *stream,
				     void *instance, const struct hys_call *call,
				     struct hys_error *error);

/* omp_attention_backward.c: shares of a tile of rows go through memory, then
 * threads that own disjoint key rows collect them. */
int64_t omp_attention_backward_workspace(const struct hys_kernel *kernel,
					 const struct hys_device *device,
					 const struct hys_size *size);
hys_status omp_attention_backward_run(const struct hys_kernel *kernel, struct hys_stream *stream,
				      void *instance, const struct hys_call *call,
				      struct hys_error *error);

/* omp_attention_ref.c: plain loops over doubles. */
int64_t omp_attention_forward_ref_workspace(const struct hys_kernel *kernel,
					    const struct hys_device *device,
					    const struct hys_size *size);
hys_status omp_attention_forward_ref_run(const struct hys_kernel *kernel, struct hys_stream *stream,
					 void *instance, const struct hys_call *call,
					 struct hys_error *error);
int64_t omp_attention_backward_ref_workspace(const struct hys_kernel *kernel,
					     const struct hys_device *device,
					     const struct hys_size *size);
hys_status omp_attention_backward_ref_run(const struct hys_kernel *kernel,
					  struct hys_stream *stream, void *instance,
					  const struct hys_call *call, struct hys_error *error);

/* omp_loss.c: the same two phases as the backward pass. */
int64_t omp_indexer_loss_workspace(const struct hys_kernel *kernel, const struct hys_device *device,
				   const struct hys_size *size);
hys_status omp_indexer_loss_run(const struct hys_kernel *kernel, struct hys_stream *stream,
				void *instance, const struct hys_call *call,
				struct hys_error *error);

/* omp_loss_ref.c: plain loops over doubles, one thread. */
int64_t omp_indexer_loss_ref_workspace(const struct hys_kernel *kernel,
				       const struct hys_device *device,
				       const struct hys_size *size);
hys_status omp_indexer_loss_ref_run(const struct hys_kernel *kernel, struct hys_stream *stream,
				    void *instance, const struct hys_call *call,
				    struct hys_error *error);

#endif
