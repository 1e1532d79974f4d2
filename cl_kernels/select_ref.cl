/* select_ref.cl - select, the plainest way: a work-item for each score. */
#include "select_pick.clh"

static inline float score(struct scoring sc, const __global void *q, long4 q_at,
			  const __global float *q_scale, long4 q_scale_at, const __global float *w,
			  long4 w_at, const struct keys *keys, long row, int group, long key)
{
	float sum = 0.0f;
	for (int j = group * sc.group_heads; j < (group + 1) * sc.group_heads; j++) {
		float dot = 0.0f;
		for (int d = 0; d < sc.dim; d++)
			dot = FMA(load_q(q, q_at, q_scale, q_scale_at, row, j, d),
				  load_k(keys, key, d), dot);
		sum = FMA(load_w(w, w_at, row, j), activate(sc, sc.scale * dot), sum);
	}
	return sum;
}

/* Work-items: positions, rows * groups. */
__kernel __attribute__((reqd_work_group_size(64, 1, 1))) void
score_keys(SCORE_ARGS, KEY_ARGS, __global uchar *lines, long lines_at, long line_size)
{
	struct keys keys = keys_of(sc, k, k_at, k_scale, k_scale_at, means, means_at);
	long line = (long)get_group_id(1), row = row_first + line / sc.groups;
	int2 seen = KEY_INTERVAL(row);
	long place = (long)get_global_id(0), key = line_first(seen.x) + place;
	if (key < seen.x || key >= seen.y)
		return;
	WORK(float, lines)
	[line * line_size + place] = score(sc, q, q_at, q_scale, q_scale_at, w, w_at, &keys, row,
					   (int)(line % sc.groups), key);
}

/* Work-items: entries of listed blocks, rows * groups. */
__kernel __attribute__((reqd_work_group_size(64, 1, 1))) void
score_kept(SCORE_ARGS, const __global uchar *lists, long lists_at, int slots, __global uchar *lines,
	   long lines_at)
{
	struct keys keys = {k, k_scale, k_at, k_scale_at, sc.dim, 0};
	long line = (long)get_group_id(1), row = row_first + line / sc.groups;
	long place = (long)get_global_id(0);
	const __global int *list = WORK(const int, lists) + line * (slots + 1);
	struct tiling t = TILE_ROW(row, 1);
	if (place >= (long)list[0] * sc.coarse)
		return;
	long entry = list[1 + place / sc.coarse] + place % sc.coarse;
	if (entry < t.begin || entry >= t.end)
		return;
	WORK(float, lines)
	[line * slots * sc.coarse + place] = score(sc, q, q_at, q_scale, q_scale_at, w, w_at, &keys,
						   row, (int)(line % sc.groups), entry);
}
