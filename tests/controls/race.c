/* Planted: two threads add to the same number. One waits until the other has, in a way that orders nothing: the
 * sanitizer is surer of what lies a little apart than of what happens at once. */
#include <pthread.h>
#include <stdatomic.h>

static atomic_int done;
static long sum;

static void *add(void *argument)
{
	sum += 2;
	atomic_store_explicit(&done, 1, memory_order_relaxed);
	return argument;
}

int main(void)
{
	pthread_t other;

	if (pthread_create(&other, 0, add, 0) != 0)
		return 77;
	while (!atomic_load_explicit(&done, memory_order_relaxed))
		;
	sum += 3;
	pthread_join(other, 0);
	return sum == 1;
}
