/* ocl_loss.h - the indexer loss. */
#ifndef HYS_OCL_LOSS_H
#define HYS_OCL_LOSS_H

#include "ocl_internal.h"

extern const struct hys_ocl_products hys_ocl_loss_cpu, hys_ocl_loss_tile, hys_ocl_loss_ref;

int64_t hys_ocl_loss_workspace(const struct hys_kernel *kernel, const struct hys_device *device,
			       const struct hys_size *size);
hys_status hys_ocl_loss(const struct hys_kernel *kernel, struct hys_stream *stream, void *instance,
			const struct hys_call *call, struct hys_error *error);

/* By wgmma: ocl_loss_gather.c. */
extern const struct hys_ocl_products hys_ocl_loss_wgmma;
bool hys_ocl_loss_gather_applicable(const struct hys_kernel *kernel,
				    const struct hys_device *device,
				    const struct hys_problem *problem,
				    char reason[HYS_REASON_SIZE]);
int64_t hys_ocl_loss_gather_workspace(const struct hys_kernel *kernel,
				      const struct hys_device *device, const struct hys_size *size);
hys_status hys_ocl_loss_gather(const struct hys_kernel *kernel, struct hys_stream *stream,
			       void *instance, const struct hys_call *call,
			       struct hys_error *error);

#endif
