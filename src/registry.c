#include <string.h>

#include "core.h"

static const struct hys_backend *const backends[] = {
#ifdef HYS_WITH_OPENCL
	&hys_backend_opencl,
#endif
	&hys_backend_openmp,
};

#define BACKEND_COUNT ((int32_t)(sizeof(backends) / sizeof(backends[0])))

const struct hys_backend *hys_backend_at(int32_t i)
{
	return i >= 0 && i < BACKEND_COUNT ? backends[i] : NULL;
}

const struct hys_backend *hys_backend_named(const char *name)
{
	for (int32_t i = 0; i < BACKEND_COUNT; i++)
		if (strcmp(backends[i]->name, name) == 0)
			return backends[i];
	return NULL;
}
