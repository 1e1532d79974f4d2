/* Plans of this program trust kernels without their self-test, which is larger than all of its
 * cases: the oracle judges them. HYS_TEST_SELFTEST=1 runs it. The linker sends hys_self_test
 * here. */
#include <stdlib.h>

#include "trial.h"

hys_status __real_hys_self_test(const struct hys_site *site, const struct hys_site *reference,
				const struct hys_problem *problem, const struct hys_kernel *kernel,
				void *program, char reason[HYS_REASON_SIZE]);
hys_status __wrap_hys_self_test(const struct hys_site *site, const struct hys_site *reference,
				const struct hys_problem *problem, const struct hys_kernel *kernel,
				void *program, char reason[HYS_REASON_SIZE]);
hys_status __wrap_hys_self_test(const struct hys_site *site, const struct hys_site *reference,
				const struct hys_problem *problem, const struct hys_kernel *kernel,
				void *program, char reason[HYS_REASON_SIZE])
{
	if (getenv("HYS_TEST_SELFTEST"))
		return __real_hys_self_test(site, reference, problem, kernel, program, reason);
	reason[0] = '\0';
	return HYS_OK;
}
