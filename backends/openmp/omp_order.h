/* omp_order.h - items of uneven cost, the costliest first, so that nobody has a
 * long one left at the end. */
#ifndef HYS_OMP_ORDER_H
#define HYS_OMP_ORDER_H

#include "omp_rows.h"

/* In any unit; 0 or more. Asked twice of each item. */
typedef int64_t omp_cost(const void *context, int64_t item);

/* Fills order[count] with the items by falling cost; of those that differ by less
 * than an eighth, the last first. */
void omp_order(int32_t *order, int64_t count, omp_cost *cost, const void *context);

/* Key rows that row t attends to, in all groups together, or nearly so. */
int64_t omp_attended(const struct omp_rows *rows, int64_t t);

#endif
