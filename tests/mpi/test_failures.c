/* One rank cannot do its part: all ranks get its status, nothing hangs, and the next call works. */
#include "ranks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "context_parallel.h"
#include "core.h"

static const struct step_case about = {"failures", .lengths = (const int32_t[]){50, 0, 1, 40, -1},
				       .sink = true};

static int ranks;
static bool ring;      /* keys go round; the loss does not */
static bool no_memory; /* on this rank, from now on */

struct job {
	struct hys_cp *cp;
	struct hys_cp_batch *batch;
	struct hys_plan *plan;
	struct hys_exec *exec;
	struct step whole, own;
};

static void *allocate(void *user, size_t bytes, size_t align)
{
	void *memory = NULL;

	(void)user;
	return no_memory || posix_memalign(&memory, align, bytes) != 0 ? NULL : memory;
}

static void release(void *user, void *pointer)
{
	(void)user;
	free(pointer);
}

/* The rank that fails: the last, where there are others that must hear of it. */
static bool failing(void)
{
	return this_rank == ranks - 1;
}

static void expect(const char *what, hys_status got, hys_status want, const struct hys_error *error,
		   const char *part)
{
	char rank[32];

	snprintf(rank, sizeof rank, "rank %d: ", ranks - 1);
	if (got != want || error->status != want)
		wrong("%s: %s (%s), expected %s", what, hys_status_name(got), error->message,
		      hys_status_name(want));
	else if (strncmp(error->message, rank, strlen(rank)) != 0 || !strstr(error->message, part))
		wrong("%s: the message is '%s', expected '%s...%s'", what, error->message, rank,
		      part);
}

/* All is well again: a whole step. */
static void expect_step(struct job *job, const char *after)
{
	const struct hys_select_args select = step_select(&job->own);
	const struct hys_attention_args forward = step_forward(&job->own);
	const struct hys_attention_grad_args backward = step_backward(&job->own);
	const struct hys_loss_args loss = step_loss(&job->own);
	struct hys_error error = {0};

	if (hys_cp_select(job->batch, job->exec, &select, &error) != HYS_OK ||
	    hys_cp_attention_forward(job->batch, job->exec, &forward, &error) != HYS_OK ||
	    hys_cp_attention_backward(job->batch, job->exec, &backward, &error) != HYS_OK ||
	    (!ring && hys_cp_indexer_loss(job->batch, job->exec, &loss, &error) != HYS_OK))
		wrong("after %s: %s", after, error.message);
}

/* ---- wrong arguments ---- */

static void test_arguments(struct job *job)
{
	struct hys_select_args select = step_select(&job->own);
	struct hys_attention_args forward = step_forward(&job->own);
	struct hys_attention_grad_args backward = step_backward(&job->own);
	struct hys_loss_args loss = step_loss(&job->own);
	struct hys_fidelity_args fidelity = step_fidelity(&job->own);
	struct hys_error error = {0};
	hys_status status;

	if (failing())
		select.index_k.shape[0]++;
	status = hys_cp_select(job->batch, job->exec, &select, &error);
	expect("too many keys", status, HYS_INVALID_ARGUMENT, &error, "index_k");
	expect_step(job, "too many keys");

	select = step_select(&job->own);
	if (failing())
		select.indices.dtype = HYS_F32;
	status = hys_cp_select(job->batch, job->exec, &select, &error);
	expect("a wrong type", status, HYS_INVALID_ARGUMENT, &error, "indices");
	expect_step(job, "a wrong type");

	if (failing())
		forward.q = (struct hys_tensor){0};
	status = hys_cp_attention_forward(job->batch, job->exec, &forward, &error);
	expect("no q", status, HYS_INVALID_ARGUMENT, &error, "q");
	expect_step(job, "no q");

	status = hys_cp_attention_backward(job->batch, failing() ? NULL : job->exec, &backward,
					   &error);
	expect("no exec", status, HYS_INVALID_ARGUMENT, &error, "exec");
	expect_step(job, "no exec");

	if (failing())
		backward.dk.shape[0] += 2;
	status = hys_cp_attention_backward(job->batch, job->exec, &backward, &error);
	expect("a large dk", status, HYS_INVALID_ARGUMENT, &error, "dk");
	expect_step(job, "a large dk");

	if (ring)
		return;
	if (failing())
		loss.struct_size = 3;
	status = hys_cp_indexer_loss(job->batch, job->exec, &loss, &error);
	expect("a small struct", status, HYS_INVALID_ARGUMENT, &error, "struct_size");
	expect_step(job, "a small struct");

	loss = step_loss(&job->own);
	if (failing())
		loss.q = (struct hys_tensor){0};
	status = hys_cp_indexer_loss(job->batch, job->exec, &loss, &error);
	expect("a loss without q", status, HYS_INVALID_ARGUMENT, &error, "q");
	expect_step(job, "a loss without q");

	status = hys_cp_fidelity(job->batch, job->exec, failing() ? NULL : &fidelity, &error);
	expect("no args", status, HYS_INVALID_ARGUMENT, &error, "NULL");
	expect_step(job, "no args");
}

/* Ranks that are in different calls hear of it. */
static void test_mismatch(struct job *job)
{
	const struct hys_select_args select = step_select(&job->own);
	const struct hys_attention_args forward = step_forward(&job->own);
	struct hys_loss_args loss = step_loss(&job->own);
	struct hys_error error = {0};
	hys_status status;

	if (ranks == 1)
		return;
	status = failing() ? hys_cp_select(job->batch, job->exec, &select, &error)
			   : hys_cp_attention_forward(job->batch, job->exec, &forward, &error);
	if (status != HYS_INVALID_ARGUMENT || !strstr(error.message, "same call"))
		wrong("different calls: %s", error.message);
	loss.divisor = failing() ? 7 : 0;
	if (!ring)
		status = hys_cp_indexer_loss(job->batch, job->exec, &loss, &error);
	if (!ring && (status != HYS_INVALID_ARGUMENT || !strstr(error.message, "same call")))
		wrong("different divisors: %s", error.message);
	expect_step(job, "different calls");
}

/* ---- memory ---- */

static void test_memory(struct job *job)
{
	const struct hys_cp_options options = {
		.struct_size = sizeof options, .allocate = allocate, .release = release};
	const struct hys_select_args select = step_select(&job->own);
	const struct hys_attention_grad_args backward = step_backward(&job->own);
	struct job other = *job;
	struct hys_error error = {0};
	hys_status status;

	other.batch = NULL;
	if (ranks == 1)
		return; /* nothing travels, nothing is allocated */
	if (hys_cp_create(job->cp->comm, &options, &other.cp, &error) != HYS_OK ||
	    hys_cp_batch_create(other.cp, job->plan, &job->whole.desc, &other.batch, &error) !=
		    HYS_OK)
		wrong("a job with memory of its own: %s", error.message);
	no_memory = failing();
	status = hys_cp_select(other.batch, job->exec, &select, &error);
	expect("no memory", status, HYS_OUT_OF_MEMORY, &error, "no memory");
	no_memory = false;
	status = hys_cp_select(other.batch, job->exec, &select, &error);
	if (status != HYS_OK)
		wrong("memory again: %s", error.message);
	no_memory = failing();
	status = hys_cp_attention_backward(other.batch, job->exec, &backward, &error);
	expect("no memory for gradients", status, HYS_OUT_OF_MEMORY, &error, "no memory");
	no_memory = false;
	expect_step(&other, "no memory");
	hys_cp_batch_destroy(other.batch);
	hys_cp_destroy(other.cp);
}

/* ---- devices ---- */

static hys_status lose(const struct hys_kernel *kernel, struct hys_stream *stream, void *instance,
		       const struct hys_call *call, struct hys_error *error)
{
	(void)kernel;
	(void)stream;
	(void)instance;
	(void)call;
	return hys_fail(error, HYS_DEVICE_FAILED, -36, "the device is gone");
}

/* Kernels of every operation fail in the middle, as those of a lost device do. */
static void test_device(struct job *job, uint32_t exec_flags)
{
	const struct hys_exec_options options = {.struct_size = sizeof options,
						 .flags = exec_flags};
	const struct hys_select_args select = step_select(&job->own);
	const struct hys_attention_args forward = step_forward(&job->own);
	const struct hys_attention_grad_args backward = step_backward(&job->own);
	const struct hys_loss_args loss = step_loss(&job->own);
	struct hys_kernel broken[HYS_OP_COUNT];
	const struct hys_kernel *kept[HYS_OP_COUNT];
	struct job other = *job;
	struct hys_error error = {0};

	if (hys_exec_create(job->plan, &options, &other.exec, &error) != HYS_OK)
		wrong("%s", error.message);
	for (int32_t op = 0; failing() && op < HYS_OP_COUNT; op++) {
		kept[op] = job->plan->choices[op].kernel;
		if (!kept[op])
			continue;
		broken[op] = *kept[op];
		broken[op].run = lose;
		job->plan->choices[op].kernel = &broken[op];
	}
	expect("select, device lost", hys_cp_select(job->batch, other.exec, &select, &error),
	       HYS_DEVICE_FAILED, &error, "gone");
	expect("forward, device lost",
	       hys_cp_attention_forward(job->batch, other.exec, &forward, &error),
	       HYS_DEVICE_FAILED, &error, "gone");
	expect("backward, device lost",
	       hys_cp_attention_backward(job->batch, other.exec, &backward, &error),
	       HYS_DEVICE_FAILED, &error, "gone");
	if (!ring)
		expect("loss, device lost",
		       hys_cp_indexer_loss(job->batch, other.exec, &loss, &error),
		       HYS_DEVICE_FAILED, &error, "gone");
	if (error.native != -36)
		wrong("device lost: native is %d, expected -36", error.native);
	for (int32_t op = 0; failing() && op < HYS_OP_COUNT; op++)
		job->plan->choices[op].kernel = kept[op];
	expect_step(&other, "a lost device");
	hys_exec_destroy(other.exec);
}

/* ---- batches and jobs ---- */

static void test_batches(struct job *job)
{
	struct hys_batch_desc desc = job->whole.desc;
	struct hys_cp_batch *batch = NULL;
	struct hys_cp_keys *keys = NULL;
	struct hys_tensor local = step_tensor(&job->own, K);
	struct hys_error error = {0};
	hys_status status;

	desc.rows += failing();
	status = hys_cp_batch_create(job->cp, job->plan, &desc, &batch, &error);
	expect("a wrong description", status, HYS_INVALID_ARGUMENT, &error, "desc");
	status = hys_cp_batch_create(job->cp, failing() ? NULL : job->plan, &job->whole.desc,
				     &batch, &error);
	expect("no plan", status, HYS_INVALID_ARGUMENT, &error, "plan");
	desc = job->whole.desc;
	desc.window = failing() ? 3 : 0;
	status = hys_cp_batch_create(job->cp, job->plan, &desc, &batch, &error);
	if (ranks > 1 && (status != HYS_INVALID_ARGUMENT || !strstr(error.message, "same")))
		wrong("different documents: %s", error.message);
	if (ranks == 1)
		hys_cp_batch_destroy(batch);
	else if (batch)
		wrong("a batch was made of different documents");
	local.rank = failing() ? 4 : 3;
	status = hys_cp_gather(job->batch, job->exec, HYS_CUT_KEYS, &local, &keys, &error);
	expect("keys of 4 dimensions", status, HYS_INVALID_ARGUMENT, &error, "dimensions");
	status = hys_cp_gather(job->batch, job->exec, failing() ? HYS_CUT_ROWS : HYS_CUT_KEYS,
			       &local, &keys, &error);
	expect("rows gathered", status, HYS_INVALID_ARGUMENT, &error, "part");
	expect_step(job, "wrong batches");
	if (hys_cp_select(NULL, job->exec, NULL, &error) != HYS_INVALID_ARGUMENT)
		wrong("a NULL batch is not refused");
	hys_cp_keys_destroy(NULL);
	hys_cp_batch_destroy(NULL);
	hys_cp_destroy(NULL);
}

static void test_options(MPI_Comm comm)
{
	struct hys_cp_options options = {.struct_size = sizeof options};
	struct hys_cp *cp = NULL;
	struct hys_error error = {0};
	hys_status status;

	options.slices = failing() ? -1 : 0;
	status = hys_cp_create(comm, &options, &cp, &error);
	expect("wrong options", status, HYS_INVALID_ARGUMENT, &error, "options.slices");
	options.slices = 0;
	options.way = failing() ? HYS_CUT_ZIGZAG : HYS_CUT_BALANCED;
	if (ranks > 1 && hys_cp_create(comm, &options, &cp, &error) != HYS_INVALID_ARGUMENT)
		wrong("different cuts are not refused");
	if (cp && ranks > 1)
		wrong("a job was made of wrong options");
}

static void open_job(struct job *job, struct hys_context *context, MPI_Comm comm)
{
	const struct hys_cp_options options = {.struct_size = sizeof options,
					       .mode = ring ? HYS_CP_RING : HYS_CP_GATHER};
	struct hys_error error = {0};

	step_make(&job->whole, &about);
	job->plan = step_plan(context, &job->whole, job->whole.desc.rows);
	if (hys_cp_create(comm, &options, &job->cp, &error) != HYS_OK ||
	    hys_cp_batch_create(job->cp, job->plan, &job->whole.desc, &job->batch, &error) !=
		    HYS_OK ||
	    hys_exec_create(job->plan, NULL, &job->exec, &error) != HYS_OK) {
		wrong("%s", error.message);
		MPI_Abort(MPI_COMM_WORLD, 1);
	}
	step_cut(&job->own, &job->whole, hys_cp_batch_cut(job->batch), this_rank);
}

static void close_job(struct job *job)
{
	step_free(&job->own);
	step_free(&job->whole);
	hys_exec_destroy(job->exec);
	hys_cp_batch_destroy(job->batch);
	hys_cp_destroy(job->cp);
	hys_plan_destroy(job->plan);
}

int main(int argc, char **argv)
{
	const struct hys_context_options options = {
		.struct_size = sizeof options, .devices = "openmp", .threads = 1};
	struct hys_context *context = NULL;
	struct job job = {0};
	struct hys_error error;
	int level, all = 0;

	MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level);
	MPI_Comm_rank(MPI_COMM_WORLD, &this_rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	if (hys_context_create(&options, &context, &error) != HYS_OK)
		MPI_Abort(MPI_COMM_WORLD, 1);
	test_options(MPI_COMM_WORLD);
	for (int mode = 0; mode < 2; mode++) {
		ring = mode == 1;
		open_job(&job, context, MPI_COMM_WORLD);
		test_arguments(&job);
		test_mismatch(&job);
		test_memory(&job);
		test_device(&job, 0);
		test_device(&job, HYS_EXEC_ASYNC);
		test_batches(&job);
		close_job(&job);
	}
	hys_context_destroy(context);
	MPI_Allreduce(&wrong_count, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	if (this_rank == 0)
		printf("%d ranks, failures: %d wrong\n", ranks, all);
	MPI_Finalize();
	return all != 0;
}
