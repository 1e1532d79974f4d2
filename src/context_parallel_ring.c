/* stub */
#include "context_parallel.h"

bool hys_cp_in_ring(hys_op op)
{
	(void)op;
	return false;
}
