#include <hyscale/hyscale.h>
#include <stdio.h>

int main(void)
{
	const int same = hys_version_number() == HYS_VERSION_NUMBER;
	printf("hyscale %s: %s\n", hys_version_string(), hys_status_string(HYS_OK));
	return same ? 0 : 1;
}
