/* omp_attention.h - attention and the indexer loss, as the kernel table names
 * them. The instruction set is kernel->detail; the ref rows use its
 * conversions only. */
#ifndef HYS_OMP_ATTENTION_H
#define HYS_OMP_ATTENTION_H

#include "backend.h"

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
