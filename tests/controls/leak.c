/* Planted: contexts that nobody destroys. One could still be found by what is left of its address somewhere. */
#include "hyscale/hyscale.h"

static struct hys_context *make(void)
{
	struct hys_context_options options = {.struct_size = sizeof(options), .devices = "openmp"};
	struct hys_context *context = NULL;

	return hys_context_create(&options, &context, NULL) == HYS_OK ? context : NULL;
}

int main(void)
{
	struct hys_context *volatile context = NULL;

	for (int i = 0; i < 8; i++)
		context = make();
	context = NULL;
	return context != NULL;
}
