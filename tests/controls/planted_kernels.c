/* Bugs that are planted in the text of kernels on its way to the compiler, when HYS_PLANT
 * names one. Detectors have to notice each: else they would not notice the library's own. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <CL/cl.h>

#define BARRIER "barrier(CLK_LOCAL_MEM_FENCE);"
/* The head of a file: a program holds the text of other variants too. */
#define TILE "products_tile.clh - "

/* The first `text` behind the first `behind` is replaced. Kept in step with the kernels: a
 * plant that finds nothing fails its control. */
struct plant {
	const char *name, *behind, *text, *planted;
};

static const struct plant plants[] = {
	{"missing_barrier", "score_tile(", BARRIER, ""},
	{"divergent_barrier", "score_tile(", BARRIER, "if (item < 32) " BARRIER},
	{"plain_histogram", "count_bins(", "atomic_inc(&bins[", "++(bins["},
	{"beyond_the_row", TILE, "p < count && c0 + c < from.channels", "p < count"},
	{"no_first_sum", TILE, "sum[i][j] = 0.0f;", ";"},
	{"tail_of_keys", "sum_shares(", "p < min(count", "p <= min(count"},
	{"late_ties", "write_picks(", "tie < t->ties", "tie > 0 && tie <= t->ties"},
	{"swapped_heads", TILE, "shares[p][h]", "shares[p][h ^ 1]"},
	{"wrong_argument", TILE, "int start", "long start"},
	{"much_local_memory", TILE, "keys[DEPTH][65]", "keys[DEPTH][650]"},
	{NULL, NULL, NULL, NULL}, /* the last */
};

static const struct plant *wanted(void)
{
	const char *name = getenv("HYS_PLANT");
	const struct plant *plant = plants;

	while (plant->name && (!name || strcmp(plant->name, name) != 0))
		plant++;
	return plant->name ? plant : NULL;
}

/* The pieces of a program behind each other; freed by the caller. */
static char *join(cl_uint count, const char **pieces, const size_t *lengths)
{
	size_t bytes = 1;
	char *text, *end;

	for (cl_uint i = 0; i < count; i++)
		bytes += lengths[i];
	text = end = malloc(bytes);
	for (cl_uint i = 0; text && i < count; i++) {
		memcpy(end, pieces[i], lengths[i]);
		end += lengths[i];
	}
	if (text)
		*end = '\0';
	return text;
}

/* The text with the plant in it, NULL when this program is not the one; freed by the caller. */
static char *plant_in(const struct plant *plant, const char *text)
{
	const char *at = strstr(text, plant->behind);
	char *planted;
	size_t before;

	at = at ? strstr(at, plant->text) : NULL;
	planted = at ? malloc(strlen(text) + strlen(plant->planted) + 1) : NULL;
	if (!planted)
		return NULL;
	before = (size_t)(at - text);
	memcpy(planted, text, before);
	strcpy(planted + before, plant->planted);
	strcat(planted, at + strlen(plant->text));
	fprintf(stderr, "planted %s\n", plant->name);
	return planted;
}

cl_program __real_clCreateProgramWithSource(cl_context context, cl_uint count, const char **pieces,
					    const size_t *lengths, cl_int *error);
cl_program __wrap_clCreateProgramWithSource(cl_context context, cl_uint count, const char **pieces,
					    const size_t *lengths, cl_int *error);
cl_program __wrap_clCreateProgramWithSource(cl_context context, cl_uint count, const char **pieces,
					    const size_t *lengths, cl_int *error)
{
	const struct plant *plant = wanted();
	char *text = plant && lengths ? join(count, pieces, lengths) : NULL;
	char *planted = text ? plant_in(plant, text) : NULL;
	const char *piece = planted;
	cl_program program;

	free(text);
	program =
		planted ? __real_clCreateProgramWithSource(context, 1, &piece, NULL, error)
			: __real_clCreateProgramWithSource(context, count, pieces, lengths, error);
	free(planted);
	return program;
}
