/* Cases that attention forward and backward share. */
#ifndef HYS_TEST_ATTENTION_TABLE_H
#define HYS_TEST_ATTENTION_TABLE_H

#include "attention_case.h"

#define DENSE ATTENTION_DENSE
#define SHARED ATTENTION_SHARED
#define SINK ATTENTION_SINK
#define F16 HYS_F16
#define BF16 HYS_BF16
/* What kernels of matrix units that gather key rows can do: many heads, blocks of channels. */
#define GATHER(number) .dtype = BF16, .heads = (number), .head_dim = 64, .value_dim = 128
#define GATHER_MLA(flags) .dtype = BF16, .heads = 16, .head_dim = 192, .value_dim = 128, .features = (flags)

/* clang-format off */
static const struct attention_case table[] = {
	{CORE("plain"), SEE(20, 40)},
	{CORE("MHA"), SEE(20, 40), .heads = 4, .kv_heads = 4},
	{FULL("GQA"), SEE(20, 40), .heads = 6, .kv_heads = 2},
	{FULL("one head"), SEE(20, 40), .heads = 1},
	{CORE("MLA"), SEE(9, 70), .heads = 16, .head_dim = 72, .value_dim = 64, .topk = 33, .features = SHARED},
	{FULL("MLA, large"), SEE(5, 150), .heads = 128, .head_dim = 576, .value_dim = 512, .topk = 70, .features = SHARED},
	{FULL("shared v, GQA"), SEE(9, 70), .heads = 6, .kv_heads = 3, .head_dim = 20, .value_dim = 12, .features = SHARED},
	{FULL("shared v of all channels"), SEE(9, 70), .features = SHARED},
	{CORE("V below D"), SEE(20, 40), .head_dim = 24, .value_dim = 16},
	{FULL("V over D"), SEE(20, 40), .head_dim = 16, .value_dim = 40},
	{FULL("D and V odd"), SEE(20, 40), .head_dim = 19, .value_dim = 13},
	{FULL("D = V = 1"), SEE(20, 40), .head_dim = 1, .value_dim = 1},
	{FULL("D 192, V 128"), SEE(7, 70), .head_dim = 192, .value_dim = 128, .heads = 4, .topk = 40},
	{FULL("scale"), SEE(20, 40), .scale = 0.7},
	{FULL("negative scale"), SEE(20, 40), .scale = -0.3},

	{CORE("f16"), SEE(20, 70), .dtype = F16, .topk = 20},
	{CORE("bf16"), SEE(20, 70), .dtype = BF16, .topk = 20},
	{FULL("f16 odd"), SEE(7, 33), .dtype = F16, .heads = 3, .head_dim = 13, .value_dim = 9},
	{FULL("bf16 odd"), SEE(7, 33), .dtype = BF16, .heads = 3, .head_dim = 13, .value_dim = 9},
	{FULL("bf16 MLA"), SEE(9, 70), .dtype = BF16, .heads = 16, .head_dim = 72, .value_dim = 64, .topk = 33, .features = SHARED | SINK},
	{FULL("f16 dense"), SEE(20, 40), .dtype = F16, .features = DENSE},

	{CORE("gather"), SEE(20, 140), GATHER(16), .topk = 100},
	{FULL("gather MLA"), SEE(20, 140), GATHER_MLA(SHARED), .topk = 100},
	{FULL("gather MLA, large"), SEE(5, 150), .dtype = BF16, .heads = 128, .head_dim = 576, .value_dim = 512, .topk = 120, .features = SHARED | SINK},
	{FULL("gather MLA, 100 heads"), SEE(9, 300), .dtype = BF16, .heads = 100, .head_dim = 512, .value_dim = 512, .topk = 200, .features = SHARED},
	{FULL("gather f16"), SEE(20, 140), .heads = 16, .head_dim = 64, .value_dim = 128, .dtype = F16, .topk = 100, .features = SINK},
	{FULL("gather GQA"), SEE(20, 70), GATHER(48), .kv_heads = 2, .topk = 60},
	{FULL("gather groups"), SEE(20, 70), GATHER(64), .kv_heads = 2, .groups = 4, .topk = 60},
	{FULL("gather groups across kv heads"), SEE(20, 70), GATHER(64), .kv_heads = 4, .groups = 2, .topk = 60},
	{FULL("gather, heads padded"), SEE(20, 70), GATHER(84), .topk = 60},
	{FULL("gather, 256 channels"), SEE(9, 70), .heads = 16, .dtype = BF16, .head_dim = 256, .value_dim = 256, .topk = 60},
	{FULL("gather, 384 channels"), SEE(9, 70), .heads = 16, .dtype = BF16, .head_dim = 384, .value_dim = 384, .topk = 60, .features = SHARED},
	{FULL("gather, window and first"), SEE(60, 140), GATHER_MLA(SHARED), .window = 17, .first = 5, .topk = 20},
	{FULL("gather, window alone"), SEE(40, 60), GATHER(16), .window = 7, .indices = INDICES_ABSENT},
	{FULL("gather, second source"), SEE(20, 70, .window_keys = 60), GATHER(16), .topk = 20, .features = SINK},
	{FULL("gather MLA, second source"), SEE(20, 70, .window_keys = 60), GATHER_MLA(SHARED | ATTENTION_SHARED_WINDOW | SINK), .topk = 20},
	{FULL("gather, first source alone shares v"), SEE(20, 70, .window_keys = 30), GATHER_MLA(SHARED), .topk = 20},
	{FULL("gather, second source alone shares v"), SEE(20, 70, .window_keys = 30), GATHER_MLA(ATTENTION_SHARED_WINDOW), .topk = 20},
	{FULL("gather, second source alone"), SEE(20, 40, .window_keys = 15), GATHER_MLA(SHARED | ATTENTION_SHARED_WINDOW), .indices = INDICES_EMPTY},
	{FULL("gather, no index at all"), SEE(20, 40), GATHER_MLA(SHARED | SINK), .indices = INDICES_EMPTY},
	{FULL("gather, no keys"), SEE(5, 0), GATHER(16)},
	{FULL("gather junk"), SEE(40, 90), GATHER_MLA(SHARED), .topk = 70, .indices = INDICES_JUNK},
	{FULL("gather junk of blocks"), SEE(40, 90), GATHER_MLA(SHARED), .topk = 40, .indices = INDICES_JUNK, .granularity = 4, .window = 3},
	{FULL("gather junk of pools in explicit intervals"), SEE(200, 60, .how = VISIBLE_EXPLICIT), GATHER(16), .topk = 40, .indices = INDICES_JUNK, .pool = 3, .first = 3},
	{FULL("gather documents"), .visible = {.q_lengths = LENGTHS(9, 0, 20, 1), .k_lengths = LENGTHS(60, 3, 90, 1)}, GATHER_MLA(SHARED), .topk = 50},
	{FULL("gather blocks of 16"), SEE(40, 170), GATHER(16), .granularity = 16, .topk = 9},
	{FULL("gather pools"), SEE(40, 90), GATHER_MLA(SHARED), .pool = 4, .topk = 20, .window = 5},
	{FULL("gather softcap"), SEE(20, 70), GATHER(16), .topk = 50, .softcap = 2.0, .features = SINK},
	{FULL("gather negative scale"), SEE(20, 70), GATHER_MLA(SHARED), .topk = 50, .scale = -0.1},
	{FULL("gather sharp"), SEE(20, 70), GATHER_MLA(SHARED), .topk = 50, .values = ATTENTION_SHARP},
	{FULL("gather huge"), SEE(20, 70), GATHER(16), .topk = 50, .values = ATTENTION_HUGE},
	{FULL("gather tiny"), SEE(20, 70), GATHER(16), .topk = 50, .values = ATTENTION_TINY},
	{FULL("gather, unread rows are NaN"), SEE(9, 90), GATHER_MLA(SHARED), .values = ATTENTION_UNREAD_NAN, .topk = 3},
	{FULL("gather a range"), SEE(40, 90), GATHER_MLA(SHARED | ATTENTION_RANGE), .topk = 60, .window = 3},
	{FULL("gather a range of its own tensors"), SEE(40, 60), GATHER(32), .groups = 2, .features = ATTENTION_RANGE_CUT},

	{CORE("no rows"), SEE(0, 40)},
	{FULL("no keys"), SEE(5, 0)},
	{FULL("neither rows nor keys"), SEE(0, 0)},
	{FULL("one key"), SEE(5, 1, .full = true)},
	{FULL("one row"), SEE(1, 40), .topk = 40},
	{FULL("more rows than keys"), SEE(40, 12), .window = 2},
	{CORE("all keys by indices"), SEE(20, 40), .topk = 50, .indices = INDICES_ALL},
	{CORE("K = 1"), SEE(20, 40), .topk = 1},
	{FULL("large K"), SEE(5, 700, .full = true), .topk = 600},
	{CORE("no index at all"), SEE(20, 40), .indices = INDICES_EMPTY},
	{FULL("no indices, nothing else"), SEE(20, 40), .indices = INDICES_ABSENT},
	{CORE("junk"), SEE(40, 50), .topk = 20, .indices = INDICES_JUNK},
	{FULL("junk beside a window"), SEE(40, 50), .topk = 20, .indices = INDICES_JUNK, .window = 7, .first = 3, .groups = 2},
	{FULL("junk in documents"), .visible = {.q_lengths = LENGTHS(9, 0, 20, 1), .k_lengths = LENGTHS(20, 3, 30, 1)}, .topk = 20, .indices = INDICES_JUNK},
	{CORE("junk of blocks"), SEE(40, 50), .topk = 20, .indices = INDICES_JUNK, .granularity = 4},
	{FULL("junk of blocks of explicit intervals"), SEE(200, 60, .how = VISIBLE_EXPLICIT), .topk = 30, .indices = INDICES_JUNK, .granularity = 4},
	{FULL("junk of pools of explicit intervals"), SEE(200, 60, .how = VISIBLE_EXPLICIT), .topk = 30, .indices = INDICES_JUNK, .pool = 3},
	{FULL("junk of pools"), SEE(40, 50), .topk = 20, .indices = INDICES_JUNK, .pool = 4},
	{FULL("junk that is ignored"), SEE(40, 50), .topk = 20, .indices = INDICES_JUNK, .features = DENSE | ATTENTION_IGNORED},

	{CORE("dense"), SEE(20, 40), .features = DENSE},
	{FULL("dense full"), SEE(20, 70, .full = true), .features = DENSE},
	{CORE("dense documents"), .visible = {.q_lengths = LENGTHS(5, 0, 1, 20, 0, 7)}, .features = DENSE, .heads = 6, .kv_heads = 3},
	{FULL("dense in a window"), SEE(20, 40, .window = 5), .features = DENSE | SINK},
	{FULL("dense MLA with sink"), SEE(20, 70), .heads = 8, .head_dim = 36, .value_dim = 32, .features = DENSE | SHARED | SINK},
	{CORE("dense, blocks of rows"), SEE(150, 150), .heads = 6, .kv_heads = 2, .features = DENSE},
	{FULL("dense in a window, blocks of rows"), SEE(150, 150, .window = 40), .heads = 2, .kv_heads = 2, .features = DENSE | SINK},
	{FULL("dense documents, blocks of rows, second source"), .visible = {.q_lengths = LENGTHS(70, 0, 3, 90), .k_lengths = LENGTHS(130, 5, 3, 90), .window_keys = 80}, .features = DENSE | SINK},
	{FULL("dense, blocks of rows, softcap"), SEE(90, 150), .heads = 3, .kv_heads = 3, .softcap = 2.0, .features = DENSE},
	{CORE("window alone, blocks of rows"), SEE(150, 150), .kv_heads = 2, .window = 37, .indices = INDICES_ABSENT},
	{CORE("late rows are NaN"), SEE(150, 150, .window = 40), .kv_heads = 2, .values = ATTENTION_LATE_NAN, .features = DENSE},
	{FULL("late rows are NaN, window alone"), SEE(150, 150), .window = 37, .indices = INDICES_ABSENT, .values = ATTENTION_LATE_NAN},
	{FULL("dense, long"), SEE(9, 500, .full = true), .features = DENSE},

	{CORE("window"), SEE(40, 60), .window = 7, .indices = INDICES_ABSENT},
	{FULL("window of one"), SEE(40, 60), .window = 1, .indices = INDICES_ABSENT},
	{FULL("window over S"), SEE(40, 60), .window = 100, .indices = INDICES_ABSENT},
	{CORE("first and window"), SEE(40, 60), .window = 7, .first = 3, .indices = INDICES_ABSENT},
	{FULL("first alone"), SEE(40, 60), .first = 5, .indices = INDICES_ABSENT},
	{CORE("indices, first and window"), SEE(40, 60), .window = 7, .first = 3},
	{FULL("all overlap"), SEE(40, 60), .window = 30, .first = 30, .topk = 60, .indices = INDICES_ALL},
	{FULL("window in documents"), .visible = {.q_lengths = LENGTHS(3, 0, 1, 19, 2), .k_lengths = LENGTHS(30, 4, 1, 19, 0)}, .window = 5, .first = 2},
	{FULL("window of explicit intervals"), SEE(60, 90, .how = VISIBLE_EXPLICIT), .window = 4, .first = 2},
	{FULL("windows of both kinds"), SEE(40, 60, .window = 20), .window = 7, .first = 3},

	{CORE("documents"), .visible = {.q_lengths = LENGTHS(1, 0, 33, 1, 1, 20)}},
	{FULL("full documents"), .visible = {.q_lengths = LENGTHS(1, 0, 33, 1, 1, 20), .full = true}},
	{FULL("positions"), SEE(30, 50, .how = VISIBLE_POSITIONS), .window = 2},
	{FULL("explicit intervals"), SEE(60, 90, .how = VISIBLE_EXPLICIT)},

	{CORE("blocks of 4"), SEE(40, 70), .granularity = 4},
	{FULL("blocks of 16"), SEE(40, 170), .granularity = 16, .groups = 2},
	{FULL("all blocks"), SEE(40, 70), .granularity = 8, .indices = INDICES_ALL, .topk = 12},
	{FULL("blocks, first and window"), SEE(40, 70), .granularity = 5, .window = 9, .first = 7},
	{FULL("blocks of explicit intervals"), SEE(60, 90, .how = VISIBLE_EXPLICIT), .granularity = 6},
	{FULL("blocks in documents"), .visible = {.q_lengths = LENGTHS(9, 0, 21, 1)}, .granularity = 4},
	{CORE("pools"), SEE(40, 90), .pool = 4},
	{FULL("all pools"), SEE(40, 90), .pool = 4, .topk = 30, .indices = INDICES_ALL, .window = 5},
	{FULL("pools in documents"), .visible = {.q_lengths = LENGTHS(3, 9, 0, 30, 1), .k_lengths = LENGTHS(7, 9, 3, 43, 5)}, .pool = 4, .window = 3},
	{FULL("pools of explicit intervals"), SEE(60, 90, .how = VISIBLE_EXPLICIT), .pool = 3},
	{CORE("groups"), SEE(20, 50), .groups = 2},
	{FULL("groups of one head"), SEE(20, 50), .heads = 6, .kv_heads = 6, .groups = 6},
	{FULL("groups across kv heads"), SEE(20, 50), .heads = 8, .kv_heads = 4, .groups = 2, .window = 3},
	{FULL("more groups than kv heads"), SEE(20, 50), .heads = 8, .kv_heads = 2, .groups = 8},

	{CORE("sink"), SEE(20, 40), .features = SINK},
	{FULL("sink and nothing else"), SEE(20, 40), .features = SINK, .indices = INDICES_EMPTY},
	{CORE("second source"), SEE(20, 40, .window_keys = 15)},
	{FULL("second source, shared v"), SEE(20, 40, .window_keys = 15), .features = SHARED | ATTENTION_SHARED_WINDOW | SINK},
	{FULL("first source alone shares v"), SEE(20, 40, .window_keys = 15), .features = SHARED},
	{FULL("second source alone shares v"), SEE(20, 40, .window_keys = 15), .features = ATTENTION_SHARED_WINDOW},
	{FULL("second source alone"), SEE(20, 40, .window_keys = 15), .indices = INDICES_EMPTY},
	{CORE("second source, dense, sink"), SEE(20, 40, .window_keys = 15), .features = DENSE | SINK, .heads = 4, .kv_heads = 2},
	{FULL("second source f16"), SEE(20, 40, .window_keys = 15), .dtype = F16},
	{FULL("second source bf16 of pools"), SEE(20, 70, .window_keys = 40), .dtype = BF16, .pool = 4, .features = SHARED | ATTENTION_SHARED_WINDOW | SINK, .heads = 8, .head_dim = 40, .value_dim = 32},
	{CORE("softcap"), SEE(20, 40), .softcap = 2.0},
	{FULL("softcap, dense, second source"), SEE(20, 40, .window_keys = 9), .softcap = 5.0, .features = DENSE | SINK},

	{CORE("sharp"), SEE(20, 40), .values = ATTENTION_SHARP},
	{FULL("sharp f16"), SEE(20, 40), .values = ATTENTION_SHARP, .dtype = F16},
	{FULL("sharp with sink"), SEE(20, 40), .values = ATTENTION_SHARP, .features = DENSE | SINK},
	{CORE("huge"), SEE(20, 40), .values = ATTENTION_HUGE},
	{FULL("huge f16"), SEE(20, 40), .values = ATTENTION_HUGE, .dtype = F16, .features = ATTENTION_F32_GRADS},
	{FULL("huge bf16"), SEE(20, 40), .values = ATTENTION_HUGE, .dtype = BF16},
	{FULL("tiny"), SEE(20, 40), .values = ATTENTION_TINY},
	{FULL("tiny f16"), SEE(20, 40), .values = ATTENTION_TINY, .dtype = F16},
	{FULL("tiny bf16"), SEE(20, 40), .values = ATTENTION_TINY, .dtype = BF16},
	{CORE("unread rows are NaN"), SEE(9, 90), .values = ATTENTION_UNREAD_NAN, .topk = 3},
	{FULL("unread rows are NaN, first and window"), SEE(9, 90, .how = VISIBLE_POSITIONS), .values = ATTENTION_UNREAD_NAN, .topk = 3, .window = 4, .first = 2, .features = SHARED},
	{FULL("unread rows are NaN, dense"), SEE(9, 90, .window = 10), .values = ATTENTION_UNREAD_NAN, .features = DENSE},
	{FULL("unread rows are NaN, blocks f16"), SEE(9, 90), .values = ATTENTION_UNREAD_NAN, .topk = 3, .granularity = 4, .dtype = F16},

	{CORE("bf16 dense"), SEE(70, 150), .dtype = BF16, .heads = 4, .kv_heads = 2, .head_dim = 64, .features = DENSE},
	{FULL("bf16 dense, several tiles"), SEE(300, 410), .dtype = BF16, .heads = 4, .kv_heads = 2, .head_dim = 128, .features = DENSE | SINK},
	{FULL("bf16 dense MHA"), SEE(260, 260), .dtype = BF16, .heads = 3, .kv_heads = 3, .head_dim = 128, .features = DENSE},
	{FULL("bf16 dense MQA"), SEE(40, 300), .dtype = BF16, .heads = 20, .head_dim = 96, .value_dim = 80, .features = DENSE},
	{FULL("bf16 dense, D 192, V 128"), SEE(150, 270), .dtype = BF16, .heads = 2, .kv_heads = 2, .head_dim = 192, .value_dim = 128, .features = DENSE},
	{FULL("bf16 dense, odd"), SEE(90, 140), .dtype = BF16, .heads = 3, .kv_heads = 1, .head_dim = 19, .value_dim = 13, .features = DENSE},
	{FULL("bf16 dense, shared v"), SEE(90, 140), .dtype = BF16, .heads = 6, .kv_heads = 2, .head_dim = 80, .value_dim = 72, .features = DENSE | SHARED},
	{FULL("bf16 dense, documents"), .visible = {.q_lengths = LENGTHS(5, 0, 1, 200, 0, 77)}, .dtype = BF16, .heads = 6, .kv_heads = 3, .head_dim = 64, .features = DENSE},
	{FULL("f16 dense, documents"), .visible = {.q_lengths = LENGTHS(130, 0, 1, 30), .k_lengths = LENGTHS(200, 3, 1, 190)}, .dtype = F16, .heads = 4, .kv_heads = 2, .head_dim = 128, .features = DENSE | SINK},
	{FULL("f16 dense, second source"), SEE(140, 200, .window_keys = 150), .dtype = F16, .heads = 4, .kv_heads = 2, .head_dim = 64, .features = DENSE | SINK},
	{FULL("bf16 dense, second source, softcap"), SEE(140, 200, .window_keys = 30), .dtype = BF16, .heads = 4, .kv_heads = 2, .head_dim = 40, .softcap = 3.0, .features = DENSE},
	{FULL("bf16 dense, both sources share v"), SEE(60, 200, .window_keys = 30), .dtype = BF16, .head_dim = 64, .value_dim = 48, .features = DENSE | SHARED | ATTENTION_SHARED_WINDOW},
	{FULL("bf16 dense in a window"), SEE(300, 400, .window = 50), .dtype = BF16, .heads = 2, .head_dim = 64, .features = DENSE},
	{FULL("bf16 dense, explicit intervals"), SEE(200, 300, .how = VISIBLE_EXPLICIT), .dtype = BF16, .heads = 4, .kv_heads = 2, .head_dim = 64, .features = DENSE | SINK},
	{FULL("bf16 dense, negative scale"), SEE(70, 150), .dtype = BF16, .head_dim = 64, .scale = -0.2, .features = DENSE},
	{FULL("bf16 dense, sharp"), SEE(70, 150), .dtype = BF16, .head_dim = 64, .values = ATTENTION_SHARP, .features = DENSE},
	{FULL("bf16 dense, huge"), SEE(70, 150), .dtype = BF16, .head_dim = 64, .values = ATTENTION_HUGE, .features = DENSE},
	{FULL("bf16 dense, tiny"), SEE(70, 150), .dtype = BF16, .head_dim = 64, .values = ATTENTION_TINY, .features = DENSE},
	{FULL("f16 dense, tiny"), SEE(70, 150), .dtype = F16, .head_dim = 64, .values = ATTENTION_TINY, .features = DENSE},
	{FULL("f16 dense, huge"), SEE(70, 150), .dtype = F16, .head_dim = 64, .values = ATTENTION_HUGE, .features = DENSE | ATTENTION_F32_GRADS},
	{FULL("bf16 dense, unread rows are NaN"), SEE(90, 300, .window = 10), .dtype = BF16, .head_dim = 64, .values = ATTENTION_UNREAD_NAN, .features = DENSE},
	{FULL("bf16 dense, range"), SEE(400, 400), .dtype = BF16, .heads = 2, .head_dim = 64, .features = DENSE | ATTENTION_RANGE},

	{CORE("bf16 blocks of 64"), SEE(40, 500), .dtype = BF16, .heads = 16, .head_dim = 64, .granularity = 64, .topk = 3},
	{FULL("bf16 blocks of 64, groups"), SEE(70, 900), .dtype = BF16, .heads = 32, .kv_heads = 2, .groups = 2, .head_dim = 128, .granularity = 64, .topk = 5, .features = SINK},
	{FULL("bf16 blocks of 128, first and window"), SEE(70, 900), .dtype = BF16, .heads = 16, .kv_heads = 2, .head_dim = 64, .granularity = 128, .topk = 4, .window = 70, .first = 20},
	{FULL("f16 blocks of 16 in documents"), .visible = {.q_lengths = LENGTHS(33, 0, 61, 1), .k_lengths = LENGTHS(133, 7, 261, 90)}, .dtype = F16, .heads = 6, .kv_heads = 2, .head_dim = 64, .granularity = 16, .topk = 7},
	{FULL("bf16 blocks of 32, junk"), SEE(60, 500), .dtype = BF16, .heads = 20, .head_dim = 64, .granularity = 32, .topk = 12, .indices = INDICES_JUNK, .window = 9},
	{FULL("bf16 blocks of 24, explicit intervals"), SEE(90, 300, .how = VISIBLE_EXPLICIT), .dtype = BF16, .heads = 4, .head_dim = 64, .granularity = 24, .topk = 5},
	{FULL("bf16 blocks of 80, second source"), SEE(60, 500, .window_keys = 90), .dtype = BF16, .heads = 8, .head_dim = 64, .value_dim = 48, .granularity = 80, .topk = 3, .features = SINK},
	{FULL("bf16 blocks of 64, MHA"), SEE(90, 500), .dtype = BF16, .heads = 3, .kv_heads = 3, .groups = 3, .head_dim = 64, .granularity = 64, .topk = 3},
	{FULL("bf16 blocks of 64, many heads"), SEE(20, 500), .dtype = BF16, .heads = 40, .head_dim = 128, .granularity = 64, .topk = 3, .softcap = 4.0},
	{FULL("bf16 blocks of 64, unread rows are NaN"), SEE(9, 900), .dtype = BF16, .heads = 16, .head_dim = 64, .values = ATTENTION_UNREAD_NAN, .topk = 2, .granularity = 64, .window = 5},
	{FULL("bf16 all blocks of 64"), SEE(100, 700), .dtype = BF16, .heads = 16, .head_dim = 128, .granularity = 64, .topk = 11, .indices = INDICES_ALL},
	{FULL("bf16 window alone"), SEE(200, 400), .dtype = BF16, .heads = 4, .head_dim = 64, .granularity = 64, .window = 130, .first = 5, .indices = INDICES_ABSENT},

	{CORE("range"), SEE(40, 60), .window = 3, .features = ATTENTION_RANGE},
	{CORE("range of its own tensors"), SEE(40, 60), .features = ATTENTION_RANGE_CUT, .groups = 2},
};
/* clang-format on */

/* Each size over tile edges, at shapes that make the others small. */
static inline void add_attention_cases(struct suite_list *list)
{
	const struct attention_case base = {SEE(21, 70), .topk = 20};
	const struct attention_case dense = {SEE(9, 70, .full = true), .features = DENSE};
	const struct attention_case mha = {SEE(9, 40), .heads = 2, .kv_heads = 2};
	const struct attention_case bf16 = {SEE(9, 40), .dtype = BF16};
	const struct attention_case gather = {SEE(5, 200, .full = true), GATHER(16)};

	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
		suite_add(list, &table[i]);
#define SWEEP(base, field)                                                                 \
	suite_sweep(list, &base, #base " " #field, offsetof(struct attention_case, field), \
		    suite_edges, SUITE_EDGES)
	SWEEP(base, visible.rows);
	SWEEP(base, heads);
	SWEEP(base, head_dim);
	SWEEP(base, topk);
	SWEEP(base, window);
	SWEEP(dense, visible.keys);
	SWEEP(dense, head_dim);
	SWEEP(mha, value_dim);
	SWEEP(mha, granularity);
	SWEEP(mha, pool);
	SWEEP(bf16, head_dim);
	SWEEP(gather, topk);
#undef SWEEP
}

#endif
