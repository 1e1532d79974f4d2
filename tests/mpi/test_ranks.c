/* Every operation on as many ranks as mpirun starts: the same picks and bits as on one rank, gradients within the
 * tolerance, bytes as planned; run by tests/CMakeLists.txt with 1, 2, 3, 4 and 7. */
#include "ranks.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "context_parallel.h"
#include "place.h"

#define LENGTHS(...) ((const int32_t[]){__VA_ARGS__, -1})
#define DOCUMENTS .lengths = LENGTHS(50, 0, 1, 40, 7, 23)

static const struct step_case cases[] = {
	{"one document", .rows = 90},
	{"integers", .rows = 90, .exact = true},
	{"documents, GQA, groups", DOCUMENTS, .kv_heads = 2, .groups = 2},
	{"MLA, bf16, sink", .lengths = LENGTHS(60, 44), .dtype = HYS_BF16, .index_dtype = HYS_BF16,
	 .head_dim = 40, .value_dim = 32, .shared = true, .sink = true},
	{"window, first, f16", DOCUMENTS, .dtype = HYS_F16, .window = 5, .first = 2},
	{"dense", DOCUMENTS, .dense = true, .kv_heads = 4},
	{"blocks, forced", DOCUMENTS, .block = 4, .first_blocks = 1, .local_blocks = 2},
	{"pools, second source", .lengths = LENGTHS(61, 0, 35, 3), .pool = 4, .window_keys = 99,
	 .sink = true},
	{"coarse to fine", .rows = 120, .coarse_block = 8, .method = HYS_METHOD_COARSE_TO_FINE},
	{"coarse", .rows = 120, .block = 8, .coarse_block = 8, .method = HYS_METHOD_COARSE},
	{"f8", .rows = 70, .index_dtype = HYS_F8E4M3},
	{"more keys than rows", .lengths = LENGTHS(20, 0, 1, 40),
	 .key_lengths = LENGTHS(60, 2, 1, 70), .window_keys = 31},
	{"sampled", DOCUMENTS, .row_stride = 3, .sum = true},
	{"sampled mean", .rows = 80, .row_stride = 4},
	{"own divisor", .rows = 80, .divisor = 33},
	{"positions", .rows = 60, .keys = 75, .positions = true},
	{"fewer rows than ranks", .rows = 3},
	{"one row", .rows = 1},
};

static MPI_Comm comm; /* not MPI_COMM_WORLD, and in another order */
static int ranks;

/* ---- what MPI is given, counted beside the library ---- */

static int64_t given_bytes;

int MPI_Isend(const void *memory, int count, MPI_Datatype type, int to, int tag, MPI_Comm on,
	      MPI_Request *request)
{
	int size;

	PMPI_Type_size(type, &size);
	given_bytes += (int64_t)size * count;
	if (on == MPI_COMM_WORLD || on == comm)
		wrong("sends on a communicator that is not its own");
	return PMPI_Isend(memory, count, type, to, tag, on, request);
}

/* ---- comparing ---- */

static double tolerance_of(hys_dtype dtype)
{
	return dtype == HYS_F16 ? 4e-3 : dtype == HYS_BF16 ? 1e-2 : 1e-4;
}

/* The rank's rows of an output against those of one rank; tolerance 0 = the same bits. */
static void compare(const struct step *own, const struct step *whole, const struct hys_cut *cut,
		    enum step_array which, double tolerance)
{
	const struct array *got = &own->arrays[which], *want = &whole->arrays[which];
	const struct hys_span all = {0, want->rows}, *runs = &all;
	const int64_t row = want->n1 * want->n2, size = (int64_t)hys_dtype_size(want->dtype);
	double difference = 0, norm = 0;
	int64_t at = 0;
	int32_t count = 1;

	if (!want->name)
		return;
	if (want->part != HYS_CUT_PART_COUNT)
		count = hys_cut_owned(cut, want->part, hys_cut_ranks(cut) == 1 ? 0 : this_rank,
				      &runs);
	for (int32_t r = 0; r < count; at += runs[r++].count) {
		const char *a = got->data + at * row * size,
			   *b = want->data + runs[r].first * row * size;

		if (tolerance == 0 && memcmp(a, b, (size_t)(runs[r].count * row * size)) != 0) {
			wrong("%s: %s of rows %lld to %lld has other bits", own->about->name,
			      want->name, (long long)runs[r].first,
			      (long long)(runs[r].first + runs[r].count));
			return;
		}
		for (int64_t i = 0; tolerance > 0 && i < runs[r].count * row; i++) {
			const double x = element_get(want->dtype, a, i),
				     y = element_get(want->dtype, b, i);

			difference += (x - y) * (x - y);
			norm += y * y;
		}
	}
	if (tolerance > 0 && !(sqrt(difference) <= tolerance * sqrt(norm) + 1e-6))
		wrong("%s: %s differs by %.3g of %.3g", own->about->name, want->name,
		      sqrt(difference), sqrt(norm));
}

/* ---- one rank ---- */

static void check(const struct step *step, const char *what, hys_status status,
		  const struct hys_error *error)
{
	if (status != HYS_OK)
		wrong("%s: %s: %s", step->about->name, what, error->message);
}

static bool has_loss(const struct step *step)
{
	const struct step_case *c = step->about;

	return c->index_dtype != HYS_F8E4M3 && !c->dense;
}

static void run_alone(struct step *step, struct hys_context *context)
{
	struct hys_plan *plan = step_plan(context, step, step->desc.rows);
	struct hys_select_args select = step_select(step);
	struct hys_attention_args forward = step_forward(step);
	struct hys_attention_grad_args backward = step_backward(step);
	struct hys_loss_args loss = step_loss(step);
	struct hys_fidelity_args fidelity = step_fidelity(step);
	struct hys_batch *batch = NULL;
	struct hys_exec *exec = NULL;
	struct hys_error error;

	check(step, "batch", hys_batch_create(plan, &step->desc, &batch, &error), &error);
	check(step, "exec", hys_exec_create(plan, NULL, &exec, &error), &error);
	check(step, "select", hys_select(exec, batch, &select, &error), &error);
	check(step, "forward", hys_attention_forward(exec, batch, &forward, &error), &error);
	check(step, "backward", hys_attention_backward(exec, batch, &backward, &error), &error);
	if (has_loss(step))
		check(step, "loss", hys_indexer_loss(exec, batch, &loss, &error), &error);
	memset(step->arrays[MASS].data, 0x55,
	       (size_t)(step->desc.rows * step->arrays[MASS].n1 * 4));
	memset(step->arrays[RECALL].data, 0x55,
	       (size_t)(step->desc.rows * step->arrays[RECALL].n1 * 4));
	check(step, "fidelity", hys_fidelity(exec, batch, &fidelity, &error), &error);
	check(step, "finish", hys_exec_finish(exec, &error), &error);
	hys_exec_destroy(exec);
	hys_batch_destroy(batch);
	hys_plan_destroy(plan);
}

/* ---- all ranks ---- */

struct job {
	struct hys_cp *cp;
	struct hys_cp_batch *batch;
	struct hys_plan *plan;
	struct hys_exec *exec;
	struct step own;
};

static void check_bytes(const struct job *job, const char *what,
			const struct hys_cp_traffic *before, const struct hys_cp_traffic *planned,
			int64_t given)
{
	const struct hys_cp_traffic now = hys_cp_counted(job->cp);
	const int64_t sent = now.sent_bytes - before->sent_bytes,
		      received = now.received_bytes - before->received_bytes;

	if (sent != planned->sent_bytes || received != planned->received_bytes ||
	    given_bytes - given != sent)
		wrong("%s: %s sent %lld and received %lld bytes, planned were %lld and %lld; MPI "
		      "was given %lld",
		      job->own.about->name, what, (long long)sent, (long long)received,
		      (long long)planned->sent_bytes, (long long)planned->received_bytes,
		      (long long)(given_bytes - given));
}

#define RUN(op, number, args)                                                                      \
	do {                                                                                       \
		struct hys_cp_traffic planned = {0}, before = hys_cp_counted(job->cp);             \
		const int64_t given = given_bytes;                                                 \
		check(&job->own, "plan", hys_cp_plan(job->batch, number, &args, &planned, &error), \
		      &error);                                                                     \
		check(&job->own, #op, op(job->batch, job->exec, &args, &error), &error);           \
		check_bytes(job, #op, &before, &planned, given);                                   \
	} while (0)

/* What `hyscale plan --ranks` says of a step's bytes against what was counted. */
static void check_price(const struct job *job, const struct hys_cp_traffic *before)
{
	struct hys_network network = {.struct_size = sizeof network, .bytes_per_s = 1e9};
	const struct hys_cp_traffic now = hys_cp_counted(job->cp);
	const double sent = (double)(now.sent_bytes - before->sent_bytes);
	const double received = (double)(now.received_bytes - before->received_bytes);
	struct hys_rank_cost *costs = calloc((size_t)ranks, sizeof *costs);
	struct hys_error error;
	double rows;

	if (hys_cut_price(hys_cp_batch_cut(job->batch), job->plan, &network, costs, &error) !=
	    HYS_OK)
		wrong("%s: %s", job->own.about->name, error.message);
	else if (fabs((double)costs[this_rank].sent_bytes - sent) > 0.05 * sent ||
		 fabs((double)costs[this_rank].received_bytes - received) > 0.05 * received)
		wrong("%s: a step sent %.0f and received %.0f bytes, priced were %lld and %lld",
		      job->own.about->name, sent, received, (long long)costs[this_rank].sent_bytes,
		      (long long)costs[this_rank].received_bytes);
	network.flops_per_s[HYS_OP_ATTENTION_FORWARD] = 1e30;
	network.row_s[HYS_OP_ATTENTION_FORWARD] = 1;
	rows = (double)hys_cut_count(hys_cp_batch_cut(job->batch), HYS_CUT_ROWS, this_rank);
	if (hys_cut_price(hys_cp_batch_cut(job->batch), job->plan, &network, costs, &error) !=
		    HYS_OK ||
	    fabs(costs[this_rank].op_s[HYS_OP_ATTENTION_FORWARD] - rows) > 0.01 * rows + 1e-3)
		wrong("%s: rows of a second each take %g s, expected %g", job->own.about->name,
		      costs[this_rank].op_s[HYS_OP_ATTENTION_FORWARD], rows);
	free(costs);
}

/* All that was gathered is there, and counted: calls wait for what they use only. */
static void arrive(const struct job *job, struct hys_cp_keys *keys)
{
	struct hys_error error = {0};

	if (keys)
		check(&job->own, "arrive",
		      hys_cp_keys_await(keys, job->exec,
					hys_cut_slices(hys_cp_batch_cut(job->batch)), &error),
		      &error);
}

/* ---- several gathers on their way ---- */

/* Of each key that the rank owns, its number among all. */
static struct hys_cp_keys *number_keys(const struct job *job, int32_t first, int32_t *numbers)
{
	const struct hys_cut *cut = hys_cp_batch_cut(job->batch);
	const int64_t count = hys_cut_count(cut, HYS_CUT_KEYS, this_rank);
	const struct hys_tensor local = {
		.host = numbers, .dtype = HYS_I32, .rank = 1, .shape = {count}};
	const struct hys_span *runs;
	const int32_t run_count = hys_cut_owned(cut, HYS_CUT_KEYS, this_rank, &runs);
	struct hys_cp_keys *keys = NULL;
	struct hys_error error;

	for (int32_t i = 0; i < run_count; i++)
		for (int64_t k = 0; k < runs[i].count; k++)
			*numbers++ = first + (int32_t)(runs[i].first + k);
	check(&job->own, "prepare",
	      hys_cp_keys_prepare(job->batch, job->exec, HYS_CUT_KEYS, &local, &keys, &error),
	      &error);
	return keys;
}

static void check_numbers(const struct job *job, struct hys_cp_keys *keys, int32_t first)
{
	const struct hys_span *runs;
	const int32_t count =
		hys_cut_needed(hys_cp_batch_cut(job->batch), HYS_CUT_KEYS, this_rank, &runs);
	int64_t differ = 0;

	arrive(job, keys);
	for (int32_t i = 0; i < count; i++)
		for (int64_t k = runs[i].first; k < runs[i].first + runs[i].count; k++)
			differ += ((const int32_t *)keys->tensor.host)[k] != first + (int32_t)k;
	if (differ > 0)
		wrong("%s: %lld keys are those of another gather", job->own.about->name,
		      (long long)differ);
	hys_cp_keys_destroy(keys);
}

/* Keys of one gather are not those of another, whichever has set out first on a rank. */
static void check_order(const struct job *job)
{
	const int64_t count = hys_cut_count(hys_cp_batch_cut(job->batch), HYS_CUT_KEYS, this_rank);
	int32_t *numbers = calloc(2 * (size_t)count + 1, sizeof *numbers);
	struct hys_cp_keys *first = number_keys(job, 0, numbers);
	struct hys_cp_keys *second = number_keys(job, 1000000, numbers + count);
	const bool late = this_rank % 2 == 1;
	struct hys_error error;

	if (late)
		first->posted_out = first->out.count;
	check(&job->own, "post", hys_cp_keys_post(first, &error), &error);
	check(&job->own, "post", hys_cp_keys_post(second, &error), &error);
	if (late)
		first->posted_out = 0;
	check(&job->own, "send", hys_cp_keys_send(first, &error), &error);
	check_numbers(job, first, 0);
	check_numbers(job, second, 1000000);
	free(numbers);
}

/* `once`: keys are gathered before, and serve all. */
static void run_shared(struct job *job, bool once)
{
	struct step *own = &job->own;
	struct hys_select_args select = step_select(own);
	struct hys_attention_args forward = step_forward(own);
	struct hys_attention_grad_args backward = step_backward(own);
	struct hys_loss_args loss = step_loss(own);
	struct hys_fidelity_args fidelity = step_fidelity(own);
	struct hys_cp_keys *index_keys = NULL, *keys = NULL, *values = NULL;
	const struct hys_cp_traffic start = hys_cp_counted(job->cp);
	struct hys_error error;

	if (once && !own->about->shared) {
		check(own, "gather",
		      hys_cp_gather(job->batch, job->exec, HYS_CUT_KEYS, &forward.v, &values,
				    &error),
		      &error);
		forward.v = backward.v = hys_cp_keys_tensor(values);
	}
	if (once) {
		check(own, "gather",
		      hys_cp_gather(job->batch, job->exec, HYS_CUT_ENTRIES, &select.index_k,
				    &index_keys, &error),
		      &error);
		check(own, "gather",
		      hys_cp_gather(job->batch, job->exec, HYS_CUT_KEYS, &forward.k, &keys, &error),
		      &error);
		select.index_k = loss.index_k = hys_cp_keys_tensor(index_keys);
		forward.k = backward.k = loss.k = fidelity.k = hys_cp_keys_tensor(keys);
		check(own, "select", hys_cp_select(job->batch, job->exec, &select, &error), &error);
		arrive(job, index_keys);
		arrive(job, keys);
		arrive(job, values);
	} else {
		RUN(hys_cp_select, HYS_OP_SELECT, select);
	}
	RUN(hys_cp_attention_forward, HYS_OP_ATTENTION_FORWARD, forward);
	RUN(hys_cp_attention_backward, HYS_OP_ATTENTION_BACKWARD, backward);
	if (has_loss(own))
		RUN(hys_cp_indexer_loss, HYS_OP_INDEXER_LOSS, loss);
	RUN(hys_cp_fidelity, HYS_OP_FIDELITY, fidelity);
	if (once && has_loss(own) && own->about->window_keys == 0)
		check_price(job, &start);
	hys_cp_keys_destroy(values);
	hys_cp_keys_destroy(index_keys);
	hys_cp_keys_destroy(keys);
}

static void compare_all(const struct step *own, const struct step *whole, const struct hys_cut *cut)
{
	const double tolerance = tolerance_of(whole->problem.attending.dtype);

	compare(own, whole, cut, INDICES, 0);
	compare(own, whole, cut, COUNTS, 0);
	compare(own, whole, cut, SCORES, 0);
	compare(own, whole, cut, KTH, 0);
	compare(own, whole, cut, O, 0);
	compare(own, whole, cut, LSE, 0);
	for (enum step_array which = DQ; which <= DWINDOW_V; which++)
		compare(own, whole, cut, which, tolerance);
	if (has_loss(whole))
		for (enum step_array which = LOSS; which <= TEACHER; which++)
			compare(own, whole, cut, which, which == LOSS ? 1e-5 : 1e-4);
	compare(own, whole, cut, MASS, 0);
	compare(own, whole, cut, RECALL, 0);
}

/* ---- in a ring ---- */

static bool selects_in_ring(const struct step_case *c)
{
	return c->method <= HYS_METHOD_EXACT && !c->first_blocks && !c->local_blocks;
}

static bool attends_in_ring(const struct step_case *c)
{
	return !c->window && !c->first && (c->dense || c->block <= 1);
}

static void expect_refusal(const struct step *step, const char *what, hys_status status,
			   const struct hys_error *error)
{
	if (ranks > 1 && (status != HYS_UNSUPPORTED || !strstr(error->message, "ring")))
		wrong("%s: %s in a ring: %s", step->about->name, what, error->message);
}

/* What a ring refuses takes gathered keys there. */
static void run_ring(struct job *job, const struct step *whole)
{
	struct step *own = &job->own;
	struct hys_select_args select = step_select(own);
	struct hys_attention_args forward = step_forward(own);
	struct hys_attention_grad_args backward = step_backward(own);
	struct hys_loss_args loss = step_loss(own);
	struct hys_fidelity_args fidelity = step_fidelity(own);
	struct hys_cp_keys *index_keys = NULL, *keys = NULL;
	struct hys_error error = {0};

	if (selects_in_ring(whole->about))
		RUN(hys_cp_select, HYS_OP_SELECT, select);
	else
		expect_refusal(own, "select", hys_cp_select(job->batch, job->exec, &select, &error),
			       &error);
	check(own, "gather",
	      hys_cp_gather(job->batch, job->exec, HYS_CUT_ENTRIES, &select.index_k, &index_keys,
			    &error),
	      &error);
	check(own, "gather",
	      hys_cp_gather(job->batch, job->exec, HYS_CUT_KEYS, &forward.k, &keys, &error),
	      &error);
	arrive(job, index_keys);
	arrive(job, keys);
	loss.index_k = hys_cp_keys_tensor(index_keys);
	loss.k = fidelity.k = hys_cp_keys_tensor(keys);
	if (!selects_in_ring(whole->about)) {
		select.index_k = loss.index_k;
		check(own, "select", hys_cp_select(job->batch, job->exec, &select, &error), &error);
	}
	check(own, "fidelity", hys_cp_fidelity(job->batch, job->exec, &fidelity, &error), &error);
	if (attends_in_ring(whole->about)) {
		RUN(hys_cp_attention_forward, HYS_OP_ATTENTION_FORWARD, forward);
		RUN(hys_cp_attention_backward, HYS_OP_ATTENTION_BACKWARD, backward);
	} else {
		expect_refusal(own, "forward",
			       hys_cp_attention_forward(job->batch, job->exec, &forward, &error),
			       &error);
		expect_refusal(own, "backward",
			       hys_cp_attention_backward(job->batch, job->exec, &backward, &error),
			       &error);
	}
	loss.index_k = step_tensor(own, INDEX_K);
	loss.k = fidelity.k = step_tensor(own, K);
	if (has_loss(own))
		expect_refusal(own, "loss",
			       hys_cp_indexer_loss(job->batch, job->exec, &loss, &error), &error);
	expect_refusal(own, "fidelity", hys_cp_fidelity(job->batch, job->exec, &fidelity, &error),
		       &error);
	loss.index_k = hys_cp_keys_tensor(index_keys);
	loss.k = fidelity.k = hys_cp_keys_tensor(keys);
	if (has_loss(own) && attends_in_ring(whole->about))
		RUN(hys_cp_indexer_loss, HYS_OP_INDEXER_LOSS, loss);
	RUN(hys_cp_fidelity, HYS_OP_FIDELITY, fidelity);
	hys_cp_keys_destroy(index_keys);
	hys_cp_keys_destroy(keys);
}

/* Merged partials are rounded once more. */
static void compare_ring(const struct step *own, const struct step *whole,
			 const struct hys_cut *cut)
{
	const hys_dtype dtype = whole->problem.attending.dtype;
	const double tolerance = dtype == HYS_F16 ? 2e-3 : dtype == HYS_BF16 ? 6e-3 : 1e-5;

	compare(own, whole, cut, INDICES, 0);
	compare(own, whole, cut, COUNTS, 0);
	compare(own, whole, cut, SCORES, 0);
	compare(own, whole, cut, KTH, 0);
	if (!attends_in_ring(whole->about))
		return;
	compare(own, whole, cut, O, tolerance);
	for (enum step_array which = DQ; which <= DWINDOW_V; which++)
		compare(own, whole, cut, which, tolerance_of(dtype));
	if (has_loss(whole))
		for (enum step_array which = LOSS; which <= TEACHER; which++)
			compare(own, whole, cut, which, which == LOSS ? 1e-5 : 1e-4);
}

static void run_case(const struct step_case *about, struct hys_context *context, struct hys_cp *cp,
		     bool once, bool ring)
{
	struct job job = {.cp = cp};
	struct step whole;
	struct hys_error error;

	step_make(&whole, about);
	run_alone(&whole, context);
	job.plan = step_plan(context, &whole, whole.desc.rows);
	check(&whole, "cp batch",
	      hys_cp_batch_create(cp, job.plan, &whole.desc, &job.batch, &error), &error);
	check(&whole, "exec", hys_exec_create(job.plan, NULL, &job.exec, &error), &error);
	step_cut(&job.own, &whole, hys_cp_batch_cut(job.batch), this_rank);
	if (ring) {
		run_ring(&job, &whole);
		compare_ring(&job.own, &whole, hys_cp_batch_cut(job.batch));
	} else {
		run_shared(&job, once);
		if (!job.batch->on_device)
			check_order(&job);
		compare_all(&job.own, &whole, hys_cp_batch_cut(job.batch));
	}
	step_free(&job.own);
	step_free(&whole);
	hys_exec_destroy(job.exec);
	hys_cp_batch_destroy(job.batch);
	hys_plan_destroy(job.plan);
}

static void run_cases(struct hys_context *context)
{
	const char *filter = getenv("HYS_TEST_FILTER");

	for (int i = 0; i < 2 * HYS_CUT_WAY_COUNT; i++) {
		const bool ring = i >= HYS_CUT_WAY_COUNT;
		struct hys_cp_options options = {.struct_size = sizeof options,
						 .way = (hys_cut_way)(i % HYS_CUT_WAY_COUNT),
						 .mode = ring ? HYS_CP_RING : HYS_CP_GATHER,
						 .slices = i == 1 ? 1 : 3};
		struct hys_cp *cp = NULL;
		struct hys_error error;

		if (hys_cp_create(comm, &options, &cp, &error) != HYS_OK) {
			wrong("%s", error.message);
			return;
		}
		for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++)
			if (!filter || strstr(cases[c].name, filter))
				run_case(&cases[c], context, cp, i == 2, ring);
		hys_cp_destroy(cp);
	}
}

int main(int argc, char **argv)
{
	const char *devices = getenv("HYS_TEST_DEVICES");
	const struct hys_context_options options = {.struct_size = sizeof options,
						    .devices = devices ? devices : "openmp",
						    .threads = 1};
	struct hys_context *context = NULL;
	struct hys_error error;
	int level, world, all = 0;
	hys_status status;

	MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level);
	MPI_Comm_rank(MPI_COMM_WORLD, &world);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	MPI_Comm_split(MPI_COMM_WORLD, 0, -world, &comm);
	MPI_Comm_rank(comm, &this_rank);
	status = hys_context_create(&options, &context, &error);
	if (status == HYS_NO_PLATFORM || status == HYS_NO_DEVICE) {
		printf("skipped: %s\n", error.message);
		MPI_Finalize();
		return 77;
	}
	if (status != HYS_OK)
		wrong("%s", error.message);
	else
		run_cases(context);
	hys_context_destroy(context);
	MPI_Allreduce(&wrong_count, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	if (world == 0)
		printf("%d ranks, %zu cases, 3 cuts, gathered and in a ring: %d wrong\n", ranks,
		       sizeof cases / sizeof cases[0], all);
	MPI_Comm_free(&comm);
	MPI_Finalize();
	return all != 0;
}
