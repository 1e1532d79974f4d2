/* Whether a set's score_half computes what isa.h says: for test_isa.c and
 * test_amx.c. */
#ifndef HYS_TEST_HALF_SCORE_H
#define HYS_TEST_HALF_SCORE_H

#include "omp_internal.h"

/* Some shapes of heads and groups, with and without activation, a key in each
 * place of three panels: the same bits everywhere, and right. */
void half_score_check(const struct omp_isa *isa);

#endif
