/* safetensors.h - read and write safetensors files.
 *
 * The format: 8 bytes little-endian header length, a JSON object that maps names to dtype, shape
 * and data_offsets (plus string metadata under "__metadata__"), then the data. The reader accepts
 * arbitrary bytes and answers what is wrong with them. */
#ifndef HYS_TOOLS_SAFETENSORS_H
#define HYS_TOOLS_SAFETENSORS_H

#include <stdbool.h>
#include <stdint.h>

#include "hyscale/base.h"

#define ST_RANK_MAX 8
#define ST_MESSAGE 256

struct st_tensor {
	char *name;
	char dtype_name[16];
	hys_dtype dtype; /* HYS_DTYPE_DEFAULT for types that the library lacks */
	int32_t rank;
	int64_t shape[ST_RANK_MAX];
	const void *data; /* into the file's bytes or `aligned`, or the writer's caller's */
	void *aligned;	  /* a copy, where the file holds elements at odd addresses */
	int64_t bytes;
};

struct st_file {
	unsigned char *owned; /* the bytes, when read from disk */
	struct st_tensor *tensors;
	int32_t count;
	char **metadata; /* key, value, key, value, ... */
	int32_t metadata_count;
};

/* Reads a file; on failure answers false with one line in message. */
bool st_read(struct st_file *file, const char *path, char message[ST_MESSAGE]);
/* The same for bytes in memory, which must outlive the file. */
bool st_parse(struct st_file *file, const void *bytes, int64_t size, char message[ST_MESSAGE]);
void st_free(struct st_file *file);

/* NULL when there is none. */
const struct st_tensor *st_find(const struct st_file *file, const char *name);
const char *st_metadata(const struct st_file *file, const char *key);

/* Writes tensors and string metadata (key, value pairs), through a temporary file in the same
 * folder, so that a reader never sees half of it. */
bool st_write(const char *path, const struct st_tensor *tensors, int32_t count,
	      const char *const *metadata, int32_t metadata_count, char message[ST_MESSAGE]);

#endif
