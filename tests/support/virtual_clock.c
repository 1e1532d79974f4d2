#include "virtual_clock.h"

#include <math.h>
#include <pthread.h>
#include <time.h>

#include "clock.h"

#define BEST_S 0.1
#define PERIOD_S 0.7

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static double latest_s, met_s; /* of all threads; of the main thread when it looked last */
static _Thread_local bool is_main;
static _Thread_local double here_s;

int __wrap_clock_gettime(clockid_t clock, struct timespec *time);
int __wrap_nanosleep(const struct timespec *time, struct timespec *rest);
int __wrap___clock_gettime64(clockid_t clock, struct timespec *time);
int __wrap___nanosleep64(const struct timespec *time, struct timespec *rest);

void virtual_clock_main_thread(void)
{
	is_main = true;
}

/* Under the lock. */
static void meet(void)
{
	if (is_main)
		met_s = latest_s;
	here_s = fmax(here_s, met_s);
}

void virtual_clock_sleep(double seconds)
{
	pthread_mutex_lock(&lock);
	meet();
	here_s += seconds;
	latest_s = fmax(latest_s, here_s);
	pthread_mutex_unlock(&lock);
}

void virtual_clock_work(double seconds, bool disturbed)
{
	const bool slow = disturbed && fmod(hys_now_s(), PERIOD_S) >= BEST_S;

	virtual_clock_sleep(seconds * (slow ? VIRTUAL_CLOCK_SLOWER : 1));
}

int __wrap_clock_gettime(clockid_t clock, struct timespec *time)
{
	(void)clock;
	pthread_mutex_lock(&lock);
	meet();
	pthread_mutex_unlock(&lock);
	time->tv_sec = (time_t)here_s;
	time->tv_nsec = (long)(fmod(here_s, 1) * 1e9);
	return 0;
}

int __wrap_nanosleep(const struct timespec *time, struct timespec *rest)
{
	(void)rest;
	virtual_clock_sleep((double)time->tv_sec + 1e-9 * (double)time->tv_nsec);
	return 0;
}

int __wrap___clock_gettime64(clockid_t clock, struct timespec *time)
{
	return __wrap_clock_gettime(clock, time);
}

int __wrap___nanosleep64(const struct timespec *time, struct timespec *rest)
{
	return __wrap_nanosleep(time, rest);
}
