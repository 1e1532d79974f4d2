/* ocl_kernels.c - the OpenCL backend's kernels, per op the preferred one first. */
#include "ocl_attention.h"
#include "ocl_flash.h"
#include "ocl_internal.h"
#include "ocl_loss.h"
#include "ocl_merge.h"
#include "ocl_fidelity.h"
#include "ocl_gather.h"
#include "ocl_pool.h"
#include "ocl_select.h"
#include "ocl_select_scan.h"

#define SELECT(row_name, row_op, row_needs, share, row_detail)                           \
	{                                                                                \
		.name = row_name, .op = row_op, .needs = row_needs, .efficiency = share, \
		.workspace = hys_ocl_select_workspace, .run = hys_ocl_select_run,        \
		.detail = row_detail                                                     \
	}

#define SCAN(row_name, row_needs, share, row_detail, not_proven)               \
	{                                                                      \
		.name = row_name, .op = HYS_OP_SELECT, .needs = row_needs,     \
		.efficiency = share, .applicable = hys_ocl_scan_applicable,    \
		.workspace = hys_ocl_scan_workspace, .run = hys_ocl_scan_run,  \
		.detail = row_detail, .unproven = not_proven, .gaps = true,    \
		.keeps_unscored = true                                         \
	}
#define SELECT_FINE(row_name, row_op)                                                   \
	{                                                                               \
		.name = row_name, .op = row_op, .needs = HYS_OCL_WGMMA,                 \
		.efficiency = 8.0, .applicable = hys_ocl_select_fine_applicable,        \
		.workspace = hys_ocl_select_workspace, .run = hys_ocl_select_run,       \
		.detail = &hys_ocl_fine_wgmma                                           \
	}
/* One row for each vendor's matrix unit. */
#define SELECT_MATRIX(row_name, row_op, row_needs, row_detail)                         \
	{                                                                              \
		.name = row_name, .op = row_op, .needs = row_needs, .efficiency = 2.0, \
		.applicable = hys_ocl_select_matrix_applicable,                        \
		.workspace = hys_ocl_select_workspace, .run = hys_ocl_select_run,      \
		.detail = row_detail                                                   \
	}
#define SELECT_UNITS(name, op, detail)                                 \
	SELECT_MATRIX(name ".mma", op, HYS_OCL_MMA, detail),           \
		SELECT_MATRIX(name ".mfma", op, HYS_OCL_MFMA, detail), \
		SELECT_MATRIX(name ".wmma", op, HYS_OCL_WMMA, detail), \
		SELECT_MATRIX(name ".dpas", op, HYS_OCL_DPAS, detail)

#define PRODUCTS(row_name, row_op, pass, row_needs, share, row_detail)                   \
	{                                                                                \
		.name = row_name, .op = row_op, .needs = row_needs, .efficiency = share, \
		.workspace = hys_ocl_##pass##_workspace, .run = hys_ocl_##pass,          \
		.detail = row_detail                                                     \
	}
#define FORWARD(name, needs, share, detail) \
	PRODUCTS(name, HYS_OP_ATTENTION_FORWARD, forward, needs, share, detail)
#define PRODUCTS_MATRIX(row_name, row_op, pass, row_needs)                             \
	{                                                                              \
		.name = row_name, .op = row_op, .needs = row_needs, .efficiency = 1.0, \
		.applicable = hys_ocl_##pass##_matrix_applicable,                      \
		.workspace = hys_ocl_##pass##_workspace, .run = hys_ocl_##pass,        \
		.detail = &hys_ocl_##pass##_matrix                                     \
	}
#define PRODUCTS_UNITS(name, op, pass)                                 \
	PRODUCTS_MATRIX(name ".mma", op, pass, HYS_OCL_MMA),           \
		PRODUCTS_MATRIX(name ".mfma", op, pass, HYS_OCL_MFMA), \
		PRODUCTS_MATRIX(name ".wmma", op, pass, HYS_OCL_WMMA), \
		PRODUCTS_MATRIX(name ".dpas", op, pass, HYS_OCL_DPAS)
#define BACKWARD(name, needs, share, detail) \
	PRODUCTS(name, HYS_OP_ATTENTION_BACKWARD, backward, needs, share, detail)
#define LOSS(name, needs, share, detail) \
	PRODUCTS(name, HYS_OP_INDEXER_LOSS, loss, needs, share, detail)

const struct hys_kernel hys_ocl_kernels[] = {
	SCAN("select.wgmma", HYS_OCL_WGMMA, 8.0, &hys_ocl_scan_wgmma, false),
	SCAN("select.wgmma.e4m3", HYS_OCL_WGMMA, 12.0, &hys_ocl_scan_wgmma_e4m3, false),
	SCAN("select.scan.mma", HYS_OCL_MMA, 5.0, &hys_ocl_scan_mma, false),
	SELECT("select.cpu", HYS_OP_SELECT, HYS_OCL_CPU, 0.3, &hys_ocl_select_cpu),
	SELECT_UNITS("select", HYS_OP_SELECT, &hys_ocl_select_matrix),
	SELECT("select.tile", HYS_OP_SELECT, 0, 0.2, &hys_ocl_select_tile),
	SELECT("select.ref", HYS_OP_SELECT, 0, 0.01, &hys_ocl_select_ref),
	SELECT_FINE("select_coarse.wgmma", HYS_OP_SELECT_COARSE),
	SELECT("select_coarse.cpu", HYS_OP_SELECT_COARSE, HYS_OCL_CPU, 0.3, &hys_ocl_coarse_cpu),
	SELECT("select_coarse.tile", HYS_OP_SELECT_COARSE, 0, 0.2, &hys_ocl_coarse_tile),
	SELECT("select_coarse.ref", HYS_OP_SELECT_COARSE, 0, 0.01, &hys_ocl_coarse_ref),
	SELECT_FINE("select_coarse_to_fine.wgmma", HYS_OP_SELECT_COARSE_TO_FINE),
	SELECT("select_coarse_to_fine.cpu", HYS_OP_SELECT_COARSE_TO_FINE, HYS_OCL_CPU, 0.3,
	       &hys_ocl_coarse_cpu),
	SELECT_UNITS("select_coarse_to_fine", HYS_OP_SELECT_COARSE_TO_FINE, &hys_ocl_fine_matrix),
	{.name = "select_coarse_to_fine.clblast",
	 .op = HYS_OP_SELECT_COARSE_TO_FINE,
	 .needs = HYS_OCL_CLBLAST,
	 .efficiency = 0.2,
	 .applicable = hys_ocl_select_clblast_applicable,
	 .workspace = hys_ocl_select_workspace,
	 .run = hys_ocl_select_run,
	 .detail = &hys_ocl_fine_clblast},
	SELECT("select_coarse_to_fine.tile", HYS_OP_SELECT_COARSE_TO_FINE, 0, 0.2,
	       &hys_ocl_coarse_tile),
	SELECT("select_coarse_to_fine.ref", HYS_OP_SELECT_COARSE_TO_FINE, 0, 0.01,
	       &hys_ocl_coarse_ref),
	{.name = "attention_forward.dense.wgmma",
	 .op = HYS_OP_ATTENTION_FORWARD,
	 .needs = HYS_OCL_WGMMA,
	 .efficiency = 8,
	 .applicable = hys_ocl_flash_forward_applicable,
	 .workspace = hys_ocl_flash_forward_workspace,
	 .run = hys_ocl_flash_forward,
	 .detail = &hys_ocl_flash_forward_wgmma},
	{.name = "attention_forward.flash.sm90",
	 .op = HYS_OP_ATTENTION_FORWARD,
	 .needs = HYS_OCL_WGMMA,
	 .efficiency = 4,
	 .applicable = hys_ocl_flash_tiles_applicable,
	 .workspace = hys_ocl_flash_forward_workspace,
	 .run = hys_ocl_flash_forward_tiles,
	 .detail = &hys_ocl_flash_forward_sm90},
	{.name = "attention_forward.flash.sm90.twelve",
	 .op = HYS_OP_ATTENTION_FORWARD,
	 .needs = HYS_OCL_WGMMA,
	 .efficiency = 4,
	 .applicable = hys_ocl_flash_tiles_applicable,
	 .workspace = hys_ocl_flash_forward_workspace,
	 .run = hys_ocl_flash_forward_tiles,
	 .detail = &hys_ocl_flash_forward_twelve,
	 .resized = true},
	{.name = "attention_forward.flash.mma",
	 .op = HYS_OP_ATTENTION_FORWARD,
	 .needs = HYS_OCL_MMA,
	 .efficiency = 3,
	 .applicable = hys_ocl_flash_tiles_applicable,
	 .workspace = hys_ocl_flash_forward_workspace,
	 .run = hys_ocl_flash_forward_tiles,
	 .detail = &hys_ocl_flash_forward_mma},
	{.name = "attention_forward.gather.wgmma",
	 .op = HYS_OP_ATTENTION_FORWARD,
	 .needs = HYS_OCL_WGMMA,
	 .efficiency = 9.0,
	 .applicable = hys_ocl_gather_applicable,
	 .workspace = hys_ocl_forward_gather_workspace,
	 .run = hys_ocl_forward_gather_run,
	 .detail = &hys_ocl_forward_gather},
	FORWARD("attention_forward.cpu", HYS_OCL_CPU, 0.3, &hys_ocl_forward_cpu),
	PRODUCTS_UNITS("attention_forward", HYS_OP_ATTENTION_FORWARD, forward),
	FORWARD("attention_forward.tile", 0, 0.2, &hys_ocl_forward_tile),
	FORWARD("attention_forward.ref", 0, 0.01, &hys_ocl_forward_ref),
	{.name = "attention_backward.dense.wgmma",
	 .op = HYS_OP_ATTENTION_BACKWARD,
	 .needs = HYS_OCL_WGMMA,
	 .efficiency = 6,
	 .applicable = hys_ocl_flash_backward_applicable,
	 .workspace = hys_ocl_flash_backward_workspace,
	 .run = hys_ocl_flash_backward,
	 .detail = &hys_ocl_flash_backward_dense},
	{.name = "attention_backward.blocks.wgmma",
	 .op = HYS_OP_ATTENTION_BACKWARD,
	 .needs = HYS_OCL_WGMMA,
	 .efficiency = 4,
	 .applicable = hys_ocl_flash_backward_applicable,
	 .workspace = hys_ocl_flash_backward_workspace,
	 .run = hys_ocl_flash_backward,
	 .detail = &hys_ocl_flash_backward_blocks},
	{.name = "attention_backward.gather.wgmma",
	 .op = HYS_OP_ATTENTION_BACKWARD,
	 .needs = HYS_OCL_WGMMA,
	 .efficiency = 4.0,
	 .applicable = hys_ocl_gather_applicable,
	 .workspace = hys_ocl_backward_gather_workspace,
	 .run = hys_ocl_backward_gather_run,
	 .detail = &hys_ocl_backward_gather},
	{.name = "attention_backward.gather.wgmma.atomic",
	 .op = HYS_OP_ATTENTION_BACKWARD,
	 .needs = HYS_OCL_WGMMA,
	 .efficiency = 4.0,
	 .applicable = hys_ocl_gather_applicable,
	 .workspace = hys_ocl_backward_gather_workspace,
	 .run = hys_ocl_backward_gather_run,
	 .detail = &hys_ocl_backward_gather_atomic,
	 .order_free = true},
	BACKWARD("attention_backward.cpu", HYS_OCL_CPU, 0.3, &hys_ocl_backward_cpu),
	PRODUCTS_UNITS("attention_backward", HYS_OP_ATTENTION_BACKWARD, backward),
	BACKWARD("attention_backward.tile", 0, 0.2, &hys_ocl_backward_tile),
	BACKWARD("attention_backward.ref", 0, 0.01, &hys_ocl_backward_ref),
	{.name = "indexer_loss.gather.wgmma",
	 .op = HYS_OP_INDEXER_LOSS,
	 .needs = HYS_OCL_WGMMA,
	 .efficiency = 4.0,
	 .applicable = hys_ocl_loss_gather_applicable,
	 .workspace = hys_ocl_loss_gather_workspace,
	 .run = hys_ocl_loss_gather,
	 .detail = &hys_ocl_loss_wgmma},
	LOSS("indexer_loss.cpu", HYS_OCL_CPU, 0.3, &hys_ocl_loss_cpu),
	LOSS("indexer_loss.tile", 0, 0.2, &hys_ocl_loss_tile),
	LOSS("indexer_loss.ref", 0, 0.01, &hys_ocl_loss_ref),
	{.name = "pool.ref",
	 .op = HYS_OP_POOL,
	 .efficiency = 0.01,
	 .run = hys_ocl_pool,
	 .detail = &hys_ocl_pool_source},
	{.name = "pool_backward.ref",
	 .op = HYS_OP_POOL_BACKWARD,
	 .efficiency = 0.01,
	 .run = hys_ocl_pool_backward,
	 .detail = &hys_ocl_pool_source},
	{.name = "fidelity.ref",
	 .op = HYS_OP_FIDELITY,
	 .efficiency = 0.01,
	 .workspace = hys_ocl_fidelity_workspace,
	 .run = hys_ocl_fidelity,
	 .detail = &hys_ocl_fidelity_source},
	{.name = "merge.ref",
	 .op = HYS_OP_MERGE,
	 .efficiency = 0.01,
	 .run = hys_ocl_merge,
	 .detail = &hys_ocl_merge_source},
};

_Static_assert(sizeof(hys_ocl_kernels) / sizeof(hys_ocl_kernels[0]) == HYS_OCL_KERNEL_COUNT,
	       "HYS_OCL_KERNEL_COUNT is not the number of rows");
