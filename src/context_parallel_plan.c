/* What calls will move, before they do. */
#include "context_parallel.h"

#include "text.h"

/* ---- one call ---- */

static void add(struct hys_cp_traffic *traffic, const struct hys_cut_traffic *rows,
		int64_t row_bytes, bool back)
{
	traffic->sent_bytes += (back ? rows->received : rows->sent) * row_bytes;
	traffic->received_bytes += (back ? rows->sent : rows->received) * row_bytes;
	traffic->messages_sent += back ? rows->messages_received : rows->messages_sent;
	traffic->messages_received += back ? rows->messages_sent : rows->messages_received;
}

/* In a ring a rank hands on what every rank but the next owns, gradients of
 * all. */
static void add_ring(struct hys_cp_traffic *traffic, const struct hys_cp_batch *batch,
		     hys_cut_part part, int64_t row_bytes, bool back)
{
	const struct hys_cp *cp = batch->cp;

	for (int32_t rank = 0; rank < cp->ranks; rank++) {
		const int64_t bytes = hys_cut_count(batch->cut, part, rank) * row_bytes;
		const bool sent = back || rank != (cp->rank + 1) % cp->ranks;
		const bool received = back || rank != cp->rank;

		traffic->sent_bytes += sent ? bytes : 0;
		traffic->received_bytes += received ? bytes : 0;
		traffic->messages_sent += sent && bytes > 0;
		traffic->messages_received += received && bytes > 0;
	}
}

hys_status hys_cp_plan(const struct hys_cp_batch *batch, hys_op op, const void *args,
		       struct hys_cp_traffic *traffic, struct hys_error *error)
{
	const struct hys_cp_op *about = hys_cp_op_of(op);
	struct hys_cp_traffic made = {0};
	bool round;

	if (!batch || !args || !traffic)
		return hys_fail(error, HYS_INVALID_ARGUMENT, 0, "%s is NULL",
				!batch	? "batch"
				: !args ? "args"
					: "traffic");
	if (!about)
		return hys_fail(error, HYS_INVALID_ARGUMENT, 0,
				"op is %s, expected one that reads keys", hys_op_name(op));
	round = hys_cp_goes_round(batch, about, args);
	for (int32_t i = 0; i < about->count; i++) {
		const struct hys_cp_field *field = &about->fields[i];
		const struct hys_tensor *tensor =
			hys_cp_field_tensor(field, (void *)(uintptr_t)args);
		const bool back = field->use == HYS_CP_SUM;
		int64_t row_bytes = hys_cp_row_bytes(tensor);
		struct hys_cut_traffic rows;

		if (!hys_cp_is_present(tensor) || field->use == HYS_CP_TOTAL ||
		    (!back && !round && hys_cp_keys_of(batch->cp, tensor)))
			continue;
		if (back)
			row_bytes = row_bytes / (int64_t)hys_dtype_size(tensor->dtype) * 4;
		if (round) {
			add_ring(&made, batch, field->part, row_bytes, back);
			continue;
		}
		rows = hys_cut_traffic(batch->cut, field->part, batch->cp->rank);
		if (back && hys_cut_slices(batch->cut) > 1)
			rows.messages_sent = rows.messages_received = 0; /* one to each rank */
		add(&made, &rows, row_bytes, back);
	}
	*traffic = made;
	return HYS_OK;
}

/* ---- for people ---- */

/* Ranks shown before the rest is left out. */
#define SHOWN 16

static double percent(int64_t part, int64_t whole)
{
	return whole > 0 ? 100 * (double)part / (double)whole : 0;
}

/* One decimal, without the locale's point. */
static void add_percent(struct hys_text *text, int64_t part, int64_t whole)
{
	const int64_t tenths = (int64_t)(percent(part, whole) * 10 + 0.5);

	hys_text_add(text, "%lld.%d%%", (long long)(tenths / 10), (int)(tenths % 10));
}

static int64_t needed(const struct hys_cut *cut, hys_cut_part part, int32_t rank)
{
	const struct hys_span *runs;
	const int32_t count = hys_cut_needed(cut, part, rank, &runs);
	int64_t sum = 0;

	for (int32_t i = 0; i < count; i++)
		sum += runs[i].count;
	return sum;
}

static void add_rank(struct hys_text *text, const struct hys_cut *cut, int32_t rank,
		     int64_t all_pairs)
{
	const size_t start = text->length;
	const struct hys_span *runs;
	struct hys_cut_traffic traffic = hys_cut_traffic(cut, HYS_CUT_KEYS, rank);

	hys_text_add(text, "%d", rank);
	hys_text_pad(text, start, 6);
	hys_text_add(text, "%lld in %d", (long long)hys_cut_count(cut, HYS_CUT_ROWS, rank),
		     hys_cut_owned(cut, HYS_CUT_ROWS, rank, &runs));
	hys_text_pad(text, start, 24);
	add_percent(text, hys_cut_key_pairs(cut, rank), all_pairs);
	hys_text_pad(text, start, 34);
	hys_text_add(text, "%lld", (long long)needed(cut, HYS_CUT_KEYS, rank));
	hys_text_pad(text, start, 46);
	hys_text_add(text, "%lld", (long long)traffic.received);
	hys_text_pad(text, start, 58);
	traffic = hys_cut_traffic(cut, HYS_CUT_ENTRIES, rank);
	hys_text_add(text, "%lld\n", (long long)traffic.received);
}

size_t hys_cp_describe(const struct hys_cp_batch *batch, char *text, size_t size)
{
	struct hys_text out = {text, text ? size : 0, 0};
	int64_t pairs = 0;

	if (text && size > 0)
		text[0] = '\0';
	if (!batch)
		return 0;
	const struct hys_cut *cut = batch->cut;
	const struct hys_cp *cp = batch->cp;

	for (int32_t rank = 0; rank < cp->ranks; rank++)
		pairs += hys_cut_key_pairs(cut, rank);
	hys_text_add(&out, "%lld rows, %lld keys over %d ranks, %s, %s\n",
		     (long long)hys_cut_size(cut, HYS_CUT_ROWS),
		     (long long)hys_cut_size(cut, HYS_CUT_KEYS), cp->ranks,
		     hys_cut_way_name(cp->way),
		     cp->mode == HYS_CP_RING ? "keys in a ring" : "keys gathered");
	hys_text_add(&out, "rank  rows in runs      pairs     keys seen   received    "
			   "entries received\n");
	for (int32_t rank = 0; rank < cp->ranks && rank < SHOWN; rank++)
		add_rank(&out, cut, rank, pairs);
	if (cp->ranks > SHOWN)
		hys_text_add(&out, "and %d more\n", cp->ranks - SHOWN);
	return out.length;
}
