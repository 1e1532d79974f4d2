/* Says what it was compiled for, and fails: what runs programs of another architecture has to tell. */
#include <stdio.h>

int main(void)
{
#if defined(__aarch64__)
	printf("aarch64, ");
#elif defined(__i386__)
	printf("i686, ");
#endif
	printf("%d bits\n", (int)sizeof(void *) * 8);
	return 1;
}
