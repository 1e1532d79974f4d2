#ifndef HYS_TEST_AMX_EMULATED_H
#define HYS_TEST_AMX_EMULATED_H

#include "omp_internal.h"

/* What isa/half_amx.c enters, with tiles in plain C. */
void amx_emulated_fill(struct omp_isa *isa);

#endif
