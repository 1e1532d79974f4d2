#define _XOPEN_SOURCE 700
#include "file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static hys_status failed(struct hys_error *error, const char *what, const char *path)
{
	int code = errno;

	return hys_fail(error, HYS_IO, code, "%s: cannot %s: %s", path, what, strerror(code));
}

static hys_status read_all(int file, const char *path, char *text, int64_t bytes,
			   struct hys_error *error)
{
	for (int64_t done = 0; done < bytes;) {
		ssize_t step = read(file, text + done, (size_t)(bytes - done));

		if (step < 0 && errno == EINTR)
			continue;
		if (step < 0)
			return failed(error, "read", path);
		if (step == 0)
			return hys_fail(error, HYS_IO, 0, "%s: became shorter while read", path);
		done += step;
	}
	return HYS_OK;
}

hys_status hys_file_read(const struct hys_allocator *allocator, const char *path, int64_t most,
			 char **text, int64_t *bytes, struct hys_error *error)
{
	hys_status status = HYS_OK;
	char *content = NULL;
	struct stat what;
	int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

	if (file < 0)
		return failed(error, "open", path);
	if (fstat(file, &what) != 0)
		HYS_TRY(failed(error, "read", path));
	if (!S_ISREG(what.st_mode) || what.st_size > most)
		HYS_TRY(hys_fail(error, HYS_FORMAT, 0,
				 "%s: not a regular file of at most %lld bytes", path,
				 (long long)most));
	content = hys_alloc(allocator, (int64_t)what.st_size + 1);
	if (!content)
		HYS_TRY(hys_fail(error, HYS_OUT_OF_MEMORY, 0, "%s: no memory for %lld bytes", path,
				 (long long)what.st_size));
	HYS_TRY(read_all(file, path, content, (int64_t)what.st_size, error));
	*text = content;
	*bytes = (int64_t)what.st_size;
	content = NULL;
cleanup:
	hys_free(allocator, content);
	close(file);
	return status;
}

static hys_status write_all(int file, const char *path, const char *text, int64_t bytes,
			    struct hys_error *error)
{
	for (int64_t done = 0; done < bytes;) {
		ssize_t step = write(file, text + done, (size_t)(bytes - done));

		if (step < 0 && errno == EINTR)
			continue;
		if (step < 0)
			return failed(error, "write", path);
		done += step;
	}
	return fsync(file) == 0 ? HYS_OK : failed(error, "write", path);
}

/* Opens a file that did not exist, PATH.PROCESS.N, so that writers at the same
 * time do not meet. */
static int open_beside(const char *path, char *name, size_t size)
{
	int file = -1;

	for (int i = 0; i < 100 && file < 0; i++) {
		snprintf(name, size, "%s.%ld.%d", path, (long)getpid(), i);
		file = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
		if (file < 0 && errno != EEXIST)
			break;
	}
	return file;
}

/* What a rename may replace: a regular file or nothing. A renamed file would take the
 * place of a device's node or of a link, where what it points to is meant; `place` is
 * that, in the caller's `resolved` of PATH_MAX bytes. */
static hys_status find_place(const char *path, char *resolved, const char **place,
			     struct hys_error *error)
{
	struct stat what;

	*place = path;
	if (lstat(path, &what) != 0)
		return errno == ENOENT ? HYS_OK : failed(error, "replace", path);
	if (S_ISLNK(what.st_mode)) {
		if (!realpath(path, resolved) || lstat(resolved, &what) != 0)
			return failed(error, "follow", path);
		*place = resolved;
	}
	if (!S_ISREG(what.st_mode))
		return hys_fail(error, HYS_IO, 0, "%s: cannot replace what is not a regular file",
				path);
	return HYS_OK;
}

static hys_status replace_file(const struct hys_allocator *allocator, const char *path,
			       const char *text, int64_t bytes, struct hys_error *error)
{
	hys_status status = HYS_OK;
	size_t size = strlen(path) + 40;
	char *name = hys_alloc(allocator, (int64_t)size);
	int file = -1;

	if (!name)
		return hys_fail(error, HYS_OUT_OF_MEMORY, 0, "%s: no memory for a name", path);
	file = open_beside(path, name, size);
	if (file < 0)
		HYS_TRY(failed(error, "create a file beside it", path));
	HYS_TRY(write_all(file, path, text, bytes, error));
	if (rename(name, path) != 0)
		HYS_TRY(failed(error, "replace", path));
cleanup:
	if (file >= 0) {
		close(file);
		if (status != HYS_OK)
			unlink(name);
	}
	hys_free(allocator, name);
	return status;
}

hys_status hys_file_write(const struct hys_allocator *allocator, const char *path, const char *text,
			  int64_t bytes, struct hys_error *error)
{
	char resolved[PATH_MAX];
	const char *place;
	hys_status status = find_place(path, resolved, &place, error);

	return status == HYS_OK ? replace_file(allocator, place, text, bytes, error) : status;
}
