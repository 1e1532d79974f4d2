/* Planted: two threads add to the same number. They wait for each other first, in no order that
 * the sanitizer could take for one: else one may be done before the other begins. */
#include <pthread.h>
#include <stdatomic.h>

static atomic_int here;
static long sum;

static void *add(void *argument)
{
	atomic_fetch_add_explicit(&here, 1, memory_order_relaxed);
	while (atomic_load_explicit(&here, memory_order_relaxed) < 2)
		;
	for (int i = 0; i < 100000; i++)
		sum += i;
	return argument;
}

int main(void)
{
	pthread_t other;

	if (pthread_create(&other, 0, add, 0) != 0)
		return 77;
	add(0);
	pthread_join(other, 0);
	return sum == 1;
}
