/* Rows shared between devices: what comes of it is what one device gives, within tolerance. */
#include "shared_table.h"

int main(void)
{
	return run_shared(SUITE_SEVERAL, "several devices");
}
