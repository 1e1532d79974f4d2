/* ocl_cache.c - built programs on disk.
 *
 * One file per key: a header, the key itself, the binary. Some drivers crash on
 * a truncated binary, so nothing is handed to them without magic, lengths, the
 * whole key and a checksum. Files appear by rename, so that readers never see
 * half of one. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ocl_internal.h"

#define BINARY_MAX ((uint64_t)256 << 20)

struct header {
	char magic[8];
	uint64_t key_bytes;
	uint64_t binary_bytes;
	uint64_t checksum; /* of key and binary */
};

static const char magic[8] = {'H', 'Y', 'S', 'O', 'C', 'L', '0', '1'};

/* The file of `key`; false when there is no cache or the path is too long. */
static bool cache_path(const struct hys_host *host, const struct hys_ocl_key *key, char *path,
		       size_t size)
{
	if (!host->cache_dir || !host->cache_dir[0])
		return false;
	int length = snprintf(path, size, "%s/opencl-%016llx.bin", host->cache_dir,
			      (unsigned long long)hys_hash(hys_hash_start, key->text, key->length));
	return length > 0 && (size_t)length < size;
}

static bool header_fits(const struct header *header, const struct hys_ocl_key *key, int64_t bytes)
{
	return memcmp(header->magic, magic, sizeof(magic)) == 0 &&
	       header->key_bytes == key->length && header->binary_bytes > 0 &&
	       header->binary_bytes <= BINARY_MAX &&
	       (uint64_t)bytes == sizeof(*header) + header->key_bytes + header->binary_bytes;
}

/* The whole file, or NULL. */
static unsigned char *read_file(const struct hys_host *host, const char *path, int64_t *bytes)
{
	FILE *file = fopen(path, "rb");
	if (!file)
		return NULL;
	unsigned char *content = NULL;
	struct stat info;
	if (fstat(fileno(file), &info) == 0 && S_ISREG(info.st_mode) &&
	    info.st_size > (off_t)sizeof(struct header) && (uint64_t)info.st_size <= 2 * BINARY_MAX)
		content = hys_alloc(&host->allocator, info.st_size);
	if (content && fread(content, 1, (size_t)info.st_size, file) != (size_t)info.st_size) {
		hys_free(&host->allocator, content);
		content = NULL;
	}
	fclose(file);
	if (content)
		*bytes = info.st_size;
	return content;
}

bool hys_ocl_cache_load(const struct hys_host *host, const struct hys_ocl_key *key,
			unsigned char **binary, size_t *bytes)
{
	char path[1024];
	int64_t size = 0;
	if (!cache_path(host, key, path, sizeof(path)))
		return false;
	unsigned char *content = read_file(host, path, &size);
	if (!content)
		return false;
	struct header header;
	memcpy(&header, content, sizeof(header));
	const unsigned char *stored = content + sizeof(header);
	bool good =
		header_fits(&header, key, size) && memcmp(stored, key->text, key->length) == 0 &&
		hys_hash(hys_hash_start, stored, (size_t)size - sizeof(header)) == header.checksum;
	if (good) {
		*bytes = (size_t)header.binary_bytes;
		memmove(content, stored + key->length, *bytes);
		*binary = content;
		return true;
	}
	hys_host_log(host, HYS_LOG_WARNING, "%s is damaged or not what it should be: rebuilt",
		     path);
	hys_free(&host->allocator, content);
	return false;
}

/* mkdir -p */
static void make_folders(const char *folder)
{
	char path[1024];
	size_t length = strlen(folder);
	if (length >= sizeof(path))
		return;
	memcpy(path, folder, length + 1);
	for (size_t i = 1; i <= length; i++) {
		if (path[i] != '/' && path[i] != 0)
			continue;
		char kept = path[i];
		path[i] = 0;
		(void)mkdir(path, 0700); /* what matters shows when the file is opened */
		path[i] = kept;
	}
}

static bool write_file(int descriptor, const struct hys_ocl_key *key, const unsigned char *binary,
		       size_t bytes)
{
	struct header header = {.key_bytes = key->length, .binary_bytes = bytes};
	memcpy(header.magic, magic, sizeof(magic));
	header.checksum = hys_hash(hys_hash(hys_hash_start, key->text, key->length), binary, bytes);
	FILE *file = fdopen(descriptor, "wb");
	if (!file) {
		close(descriptor);
		return false;
	}
	bool written = fwrite(&header, sizeof(header), 1, file) == 1 &&
		       fwrite(key->text, 1, key->length, file) == key->length &&
		       fwrite(binary, 1, bytes, file) == bytes;
	return fclose(file) == 0 && written;
}

void hys_ocl_cache_store(const struct hys_host *host, const struct hys_ocl_key *key,
			 const unsigned char *binary, size_t bytes)
{
	char path[1024], temporary[1040];
	if (bytes == 0 || bytes > BINARY_MAX || !cache_path(host, key, path, sizeof(path)))
		return;
	make_folders(host->cache_dir);
	snprintf(temporary, sizeof(temporary), "%s.XXXXXX", path);
	int descriptor = mkstemp(temporary);
	if (descriptor < 0) {
		hys_host_log(host, HYS_LOG_WARNING, "%s cannot be written (errno %d)", path, errno);
		return;
	}
	if (!write_file(descriptor, key, binary, bytes) || rename(temporary, path) != 0) {
		hys_host_log(host, HYS_LOG_WARNING, "%s cannot be written (errno %d)", path, errno);
		unlink(temporary);
	}
}
