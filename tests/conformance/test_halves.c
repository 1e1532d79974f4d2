/* Rows shared between the two halves of an OpenCL device. */
#include <stdlib.h>

#include "shared_table.h"

int main(void)
{
	setenv("HYS_TEST_FULL", "1", 1); /* all cases: there are few */
	return run_shared(SUITE_HALVES, "halves of a device");
}
