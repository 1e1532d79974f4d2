/* file.h - whole small text files, for wisdom and saved plans. */
#ifndef HYS_FILE_H
#define HYS_FILE_H

#include "alloc.h"
#include "check.h"

/* Reads a regular file of at most `most` bytes; *text is freed by the caller
 * and has a 0 behind its end. HYS_IO (native = errno), HYS_FORMAT (too large,
 * not a regular file), HYS_OUT_OF_MEMORY. */
hys_status hys_file_read(const struct hys_allocator *allocator, const char *path, int64_t most,
			 char **text, int64_t *bytes, struct hys_error *error);

/* Writes a new file beside `path` and renames it, so that readers see the old
 * content or the new one, whatever happens. Links are followed; a path that is
 * there and no regular file, a device say, is left alone. HYS_IO,
 * HYS_OUT_OF_MEMORY. */
hys_status hys_file_write(const struct hys_allocator *allocator, const char *path, const char *text,
			  int64_t bytes, struct hys_error *error);

#endif
