/* virtual_clock.h - time that passes by sleeping only: nothing that runs beside a test changes what
 * the library measures. For tests whose clock_gettime and nanosleep the linker sends here
 * (HYS_TEST_VIRTUAL_CLOCK in CMakeLists.txt). What waits for time to pass and does not sleep never
 * ends.
 *
 * Each thread has a time of its own, so that several sleep beside each other. The main thread sees
 * the latest time of all, and nobody who looks then sees an earlier one. */
#ifndef HYS_TEST_VIRTUAL_CLOCK_H
#define HYS_TEST_VIRTUAL_CLOCK_H

#include <stdbool.h>

/* The calling thread is the main one: the others sleep and look only while it waits for them. */
void virtual_clock_main_thread(void);
void virtual_clock_sleep(double seconds);

/* A core that somebody else uses, too, is at its best for a while, then so many times slower. */
#define VIRTUAL_CLOCK_SLOWER 1.8
/* Sleeps as long as what takes so long at best. */
void virtual_clock_work(double seconds, bool disturbed);

#endif
