/* Lanes: a ring of tasks with one producer, the exec's user, and one consumer.
 * Two semaphores count what is filled and what is empty; nothing is locked. */
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <string.h>

#include "clock.h"
#include "lane.h"

/* A thread that sleeps takes tens of microseconds to come back: as long as a
 * small call. Who has nothing to do looks for the next call so long; who waits
 * for others, in the middle of one, so long. Then they sleep. */
#define IDLE_S 100e-6
#define MEETING_S 10e-3

void hys_semaphore_wait(sem_t *semaphore)
{
	while (sem_wait(semaphore) != 0 && errno == EINTR)
		;
}

/* ---- patience ---- */

/* Whether the device has rows of any operation. */
static bool computes(const struct hys_plan *plan, int32_t i)
{
	for (int32_t op = 0; op < HYS_OP_COUNT; op++)
		if (plan->operations & HYS_OP_BIT(op) && !hys_plan_pace(plan, (hys_op)op, i)->idle)
			return true;
	return false;
}

/* Each thread has a core to itself, and as many are left to others. Processors that
 * compute are among those others. */
bool hys_exec_may_look(const struct hys_plan *plan)
{
	const struct hys_host *host = &plan->context->host;
	const int64_t threads = plan->device_count + INT64_C(1);
	int64_t cpus = host->cpus_allowed;

	for (int32_t i = 0; i < plan->device_count; i++)
		if (plan->devices[i]->host_memory && computes(plan, i))
			return false;
	if (host->cpus_quota > 0)
		cpus = hys_min64(cpus, host->cpus_quota);
	return cpus >= 2 * threads;
}

static struct hys_patience patience_for(const struct hys_exec *exec, double seconds)
{
	return (struct hys_patience){.end_s = exec->looks ? hys_now_s() + seconds : 0};
}

struct hys_patience hys_patience_of(const struct hys_exec *exec)
{
	return patience_for(exec, MEETING_S);
}

/* Others may have the core meanwhile. */
bool hys_patience_is_left(const struct hys_patience *patience)
{
	if (!(patience->end_s > 0) || hys_now_s() >= patience->end_s)
		return false;
	(void)sched_yield();
	return true;
}

static void wait_patiently(sem_t *semaphore, const struct hys_patience *patience)
{
	do {
		if (sem_trywait(semaphore) == 0)
			return;
	} while (hys_patience_is_left(patience));
	hys_semaphore_wait(semaphore);
}

static void wait_for_task(struct hys_lane *lane)
{
	const struct hys_patience patience = patience_for(lane->exec, IDLE_S);

	wait_patiently(&lane->filled, &patience);
}

/* ---- failures ---- */

/* The first failure of a lane is kept, and which lane was the first. Its
 * message is written before anybody can see that there is one. */
static void note_failure(struct hys_exec *exec, int32_t index, hys_status status,
			 const struct hys_error *error)
{
	struct hys_lane *lane = &exec->lanes[index];
	int none = 0;

	if (atomic_load_explicit(&lane->failed, memory_order_relaxed))
		return;
	lane->error = *error;
	lane->error.status = status;
	atomic_store_explicit(&lane->failed, 1, memory_order_release);
	atomic_compare_exchange_strong(&exec->first_failed, &none, index + 1);
}

hys_status hys_exec_failure(const struct hys_exec *exec, struct hys_error *error)
{
	int first = atomic_load_explicit(&exec->first_failed, memory_order_acquire);
	const struct hys_error *failure;

	if (first == 0)
		return HYS_OK;
	failure = &exec->lanes[first - 1].error;
	return hys_fail(error, failure->status, failure->native, "%s", failure->message);
}

/* ---- tasks ---- */

static void run_task(struct hys_exec *exec, int32_t index, const struct hys_task *task)
{
	const struct hys_backend *backend = exec->plan->devices[index]->backend;
	struct hys_lane *lane = &exec->lanes[index];
	struct hys_error error = {HYS_OK, 0, ""};
	hys_status status;

	if (!task->always && hys_exec_failure(exec, NULL) != HYS_OK)
		return;
	lane->idle = lane->idle && task->finishes;
	status = task->run(exec, index, task, &error);
	/* Nothing is to be had from a device that was dropped. */
	if (status == HYS_OK && !exec->native && !task->lingers && !lane->idle && backend->flush &&
	    !atomic_load(&lane->dropped))
		status = backend->flush(lane->stream, &error);
	if (status != HYS_OK)
		note_failure(exec, index, status, &error);
}

hys_status hys_lane_finish(struct hys_exec *exec, int32_t index, struct hys_error *error)
{
	struct hys_lane *lane = &exec->lanes[index];
	const hys_status status = exec->plan->devices[index]->backend->finish(lane->stream, error);

	lane->idle = status == HYS_OK && !exec->native;
	return status;
}

static void put_task(struct hys_lane *lane, const struct hys_task *task)
{
	hys_semaphore_wait(&lane->empty);
	lane->tasks[lane->head++ & (HYS_LANE_TASKS - 1)] = *task;
	sem_post(&lane->filled);
}

hys_status hys_exec_submit(struct hys_exec *exec, int32_t index, const struct hys_task *task,
			   struct hys_error *error)
{
	struct hys_lane *lane = &exec->lanes[index];
	hys_status status = hys_exec_failure(exec, error);

	if (status != HYS_OK && !task->always)
		return status;
	if (lane->threaded) {
		put_task(lane, task);
		return HYS_OK;
	}
	run_task(exec, index, task);
	return hys_exec_failure(exec, error);
}

/* ---- threads ---- */

/* A task without `run` ends the thread. */
static void *lane_main(void *argument)
{
	struct hys_lane *lane = argument;
	struct hys_exec *exec = lane->exec;
	int32_t index = (int32_t)(lane - exec->lanes);

	hys_topology_bind(exec->plan->context->topology, &exec->plan->devices[index]->info);
	for (;;) {
		const struct hys_task *task;
		bool more;

		wait_for_task(lane);
		task = &lane->tasks[lane->tail++ & (HYS_LANE_TASKS - 1)];
		more = task->run != NULL;
		if (more)
			run_task(exec, index, task);
		sem_post(&lane->empty);
		if (!more)
			return NULL;
	}
}

/* The application's signals are the business of its own threads. */
static int create_quietly(pthread_t *thread, void *argument)
{
	sigset_t all, before;
	int code;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	code = pthread_create(thread, NULL, lane_main, argument);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return code;
}

static bool create_semaphores(struct hys_lane *lane)
{
	if (sem_init(&lane->filled, 0, 0) != 0)
		return false;
	if (sem_init(&lane->empty, 0, HYS_LANE_TASKS) == 0)
		return true;
	sem_destroy(&lane->filled);
	return false;
}

hys_status hys_lane_start(struct hys_lane *lane, struct hys_error *error)
{
	const struct hys_allocator *allocator = &lane->exec->plan->context->host.allocator;
	int code;

	lane->tasks = hys_alloc_array(allocator, HYS_LANE_TASKS, sizeof(*lane->tasks));
	if (!lane->tasks)
		return hys_fail(error, HYS_OUT_OF_MEMORY, 0, "no memory for a lane's tasks");
	if (!create_semaphores(lane)) {
		code = errno;
		hys_free(allocator, lane->tasks);
		lane->tasks = NULL;
		return hys_fail(error, HYS_OUT_OF_MEMORY, code, "cannot make a semaphore: %s",
				strerror(code));
	}
	code = create_quietly(&lane->thread, lane);
	if (code == 0) {
		lane->threaded = true;
		return HYS_OK;
	}
	sem_destroy(&lane->filled);
	sem_destroy(&lane->empty);
	hys_free(allocator, lane->tasks);
	lane->tasks = NULL;
	return hys_fail(error, HYS_OUT_OF_MEMORY, code, "cannot start a thread: %s",
			strerror(code));
}

void hys_lane_stop(struct hys_lane *lane)
{
	const struct hys_task end = {0};

	if (!lane->threaded)
		return;
	put_task(lane, &end);
	pthread_join(lane->thread, NULL);
	lane->threaded = false;
	sem_destroy(&lane->filled);
	sem_destroy(&lane->empty);
	hys_free(&lane->exec->plan->context->host.allocator, lane->tasks);
	lane->tasks = NULL;
}

/* All places are empty once every task is done. */
void hys_lane_drain(struct hys_lane *lane)
{
	struct hys_patience patience;

	if (!lane->threaded)
		return;
	patience = hys_patience_of(lane->exec);
	for (int i = 0; i < HYS_LANE_TASKS; i++)
		wait_patiently(&lane->empty, &patience);
	for (int i = 0; i < HYS_LANE_TASKS; i++)
		sem_post(&lane->empty);
}
