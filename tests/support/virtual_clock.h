/* virtual_clock.h - time that passes by sleeping only: nothing that runs beside a test changes what
 * the library measures. For tests whose clock_gettime and nanosleep the linker sends here
 * (HYS_TEST_VIRTUAL_CLOCK in CMakeLists.txt).
 *
 * Each thread has a time of its own, so that threads sleep at once. The one that started the clock
 * waits for the others before it looks at it: it sees the latest time of all, and nobody who looks
 * then sees an earlier one. */
#ifndef HYS_TEST_VIRTUAL_CLOCK_H
#define HYS_TEST_VIRTUAL_CLOCK_H

/* For the calling thread; the others sleep and look only while that one waits. */
void virtual_clock_start(void);
void virtual_clock_sleep(double seconds);

#endif
