/* bench_documents.h - packed documents for benchmarks. */
#ifndef HYS_TOOLS_BENCH_DOCUMENTS_H
#define HYS_TOOLS_BENCH_DOCUMENTS_H

#include "tool.h"

/* Documents whose lengths fall as 1 over their rank (Zipf), in a fixed order
 * that mixes long and short: starts[count + 1], from 0 to rows. Each has at least one row. */
void bench_zipf(int32_t rows, int32_t count, int32_t *starts);

#endif
