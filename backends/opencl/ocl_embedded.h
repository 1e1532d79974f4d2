/* The files of cl_kernels/, built into the library as bytes (tools/cmake/embed.cmake writes the definitions). */
#ifndef HYS_OCL_EMBEDDED_H
#define HYS_OCL_EMBEDDED_H

#include <stddef.h>

/* One file, sorted by name. bytes[size] is 0, so that bytes also serves as a string. */
struct hys_embedded_source {
	const char *name; /* "common.clh" */
	const unsigned char *bytes;
	size_t size; /* without the final 0 */
};

extern const struct hys_embedded_source hys_embedded_sources[]; /* ends in a row with name NULL */
extern const size_t hys_embedded_source_count;

/* SHA-256 over names and contents of all files, in hexadecimal: changes when any of them does. */
extern const char hys_embedded_hash[65];

#endif
