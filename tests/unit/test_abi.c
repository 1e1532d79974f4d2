/* The ABI of this version: sizes, places and values that programs were compiled with.
 *
 * A number here changes only together with the library's major version. What is appended to a
 * struct or an enumeration gets a line of its own, and the struct its new size. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "hyscale/hyscale.h"

struct place {
	const char *name;
	size_t found, pinned;
};

#define SIZE(type, bytes)                                              \
	{                                                              \
		"sizeof(struct " #type ")", sizeof(struct type), bytes \
	}
#define AT(type, field, bytes)                                        \
	{                                                             \
#type "." #field, offsetof(struct type, field), bytes \
	}

/* clang-format off */
static const struct place places[] = {
	SIZE(hys_error, 264),
	AT(hys_error, status, 0), AT(hys_error, native, 4), AT(hys_error, message, 8),
	SIZE(hys_tensor, 96),
	AT(hys_tensor, host, 0), AT(hys_tensor, buffer, 8), AT(hys_tensor, offset, 16), AT(hys_tensor, dtype, 24),
	AT(hys_tensor, rank, 28), AT(hys_tensor, shape, 32), AT(hys_tensor, stride, 64),
	SIZE(hys_native_device, 24),
	AT(hys_native_device, backend, 0), AT(hys_native_device, context, 8), AT(hys_native_device, device, 16),
	SIZE(hys_context_options, 96),
	AT(hys_context_options, struct_size, 0), AT(hys_context_options, devices, 8),
	AT(hys_context_options, cache_dir, 16), AT(hys_context_options, disable, 24),
	AT(hys_context_options, threads, 32), AT(hys_context_options, allocate, 40),
	AT(hys_context_options, release, 48), AT(hys_context_options, allocate_user, 56),
	AT(hys_context_options, log, 64), AT(hys_context_options, log_user, 72),
	AT(hys_context_options, natives, 80), AT(hys_context_options, native_count, 88),
	SIZE(hys_device_info, 896),
	AT(hys_device_info, backend, 0), AT(hys_device_info, name, 16), AT(hys_device_info, vendor, 112),
	AT(hys_device_info, driver, 176), AT(hys_device_info, id, 272), AT(hys_device_info, kind, 336),
	AT(hys_device_info, compute_units, 340), AT(hys_device_info, numa_node, 344),
	AT(hys_device_info, memory_bytes, 352), AT(hys_device_info, max_allocation_bytes, 360),
	AT(hys_device_info, local_memory_bytes, 368), AT(hys_device_info, nominal_flops_per_s, 376),
	AT(hys_device_info, cpus, 384), AT(hys_device_info, capabilities, 448), AT(hys_device_info, reason, 704),
	SIZE(hys_device_speed, 16),
	AT(hys_device_speed, flops_per_s, 0), AT(hys_device_speed, bytes_per_s, 8),
	SIZE(hys_scoring, 40),
	AT(hys_scoring, heads, 0), AT(hys_scoring, dim, 4), AT(hys_scoring, groups, 8), AT(hys_scoring, block, 12),
	AT(hys_scoring, pool, 16), AT(hys_scoring, dtype, 20), AT(hys_scoring, activation, 24),
	AT(hys_scoring, scale, 32),
	SIZE(hys_choosing, 24),
	AT(hys_choosing, topk_max, 0), AT(hys_choosing, first_blocks, 4), AT(hys_choosing, local_blocks, 8),
	AT(hys_choosing, method, 12), AT(hys_choosing, coarse_block, 16), AT(hys_choosing, coarse_keep, 20),
	SIZE(hys_attending, 56),
	AT(hys_attending, heads, 0), AT(hys_attending, kv_heads, 4), AT(hys_attending, head_dim, 8),
	AT(hys_attending, value_dim, 12), AT(hys_attending, granularity, 16), AT(hys_attending, window, 20),
	AT(hys_attending, first, 24), AT(hys_attending, dtype, 28), AT(hys_attending, scale, 32),
	AT(hys_attending, softcap, 40), AT(hys_attending, flags, 48),
	SIZE(hys_problem, 128),
	AT(hys_problem, struct_size, 0), AT(hys_problem, scoring, 8), AT(hys_problem, choosing, 48),
	AT(hys_problem, attending, 72),
	SIZE(hys_plan_options, 96),
	AT(hys_plan_options, struct_size, 0), AT(hys_plan_options, operations, 8), AT(hys_plan_options, flags, 12),
	AT(hys_plan_options, devices, 16), AT(hys_plan_options, device_count, 24),
	AT(hys_plan_options, rows_max, 32), AT(hys_plan_options, keys_max, 40),
	AT(hys_plan_options, window_keys_max, 48), AT(hys_plan_options, effort, 56),
	AT(hys_plan_options, memory_limit_bytes, 64), AT(hys_plan_options, kernels, 72),
	AT(hys_plan_options, progress, 80), AT(hys_plan_options, progress_user, 88),
	SIZE(hys_cost, 48),
	AT(hys_cost, flops, 0), AT(hys_cost, bytes, 8), AT(hys_cost, time_s, 16), AT(hys_cost, tensor_bytes, 24),
	AT(hys_cost, workspace_bytes, 32), AT(hys_cost, peak_bytes, 40),
	SIZE(hys_trace_span, 56),
	AT(hys_trace_span, struct_size, 0), AT(hys_trace_span, what, 8), AT(hys_trace_span, op, 16), AT(hys_trace_span, device, 20),
	AT(hys_trace_span, row_first, 24), AT(hys_trace_span, row_count, 32), AT(hys_trace_span, begin_s, 40), AT(hys_trace_span, end_s, 48),
	SIZE(hys_exec_report, 304),
	AT(hys_exec_report, struct_size, 0), AT(hys_exec_report, calls, 8), AT(hys_exec_report, rows, 16),
	AT(hys_exec_report, busy_s, 24), AT(hys_exec_report, foretold_s, 32), AT(hys_exec_report, dropped, 40),
	AT(hys_exec_report, reason, 44),
	SIZE(hys_exec_options, 32),
	AT(hys_exec_options, struct_size, 0), AT(hys_exec_options, flags, 8),
	AT(hys_exec_options, native_queues, 16), AT(hys_exec_options, workspaces, 24),
	SIZE(hys_batch_desc, 128),
	AT(hys_batch_desc, struct_size, 0), AT(hys_batch_desc, rows, 8), AT(hys_batch_desc, keys, 16),
	AT(hys_batch_desc, flags, 24), AT(hys_batch_desc, window, 28), AT(hys_batch_desc, documents, 32),
	AT(hys_batch_desc, cu_seqlens_q, 40), AT(hys_batch_desc, cu_seqlens_k, 48),
	AT(hys_batch_desc, positions, 56), AT(hys_batch_desc, row_begin, 64), AT(hys_batch_desc, row_end, 72),
	AT(hys_batch_desc, index_begin, 80), AT(hys_batch_desc, index_end, 88), AT(hys_batch_desc, entries, 96),
	AT(hys_batch_desc, window_begin, 104), AT(hys_batch_desc, window_end, 112),
	AT(hys_batch_desc, window_keys, 120),
	SIZE(hys_select_args, 1000),
	AT(hys_select_args, struct_size, 0), AT(hys_select_args, row_first, 8), AT(hys_select_args, row_count, 16),
	AT(hys_select_args, method, 24), AT(hys_select_args, topk, 32), AT(hys_select_args, index_q, 40),
	AT(hys_select_args, index_k, 136), AT(hys_select_args, index_w, 232),
	AT(hys_select_args, index_q_scale, 328), AT(hys_select_args, index_k_scale, 424),
	AT(hys_select_args, indices, 520), AT(hys_select_args, counts, 616), AT(hys_select_args, scores, 712),
	AT(hys_select_args, kth, 808), AT(hys_select_args, nan_rows, 904),
	SIZE(hys_attention_args, 888),
	AT(hys_attention_args, struct_size, 0), AT(hys_attention_args, row_first, 8),
	AT(hys_attention_args, row_count, 16), AT(hys_attention_args, q, 24), AT(hys_attention_args, k, 120),
	AT(hys_attention_args, v, 216), AT(hys_attention_args, indices, 312), AT(hys_attention_args, sink, 408),
	AT(hys_attention_args, window_k, 504), AT(hys_attention_args, window_v, 600),
	AT(hys_attention_args, o, 696), AT(hys_attention_args, lse, 792),
	SIZE(hys_attention_grad_args, 1568),
	AT(hys_attention_grad_args, struct_size, 0), AT(hys_attention_grad_args, row_first, 8),
	AT(hys_attention_grad_args, row_count, 16), AT(hys_attention_grad_args, flags, 24),
	AT(hys_attention_grad_args, q, 32), AT(hys_attention_grad_args, k, 128),
	AT(hys_attention_grad_args, v, 224), AT(hys_attention_grad_args, indices, 320),
	AT(hys_attention_grad_args, sink, 416), AT(hys_attention_grad_args, window_k, 512),
	AT(hys_attention_grad_args, window_v, 608), AT(hys_attention_grad_args, o, 704),
	AT(hys_attention_grad_args, lse, 800), AT(hys_attention_grad_args, grad_o, 896),
	AT(hys_attention_grad_args, dq, 992), AT(hys_attention_grad_args, dk, 1088),
	AT(hys_attention_grad_args, dv, 1184), AT(hys_attention_grad_args, dsink, 1280),
	AT(hys_attention_grad_args, dwindow_k, 1376), AT(hys_attention_grad_args, dwindow_v, 1472),
	SIZE(hys_loss_args, 1496),
	AT(hys_loss_args, struct_size, 0), AT(hys_loss_args, row_first, 8), AT(hys_loss_args, row_count, 16),
	AT(hys_loss_args, flags, 24), AT(hys_loss_args, reduction, 28), AT(hys_loss_args, coefficient, 32),
	AT(hys_loss_args, divisor, 40), AT(hys_loss_args, row_stride, 48), AT(hys_loss_args, row_offset, 52),
	AT(hys_loss_args, index_q, 56), AT(hys_loss_args, index_k, 152), AT(hys_loss_args, index_w, 248),
	AT(hys_loss_args, indices, 344), AT(hys_loss_args, q, 440), AT(hys_loss_args, k, 536),
	AT(hys_loss_args, lse, 632), AT(hys_loss_args, sink, 728), AT(hys_loss_args, scores, 824),
	AT(hys_loss_args, teacher_in, 920), AT(hys_loss_args, loss, 1016), AT(hys_loss_args, d_index_q, 1112),
	AT(hys_loss_args, d_index_k, 1208), AT(hys_loss_args, d_index_w, 1304),
	AT(hys_loss_args, teacher_out, 1400),
	SIZE(hys_pool_args, 800),
	AT(hys_pool_args, struct_size, 0), AT(hys_pool_args, row_first, 8), AT(hys_pool_args, row_count, 16),
	AT(hys_pool_args, pooling, 24), AT(hys_pool_args, unit, 28), AT(hys_pool_args, x, 32),
	AT(hys_pool_args, gate, 128), AT(hys_pool_args, bias, 224), AT(hys_pool_args, y, 320),
	AT(hys_pool_args, norm, 416), AT(hys_pool_args, radius, 512), AT(hys_pool_args, lowest, 608),
	AT(hys_pool_args, highest, 704),
	SIZE(hys_pool_grad_args, 712),
	AT(hys_pool_grad_args, struct_size, 0), AT(hys_pool_grad_args, row_first, 8),
	AT(hys_pool_grad_args, row_count, 16), AT(hys_pool_grad_args, flags, 24),
	AT(hys_pool_grad_args, pooling, 28), AT(hys_pool_grad_args, unit, 32), AT(hys_pool_grad_args, x, 40),
	AT(hys_pool_grad_args, gate, 136), AT(hys_pool_grad_args, bias, 232), AT(hys_pool_grad_args, grad_y, 328),
	AT(hys_pool_grad_args, dx, 424), AT(hys_pool_grad_args, dgate, 520), AT(hys_pool_grad_args, dbias, 616),
	SIZE(hys_merge_args, 600),
	AT(hys_merge_args, struct_size, 0), AT(hys_merge_args, row_first, 8), AT(hys_merge_args, row_count, 16),
	AT(hys_merge_args, o_a, 24), AT(hys_merge_args, o_b, 120), AT(hys_merge_args, lse_a, 216),
	AT(hys_merge_args, lse_b, 312), AT(hys_merge_args, o, 408), AT(hys_merge_args, lse, 504),
	SIZE(hys_quantize_args, 296),
	AT(hys_quantize_args, struct_size, 0), AT(hys_quantize_args, x, 8), AT(hys_quantize_args, f8, 104),
	AT(hys_quantize_args, scale, 200),
	SIZE(hys_fidelity_args, 712),
	AT(hys_fidelity_args, struct_size, 0), AT(hys_fidelity_args, row_first, 8),
	AT(hys_fidelity_args, row_count, 16), AT(hys_fidelity_args, row_stride, 24),
	AT(hys_fidelity_args, row_offset, 28), AT(hys_fidelity_args, target_mass, 32), AT(hys_fidelity_args, q, 40),
	AT(hys_fidelity_args, k, 136), AT(hys_fidelity_args, indices, 232), AT(hys_fidelity_args, reference, 328),
	AT(hys_fidelity_args, mass, 424), AT(hys_fidelity_args, recall, 520),
	AT(hys_fidelity_args, topk_needed, 616),
};

static const struct value {
	const char *name;
	int64_t found, pinned;
} values[] = {
	{"HYS_OK", HYS_OK, 0}, {"HYS_INVALID_ARGUMENT", HYS_INVALID_ARGUMENT, 1},
	{"HYS_UNSUPPORTED", HYS_UNSUPPORTED, 2}, {"HYS_OUT_OF_MEMORY", HYS_OUT_OF_MEMORY, 3},
	{"HYS_WORKSPACE_TOO_SMALL", HYS_WORKSPACE_TOO_SMALL, 4}, {"HYS_NO_PLATFORM", HYS_NO_PLATFORM, 5},
	{"HYS_NO_DEVICE", HYS_NO_DEVICE, 6}, {"HYS_DEVICE_FAILED", HYS_DEVICE_FAILED, 7},
	{"HYS_BUILD_FAILED", HYS_BUILD_FAILED, 8}, {"HYS_IO", HYS_IO, 9}, {"HYS_FORMAT", HYS_FORMAT, 10},
	{"HYS_VERSION_MISMATCH", HYS_VERSION_MISMATCH, 11}, {"HYS_CANCELLED", HYS_CANCELLED, 12},
	{"HYS_FORKED", HYS_FORKED, 13}, {"HYS_INTERNAL", HYS_INTERNAL, 14},
	{"HYS_DTYPE_DEFAULT", HYS_DTYPE_DEFAULT, 0}, {"HYS_F32", HYS_F32, 1}, {"HYS_F16", HYS_F16, 2},
	{"HYS_BF16", HYS_BF16, 3}, {"HYS_F8E4M3", HYS_F8E4M3, 4}, {"HYS_I32", HYS_I32, 5},
	{"HYS_DEVICE_CPU", HYS_DEVICE_CPU, 0}, {"HYS_DEVICE_GPU", HYS_DEVICE_GPU, 1},
	{"HYS_DEVICE_ACCELERATOR", HYS_DEVICE_ACCELERATOR, 2},
	{"HYS_LOG_ERROR", HYS_LOG_ERROR, 0}, {"HYS_LOG_WARNING", HYS_LOG_WARNING, 1},
	{"HYS_LOG_INFO", HYS_LOG_INFO, 2},
	{"HYS_ACTIVATION_RELU", HYS_ACTIVATION_RELU, 0}, {"HYS_ACTIVATION_NONE", HYS_ACTIVATION_NONE, 1},
	{"HYS_METHOD_DEFAULT", HYS_METHOD_DEFAULT, 0}, {"HYS_METHOD_EXACT", HYS_METHOD_EXACT, 1},
	{"HYS_METHOD_COARSE", HYS_METHOD_COARSE, 2}, {"HYS_METHOD_COARSE_TO_FINE", HYS_METHOD_COARSE_TO_FINE, 3},
	{"HYS_OP_SELECT", HYS_OP_SELECT, 0}, {"HYS_OP_SELECT_COARSE", HYS_OP_SELECT_COARSE, 1},
	{"HYS_OP_SELECT_COARSE_TO_FINE", HYS_OP_SELECT_COARSE_TO_FINE, 2},
	{"HYS_OP_ATTENTION_FORWARD", HYS_OP_ATTENTION_FORWARD, 3},
	{"HYS_OP_ATTENTION_BACKWARD", HYS_OP_ATTENTION_BACKWARD, 4},
	{"HYS_OP_INDEXER_LOSS", HYS_OP_INDEXER_LOSS, 5}, {"HYS_OP_POOL", HYS_OP_POOL, 6},
	{"HYS_OP_POOL_BACKWARD", HYS_OP_POOL_BACKWARD, 7}, {"HYS_OP_MERGE", HYS_OP_MERGE, 8},
	{"HYS_OP_FIDELITY", HYS_OP_FIDELITY, 9},
	{"HYS_EFFORT_ESTIMATE", HYS_EFFORT_ESTIMATE, 0}, {"HYS_EFFORT_WISDOM", HYS_EFFORT_WISDOM, 1},
	{"HYS_EFFORT_MEASURE", HYS_EFFORT_MEASURE, 2},
	{"HYS_REDUCTION_MEAN", HYS_REDUCTION_MEAN, 0}, {"HYS_REDUCTION_SUM", HYS_REDUCTION_SUM, 1},
	{"HYS_POOL_MEAN", HYS_POOL_MEAN, 0}, {"HYS_POOL_GATED", HYS_POOL_GATED, 1},
	{"HYS_POOL_OVERLAPPED", HYS_POOL_OVERLAPPED, 2}, {"HYS_POOL_BOUNDS", HYS_POOL_BOUNDS, 3},
	{"HYS_POOL_ENTRIES", HYS_POOL_ENTRIES, 0}, {"HYS_POOL_BLOCKS", HYS_POOL_BLOCKS, 1},
	{"HYS_BATCH_CAUSAL", HYS_BATCH_CAUSAL, 1},
	{"HYS_PLAN_BUFFERS_ONLY", HYS_PLAN_BUFFERS_ONLY, 1},
	{"HYS_PLAN_NO_SELF_TEST", HYS_PLAN_NO_SELF_TEST, 2},
	{"HYS_PLAN_GUIDED", HYS_PLAN_GUIDED, 4}, {"HYS_PLAN_EQUAL", HYS_PLAN_EQUAL, 8},
	{"HYS_ATTENDING_DENSE", HYS_ATTENDING_DENSE, 1},
	{"HYS_EXEC_ASYNC", HYS_EXEC_ASYNC, 1}, {"HYS_EXEC_TRACE", HYS_EXEC_TRACE, 2},
	{"HYS_EXEC_QUANTIZE", HYS_EXEC_QUANTIZE, 4},
	{"HYS_GRAD_ACCUMULATE", HYS_GRAD_ACCUMULATE, 1},
	{"HYS_LOSS_ACCUMULATE", HYS_LOSS_ACCUMULATE, 1},
	{"HYS_LOSS_DENSE", HYS_LOSS_DENSE, 2},
};
/* clang-format on */

/* Pinned for 64-bit pointers, as all platforms that are built for have them. */
static void test_structs(void **state)
{
	(void)state;
	if (sizeof(void *) != 8 || sizeof(size_t) != 8)
		skip();
	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++)
		if (places[i].found != places[i].pinned)
			fail_msg("%s is %zu, programs were compiled with %zu", places[i].name,
				 places[i].found, places[i].pinned);
}

static void test_values(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++)
		if (values[i].found != values[i].pinned)
			fail_msg("%s is %lld, programs were compiled with %lld", values[i].name,
				 (long long)values[i].found, (long long)values[i].pinned);
	assert_int_equal(HYS_STATUS_COUNT, 15);
	assert_int_equal(HYS_DTYPE_COUNT, 6);
	assert_int_equal(HYS_OP_COUNT, 10);
}

/* A program passes enumerations and reads names; both have a form of their own. */
static void test_names(void **state)
{
	(void)state;
	assert_int_equal(sizeof(hys_status), 4);
	assert_int_equal(sizeof(hys_dtype), 4);
	assert_int_equal(sizeof(hys_op), 4);
	assert_string_equal(hys_status_name(HYS_OUT_OF_MEMORY), "HYS_OUT_OF_MEMORY");
	assert_string_equal(hys_status_name((hys_status)HYS_STATUS_COUNT), "HYS_UNKNOWN");
	assert_string_equal(hys_status_name((hys_status)-1), "HYS_UNKNOWN");
	assert_string_equal(hys_dtype_name(HYS_F8E4M3), "f8e4m3");
	assert_string_equal(hys_dtype_name((hys_dtype)99), "none");
	assert_string_equal(hys_op_name(HYS_OP_SELECT_COARSE_TO_FINE), "select_coarse_to_fine");
	assert_string_equal(hys_op_name(HYS_OP_COUNT), "unknown");
	assert_string_equal(hys_version_string(), HYS_VERSION_STRING);
	assert_int_equal(hys_version_number(), HYS_VERSION_NUMBER);
	for (int32_t i = 0; i < HYS_STATUS_COUNT; i++)
		assert_true(strlen(hys_status_string((hys_status)i)) > 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_structs),
		cmocka_unit_test(test_values),
		cmocka_unit_test(test_names),
	};

	return cmocka_run_group_tests_name("abi", tests, NULL, NULL);
}
