/* hash.h - FNV-1a, 64 bits. Start with hys_hash_start. */
#ifndef HYS_HASH_H
#define HYS_HASH_H

#include <stddef.h>
#include <stdint.h>

#define hys_hash_start UINT64_C(0xcbf29ce484222325)
uint64_t hys_hash(uint64_t hash, const void *data, size_t bytes);

#endif
