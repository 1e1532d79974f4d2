/* Planted: a context that nobody destroys. */
#include "hyscale/hyscale.h"

static struct hys_context *make(void)
{
	struct hys_context_options options = {.struct_size = sizeof(options), .devices = "openmp"};
	struct hys_context *context = NULL;

	return hys_context_create(&options, &context, NULL) == HYS_OK ? context : NULL;
}

int main(void)
{
	struct hys_context *volatile context = make();

	context = NULL;
	return context != NULL;
}
