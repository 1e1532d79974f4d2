/* ocl_program.c - programs and kernels: sources, options, builds. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ocl_embedded.h"
#include "ocl_internal.h"
#include "ocl_ptx.h"

/* NVIDIA's compiler passes it on to ptxas alone. */
#define HURRY " -cl-nv-opt-level=0"

static void append(struct hys_ocl_options *options, const char *text)
{
	size_t length = strlen(text);
	if (options->length + length >= sizeof(options->text)) {
		options->overflow = true;
		return;
	}
	memcpy(options->text + options->length, text, length + 1);
	options->length += length;
}

void hys_ocl_define(struct hys_ocl_options *options, const char *name, int64_t value)
{
	char text[96];
	snprintf(text, sizeof(text), " -D%s=%lld", name, (long long)value);
	append(options, text);
}

void hys_ocl_define_f32(struct hys_ocl_options *options, const char *name, double value)
{
	char text[96];
	int exponent = 0;
	/* In hexadecimal: exact, and without the locale's decimal point. */
	const int mantissa = (int)ldexp(frexp((double)(float)value, &exponent), FLT_MANT_DIG);
	snprintf(text, sizeof(text), " -D%s=(%s0x%xp%df)", name, mantissa < 0 ? "-" : "",
		 (unsigned int)abs(mantissa), exponent - FLT_MANT_DIG);
	append(options, text);
}

static const struct hys_embedded_source *find_source(const char *name, size_t length)
{
	for (size_t i = 0; i < hys_embedded_source_count; i++) {
		const struct hys_embedded_source *source = &hys_embedded_sources[i];
		if (strlen(source->name) == length && memcmp(source->name, name, length) == 0)
			return source;
	}
	return NULL;
}

static hys_status add_piece(struct hys_ocl_text *text, const char *bytes, size_t length,
			    struct hys_error *error)
{
	if (length == 0)
		return HYS_OK;
	if (text->count == HYS_OCL_PIECES_MAX)
		return hys_fail(error, HYS_INTERNAL, 0, "a device program has more than %d pieces",
				HYS_OCL_PIECES_MAX);
	text->pieces[text->count] = bytes;
	text->lengths[text->count++] = length;
	return HYS_OK;
}

static bool include_once(struct hys_ocl_text *text, const char *name)
{
	for (int32_t i = 0; i < text->included_count; i++)
		if (strcmp(text->included[i], name) == 0)
			return false;
	if (text->included_count < HYS_OCL_PIECES_MAX)
		text->included[text->included_count++] = name;
	return true;
}

/* Appends a file, with the files that it #includes in place of those lines:
 * the driver's compiler has no folder to look in. */
static hys_status add_file(struct hys_ocl_text *text, const char *name, size_t length,
			   struct hys_error *error)
{
	static const char directive[] = "#include \"";
	const struct hys_embedded_source *source = find_source(name, length);
	if (!source)
		return hys_fail(error, HYS_INTERNAL, 0, "no embedded kernel file %.*s", (int)length,
				name);
	if (!include_once(text, source->name))
		return HYS_OK;
	const char *start = (const char *)source->bytes;
	for (const char *line = start, *next; *line; line = next) {
		next = line + strcspn(line, "\n");
		next += *next == '\n';
		if (strncmp(line, directive, sizeof(directive) - 1) == 0) {
			const char *file = line + sizeof(directive) - 1;
			hys_status status = add_piece(text, start, (size_t)(line - start), error);
			if (status == HYS_OK)
				status = add_file(text, file, strcspn(file, "\"\n"), error);
			if (status != HYS_OK)
				return status;
			start = next;
		}
	}
	return add_piece(text, start, strlen(start), error);
}

hys_status hys_ocl_program_text(const char *file, struct hys_ocl_text *text,
				struct hys_error *error)
{
	*text = (struct hys_ocl_text){0};
	return add_file(text, file, strlen(file), error);
}

/* What the driver's compiler said, to be freed; NULL when it is nothing. */
static char *build_log(const struct hys_ocl_device *device, cl_program program)
{
	const struct hys_allocator *allocator = &device->base.host->allocator;
	size_t bytes = 0;
	if (clGetProgramBuildInfo(program, device->id, CL_PROGRAM_BUILD_LOG, 0, NULL, &bytes) !=
		    CL_SUCCESS ||
	    bytes == 0)
		return NULL;
	char *log = hys_alloc(allocator, (int64_t)bytes + 1);
	if (log &&
	    clGetProgramBuildInfo(program, device->id, CL_PROGRAM_BUILD_LOG, bytes, log, NULL) ==
		    CL_SUCCESS &&
	    log[strspn(log, " \n")])
		return log;
	hys_free(allocator, log);
	return NULL;
}

static void log_failure(struct hys_ocl_device *device, cl_program program, const char *file,
			char *head, size_t head_size)
{
	char *log = build_log(device, program);
	head[0] = 0;
	if (!log)
		return;
	hys_host_log(device->base.host, HYS_LOG_ERROR, "%s does not build on %s:\n%s", file,
		     device->base.info.name, log);
	snprintf(head, head_size, "%s", log);
	for (char *c = head; *c; c++)
		if (*c == '\n')
			*c = ' ';
	hys_free(&device->base.host->allocator, log);
}

/* Registers, spills and local memory of each kernel, where the compiler was asked for them. */
static void log_resources(struct hys_ocl_device *device, cl_program program, const char *file)
{
	if (!device->base.host->log || device->compute_capability == 0)
		return;
	char *log = build_log(device, program), *next = NULL;
	for (char *line = log ? strtok_r(log, "\n", &next) : NULL; line;
	     line = strtok_r(NULL, "\n", &next))
		hys_host_log(device->base.host, HYS_LOG_INFO, "%s: %s", file, line);
	hys_free(&device->base.host->allocator, log);
}

static hys_status build(struct hys_ocl_device *device, cl_program program, const char *file,
			const char *options, struct hys_error *error)
{
	cl_int code = clBuildProgram(program, 1, &device->id, options, NULL, NULL);
	if (code == CL_SUCCESS)
		return HYS_OK;
	if (code == CL_OUT_OF_HOST_MEMORY)
		return hys_ocl_check(error, code, "clBuildProgram");
	char head[160];
	log_failure(device, program, file, head, sizeof(head));
	return hys_fail(error, HYS_BUILD_FAILED, code, "%s: %s (%d): %s", file,
			hys_ocl_error_name(code), (int)code,
			head[0] ? head : "the build log is empty");
}

static bool cached(const struct hys_ocl_device *device)
{
	return device->base.host->cache_dir && !device->quirk->own_cache;
}

static void make_key(const struct hys_ocl_device *device, const struct hys_ocl_source *source,
		     const char *options, struct hys_ocl_key *key)
{
	int length = snprintf(
		key->text, sizeof(key->text),
		"hyscale %s\nsources %s\nfile %s\noptions %s\nrewritten %s\nplatform %s %s\n"
		"device %s\nvendor %s\ndriver %s\n",
		HYS_VERSION_STRING, hys_embedded_hash, source->file, options,
		source->rewrite ? source->rewrite : "no", device->platform_name,
		device->platform_version, device->base.info.name, device->base.info.vendor,
		device->base.info.driver);
	key->length = (size_t)length < sizeof(key->text) ? (size_t)length : sizeof(key->text) - 1;
}

static hys_status build_binary(struct hys_ocl_device *device, const char *file, const char *options,
			       const void *binary, size_t bytes, cl_program *out,
			       struct hys_error *error)
{
	cl_int state = CL_SUCCESS, code = CL_SUCCESS;
	const unsigned char *bytes_at = binary;
	cl_program program = clCreateProgramWithBinary(device->context, 1, &device->id, &bytes,
						       &bytes_at, &state, &code);
	if (!program)
		return hys_ocl_check(error, code, "clCreateProgramWithBinary");
	hys_status status = hys_ocl_check(error, state, "clCreateProgramWithBinary");
	if (status == HYS_OK)
		status = build(device, program, file, options, error);
	if (status == HYS_OK)
		*out = program;
	else
		clReleaseProgram(program);
	return status;
}

/* From the cache: NULL when there is nothing there or the driver refuses it. */
static cl_program load(struct hys_ocl_device *device, const struct hys_ocl_key *key,
		       const char *file, const char *options)
{
	unsigned char *binary = NULL;
	size_t bytes = 0;
	cl_program program = NULL;
	if (!hys_ocl_cache_load(device->base.host, key, &binary, &bytes))
		return NULL;
	(void)build_binary(device, file, options, binary, bytes, &program, NULL);
	hys_free(&device->base.host->allocator, binary);
	return program;
}

/* What CL_PROGRAM_BINARIES answers, to be freed; NULL when it is nothing. */
static unsigned char *read_binary(struct hys_ocl_device *device, cl_program program, size_t *bytes)
{
	const struct hys_allocator *allocator = &device->base.host->allocator;
	cl_uint devices = 0;
	*bytes = 0;
	/* Other devices of a caller's context have no binary: sizes come one per device. */
	if (clGetProgramInfo(program, CL_PROGRAM_NUM_DEVICES, sizeof(devices), &devices, NULL) !=
		    CL_SUCCESS ||
	    devices != 1 ||
	    clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, sizeof(*bytes), bytes, NULL) !=
		    CL_SUCCESS ||
	    *bytes == 0)
		return NULL;
	unsigned char *binary = hys_alloc(allocator, (int64_t)*bytes);
	if (binary && clGetProgramInfo(program, CL_PROGRAM_BINARIES, sizeof(binary), &binary,
				       NULL) == CL_SUCCESS)
		return binary;
	hys_free(allocator, binary);
	return NULL;
}

static void store(struct hys_ocl_device *device, const struct hys_ocl_key *key, cl_program program)
{
	size_t bytes = 0;
	unsigned char *binary = read_binary(device, program, &bytes);
	if (binary)
		hys_ocl_cache_store(device->base.host, key, binary, bytes);
	hys_free(&device->base.host->allocator, binary);
}

static hys_status build_source(struct hys_ocl_device *device, const char *file, const char *options,
			       cl_program *out, struct hys_error *error)
{
	struct hys_ocl_text text;
	hys_status status = hys_ocl_program_text(file, &text, error);
	if (status != HYS_OK)
		return status;
	cl_int code = CL_SUCCESS;
	cl_program program = clCreateProgramWithSource(device->context, text.count, text.pieces,
						       text.lengths, &code);
	if (!program)
		return hys_ocl_check(error, code, "clCreateProgramWithSource");
	status = build(device, program, file, options, error);
	if (status == HYS_OK)
		*out = program;
	else
		clReleaseProgram(program);
	return status;
}

/* A program whose text alone is wanted: its machine code, which takes the most time, is made in a hurry. NULL when
 * that does not build. */
static cl_program build_hurried(struct hys_ocl_device *device, const char *file,
				const char *options)
{
	struct hys_ocl_text text;
	char hurried[sizeof(((struct hys_ocl_options *)0)->text) + sizeof(HURRY)];
	if (hys_ocl_program_text(file, &text, NULL) != HYS_OK)
		return NULL;
	snprintf(hurried, sizeof(hurried), "%s" HURRY, options);
	cl_program program = clCreateProgramWithSource(device->context, text.count, text.pieces,
						       text.lengths, NULL);
	if (program && clBuildProgram(program, 1, &device->id, hurried, NULL, NULL) == CL_SUCCESS)
		return program;
	if (program)
		clReleaseProgram(program);
	return NULL;
}

/* Compiles, and puts the rewritten text in the place of what came out. */
static hys_status build_rewritten(struct hys_ocl_device *device,
				  const struct hys_ocl_source *source, const char *options,
				  cl_program *out, struct hys_error *error)
{
	const struct hys_allocator *allocator = &device->base.host->allocator;
	cl_program plain = NULL;
	unsigned char *binary = NULL;
	char *text = NULL;
	size_t bytes = 0, text_bytes = 0;
	hys_status status = HYS_OK;
	plain = build_hurried(device, source->file, options);
	if (!plain)
		status = build_source(device, source->file, options, &plain, error);
	if (status != HYS_OK)
		return status;
	binary = read_binary(device, plain, &bytes);
	clReleaseProgram(plain);
	if (!binary)
		return hys_fail(error, HYS_UNSUPPORTED, 0,
				"%s: the driver does not give the program's binary", source->file);
	HYS_TRY(hys_ptx_rewrite(allocator, (const char *)binary, bytes, source->rewrite, &text,
				&text_bytes, error));
	HYS_TRY(build_binary(device, source->file, options, text, text_bytes, out, error));
cleanup:
	hys_free(allocator, binary);
	hys_free(allocator, text);
	return status;
}

static hys_status compile(struct hys_ocl_device *device, const struct hys_ocl_source *source,
			  const char *options, cl_program *out, struct hys_error *error)
{
	if (source->rewrite)
		return build_rewritten(device, source, options, out, error);
	return build_source(device, source->file, options, out, error);
}

hys_status hys_ocl_program_options(const struct hys_ocl_device *device,
				   const struct hys_ocl_source *source,
				   const struct hys_problem *problem,
				   struct hys_ocl_options *options, struct hys_error *error)
{
	*options = (struct hys_ocl_options){0};
	append(options, "-cl-std=CL1.2");
	if (device->compute_capability)
		append(options, " -cl-nv-verbose");
	if (device->fast_fma)
		hys_ocl_define(options, "FAST_FMA", 1);
	if (source->define)
		source->define(source, device, problem, options);
	if (options->overflow)
		return hys_fail(error, HYS_INTERNAL, 0, "build options of %s are too long",
				source->file);
	return HYS_OK;
}

hys_status hys_ocl_program_build(struct hys_ocl_device *device, const struct hys_ocl_source *source,
				 const struct hys_problem *problem, cl_program *program,
				 struct hys_error *error)
{
	struct hys_ocl_options options;
	hys_status status = hys_ocl_program_options(device, source, problem, &options, error);
	if (status != HYS_OK)
		return status;
	struct hys_ocl_key key;
	make_key(device, source, options.text, &key);
	cl_program built = NULL;
	if (cached(device))
		built = load(device, &key, source->file, options.text);
	if (!built) {
		status = compile(device, source, options.text, &built, error);
		if (status != HYS_OK)
			return status;
		if (cached(device))
			store(device, &key, built);
	}
	log_resources(device, built, source->file);
	*program = built;
	return HYS_OK;
}

hys_status hys_ocl_program_create(struct hys_device *device, const struct hys_kernel *kernel,
				  const struct hys_problem *problem, void **program,
				  struct hys_error *error)
{
	const struct hys_ocl_source *source = kernel->detail;
	struct hys_ocl_device *own = hys_ocl_device(device);
	cl_program built = NULL;
	hys_status status = source->prepare ? source->prepare(own, error) : HYS_OK;
	if (status == HYS_OK)
		status = hys_ocl_program_build(own, source, problem, &built, error);
	if (status == HYS_OK)
		*program = built;
	return status;
}

void hys_ocl_program_destroy(struct hys_device *device, void *program)
{
	(void)device;
	if (program)
		clReleaseProgram(program);
}

hys_status hys_ocl_kernels_create(cl_program program, const struct hys_ocl_source *source,
				  struct hys_ocl_instance *made, struct hys_error *error)
{
	made->entries = source->entries;
	for (; source->entries[made->count]; made->count++) {
		cl_int code =
			made->count < HYS_OCL_ENTRIES_MAX ? CL_SUCCESS : CL_INVALID_KERNEL_NAME;
		if (code == CL_SUCCESS)
			made->kernels[made->count] =
				clCreateKernel(program, source->entries[made->count], &code);
		if (code != CL_SUCCESS)
			return hys_ocl_check(error, code, source->entries[made->count]);
	}
	return HYS_OK;
}

void hys_ocl_kernels_release(struct hys_ocl_instance *kernels)
{
	for (int32_t i = 0; i < kernels->count; i++)
		clReleaseKernel(kernels->kernels[i]);
}

hys_status hys_ocl_instance_create(struct hys_stream *stream, const struct hys_kernel *kernel,
				   void *program, void **instance, struct hys_error *error)
{
	const struct hys_ocl_source *source = kernel->detail;
	struct hys_ocl_instance *made =
		hys_alloc(&stream->device->base.host->allocator, sizeof(*made));
	hys_status status;
	if (!made)
		return hys_fail(error, HYS_OUT_OF_MEMORY, 0, "no memory for the kernels of %s",
				kernel->name);
	status = hys_ocl_kernels_create(program, source, made, error);
	if (status == HYS_OK)
		*instance = made;
	else
		hys_ocl_instance_destroy(stream, made);
	return status;
}

void hys_ocl_instance_destroy(struct hys_stream *stream, void *instance)
{
	struct hys_ocl_instance *kernels = instance;
	if (!kernels)
		return;
	hys_ocl_kernels_release(kernels);
	hys_free(&stream->device->base.host->allocator, kernels);
}
