/* hyscale/hyscale.h - everything but the headers that name OpenCL or MPI. */
#ifndef HYSCALE_HYSCALE_H
#define HYSCALE_HYSCALE_H

#include "base.h"
#include "version.h"
#include "context.h"
#include "problem.h"
#include "plan.h"
#include "batch.h"
#include "exec.h"
#include "operations.h"
#include "schedule.h"
#include "ranks.h"

#endif
