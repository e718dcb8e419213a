/* log_file.c - see log_file.h. */
#define _GNU_SOURCE 1
#include "format/log_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/error.h"
#include "format/file.h"

#define SYSTEM_TEXT strerror_r(errno, (char[128]){0}, 128)

struct gd_log_file {
    int fd;
    off_t size; /* of all complete records */
    char path[];
};

gd_status gd_log_file_open(gd_log_file **out, const char *path, bool create) {
    *out = NULL;
    gd_log_file *f = gd_calloc(1, sizeof *f + strlen(path) + 1);
    if (!f) return gd_file_no_memory(path);
    strcpy(f->path, path);
    /* Nonblocking: a named pipe must fail below instead of waiting for a reader. */
    f->fd = open(
        path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK | (create ? O_EXCL : 0), 0666);
    struct stat info;
    gd_status status = GD_OK;
    if (f->fd < 0)
        status = gd_fail(errno == EEXIST ? GD_E_STATE : GD_E_IO, "%s: cannot be opened: %s", path,
                         SYSTEM_TEXT);
    else if (fstat(f->fd, &info) != 0)
        status = gd_fail(GD_E_IO, "%s: its size cannot be read: %s", path, SYSTEM_TEXT);
    else if (!S_ISREG(info.st_mode)) status = gd_fail(GD_E_IO, "%s: is not a regular file", path);
    else f->size = info.st_size;
    if (status == GD_OK) *out = f;
    else gd_log_file_close(f);
    return status;
}

static gd_status write_all(gd_log_file *f, const char *data, size_t bytes) {
    while (bytes > 0) {
        const ssize_t n = write(f->fd, data, bytes);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return gd_fail(GD_E_IO, "%s: cannot be written: %s", f->path, SYSTEM_TEXT);
        data += n;
        bytes -= (size_t)n;
    }
    return GD_OK;
}

gd_status gd_log_file_append(gd_log_file *f, const void *data, size_t bytes) {
    const gd_status status = write_all(f, data, bytes);
    if (status == GD_OK) f->size += (off_t)bytes;
    else if (ftruncate(f->fd, f->size) != 0) gd_error_suffix("; and its end is damaged");
    return status;
}

void gd_log_file_close(gd_log_file *f) {
    if (f && f->fd >= 0) close(f->fd);
    gd_free(f);
}
