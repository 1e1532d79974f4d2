/* Planted: two threads add to the same number. */
#include <pthread.h>

static long sum;

static void *add(void *argument)
{
	for (int i = 0; i < 1000; i++)
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
