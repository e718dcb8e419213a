/* file.c - see file.h. */
#define _GNU_SOURCE 1
#include "format/file.h"

#include "core/alloc.h"
#include "core/checked.h"
#include "core/error.h"
#include "format/file_claim.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The text of errno for a message. */
#define SYSTEM_TEXT strerror_r(errno, (char[128]){0}, 128)

enum {
    BUFFER_BYTES = 1 << 16,
    PIECE_BYTES = 1 << 30, /* the system reads and writes a little under 2 GiB at a time */
};

gd_status gd_file_no_memory(const char *path) {
    return gd_fail(GD_E_MEMORY, "%s: no memory left to read or write it", path);
}

static char *copy_text(const char *text) {
    size_t bytes = strlen(text) + 1;
    char *copy = gd_malloc(bytes);
    return copy ? memcpy(copy, text, bytes) : NULL;
}

/* --- reading ---------------------------------------------------------------------------------- */

struct gd_file_reader {
    char *path;
    uint64_t size;
    int fd;              /* -1: in memory */
    const uint8_t *data; /* in memory; NULL: a file */
};

static gd_status reader_new(gd_file_reader **out, const char *path) {
    *out = NULL;
    gd_file_reader *reader = gd_calloc(1, sizeof *reader);
    char *copy = copy_text(path);
    if (reader == NULL || copy == NULL) {
        gd_free(reader);
        gd_free(copy);
        return gd_file_no_memory(path);
    }
    reader->path = copy;
    reader->fd = -1;
    *out = reader;
    return GD_OK;
}

gd_status gd_file_reader_open_memory(gd_file_reader **out, const char *name, const void *data,
                                     size_t bytes) {
    GD_TRY(reader_new(out, name));
    (*out)->data = data;
    (*out)->size = bytes;
    return GD_OK;
}

gd_status gd_file_reader_open(gd_file_reader **out, const char *path) {
    *out = NULL;
    /* Nonblocking: a named pipe must fail below instead of waiting for a writer. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return gd_fail(GD_E_IO, "%s: cannot be opened: %s", path, SYSTEM_TEXT);
    struct stat info;
    gd_status status = GD_OK;
    if (fstat(fd, &info) != 0)
        status = gd_fail(GD_E_IO, "%s: its size cannot be read: %s", path, SYSTEM_TEXT);
    else if (!S_ISREG(info.st_mode)) status = gd_fail(GD_E_IO, "%s: is not a regular file", path);
    else status = reader_new(out, path);
    if (status != GD_OK) {
        close(fd);
        return status;
    }
    (*out)->fd = fd;
    (*out)->size = (uint64_t)info.st_size;
    return GD_OK;
}

void gd_file_reader_close(gd_file_reader *reader) {
    if (reader == NULL) return;
    if (reader->fd >= 0) close(reader->fd);
    gd_free(reader->path);
    gd_free(reader);
}

const char *gd_file_reader_path(const gd_file_reader *reader) { return reader->path; }

uint64_t gd_file_reader_size(const gd_file_reader *reader) { return reader->size; }

gd_status gd_file_reader_read_at(const gd_file_reader *reader, uint64_t offset, void *buffer,
                                 size_t bytes) {
    if (offset > reader->size || bytes > reader->size - offset)
        return gd_fail(
            GD_E_FORMAT, "%s: needs %zu bytes at %llu, but the file ends at %llu (truncated?)",
            reader->path, bytes, (unsigned long long)offset, (unsigned long long)reader->size);
    if (bytes == 0) return GD_OK;
    if (reader->fd < 0) {
        memcpy(buffer, reader->data + offset, bytes);
        return GD_OK;
    }
    for (uint8_t *to = buffer; bytes > 0;) {
        size_t piece = bytes < PIECE_BYTES ? bytes : PIECE_BYTES;
        ssize_t got = pread(reader->fd, to, piece, (off_t)offset);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0)
            return gd_fail(GD_E_IO, "%s: cannot be read at %llu: %s", reader->path,
                           (unsigned long long)offset, SYSTEM_TEXT);
        if (got == 0)
            return gd_fail(GD_E_FORMAT, "%s: has become shorter while being read, at %llu",
                           reader->path, (unsigned long long)offset);
        to += got;
        offset += (uint64_t)got;
        bytes -= (size_t)got;
    }
    return GD_OK;
}

gd_status gd_file_read_all(const char *path, char **data, size_t *bytes) {
    *data = NULL;
    *bytes = 0;
    gd_file_reader *reader;
    GD_TRY(gd_file_reader_open(&reader, path));
    size_t size = (size_t)reader->size, with_zero;
    gd_status status = GD_OK;
    char *text = NULL;
    if (size != reader->size || !gd_add_size(size, 1, &with_zero) ||
        (text = gd_malloc(with_zero)) == NULL)
        status = gd_fail(GD_E_MEMORY, "%s: no memory left for its %llu bytes", path,
                         (unsigned long long)reader->size);
    else status = gd_file_reader_read_at(reader, 0, text, size);
    gd_file_reader_close(reader);
    if (status != GD_OK) {
        gd_free(text);
        return status;
    }
    text[size] = '\0';
    *data = text;
    *bytes = size;
    return GD_OK;
}

/* --- writing ---------------------------------------------------------------------------------- */

struct gd_file_writer {
    char *path;       /* for messages */
    char *target;     /* the final name: `path` with symbolic links resolved; NULL: not known yet */
    char *temporary;  /* the name of the file; NULL: it has its final name */
    int fd;           /* of `temporary`, or -1 */
    int lock;         /* holds the lock on `temporary` once `fd` is closed, or -1 */
    gd_status status; /* of the first failure */
    uint64_t flushed; /* bytes in the file; those in `buffer` follow */
    size_t buffered;
    uint8_t buffer[BUFFER_BYTES];
};

static gd_status writer_fail(gd_file_writer *w, const char *what) {
    w->status = gd_fail(GD_E_IO, "%s: %s: %s", w->path, what, SYSTEM_TEXT);
    return w->status;
}

static void writer_free(gd_file_writer *w) {
    if (w->temporary && (w->fd >= 0 || w->lock >= 0))
        unlink(w->temporary); /* we still hold its lock */
    if (w->fd >= 0) close(w->fd);
    if (w->lock >= 0) close(w->lock);
    gd_free(w->path);
    gd_free(w->target);
    gd_free(w->temporary);
    gd_free(w);
}

/* Resolves a symbolic link, so that the commit does not replace the link. */
static gd_status find_target(gd_file_writer *w, struct stat *old, bool *replaces) {
    *replaces = stat(w->path, old) == 0;
    if (*replaces && !S_ISREG(old->st_mode))
        return gd_fail(GD_E_IO, "%s: exists and is not a regular file", w->path);
    char *real = *replaces ? realpath(w->path, NULL) : NULL;
    w->target = copy_text(real ? real : w->path);
    free(real);
    return w->target ? GD_OK : gd_file_no_memory(w->path);
}

/* Creates the temporary file with a name that no other writer uses. */
static gd_status create_temporary(gd_file_writer *w, const char *name, const char *suffix) {
    const size_t bytes = strlen(name) + strlen(suffix) + sizeof ".tmp-";
    char *stem = gd_malloc(bytes);
    if (stem == NULL) return gd_file_no_memory(w->path);
    snprintf(stem, bytes, "%s%s.tmp-", name, suffix);
    w->fd = gd_file_claim(stem, &w->temporary);
    const int error = errno;
    gd_free(stem);
    errno = error;
    if (w->fd >= 0) return GD_OK;
    return errno == ENOMEM ? gd_file_no_memory(w->path) : writer_fail(w, "cannot be created");
}

static gd_status writer_new(gd_file_writer **out, const char *path) {
    *out = NULL;
    gd_file_writer *w = gd_malloc(sizeof *w);
    char *copy = copy_text(path);
    if (w == NULL || copy == NULL) {
        gd_free(w);
        gd_free(copy);
        return gd_file_no_memory(path);
    }
    memset(w, 0, offsetof(gd_file_writer, buffer));
    w->fd = w->lock = -1;
    w->path = copy;
    *out = w;
    return GD_OK;
}

static gd_status begin_writer(gd_file_writer *w, const char *suffix) {
    struct stat old;
    bool replaces = false;
    if (suffix == NULL) {
        GD_TRY(find_target(w, &old, &replaces));
        GD_TRY(create_temporary(w, w->target, ""));
    } else {
        replaces = stat(w->path, &old) == 0 && S_ISREG(old.st_mode);
        GD_TRY(create_temporary(w, w->path, suffix));
    }
    if (replaces) (void)!fchmod(w->fd, old.st_mode & 0777);
    return GD_OK;
}

gd_status gd_file_writer_begin_beside(gd_file_writer **out, const char *path, const char *suffix) {
    GD_TRY(writer_new(out, path));
    const gd_status status = begin_writer(*out, suffix);
    if (status == GD_OK) return GD_OK;
    writer_free(*out);
    *out = NULL;
    return status;
}

gd_status gd_file_writer_begin(gd_file_writer **out, const char *path) {
    return gd_file_writer_begin_beside(out, path, NULL);
}

const char *gd_file_writer_path(const gd_file_writer *writer) { return writer->path; }

uint64_t gd_file_writer_position(const gd_file_writer *writer) {
    return writer->flushed + writer->buffered;
}

static gd_status write_fully(gd_file_writer *w, uint64_t offset, const uint8_t *data,
                             size_t bytes) {
    while (bytes > 0) {
        size_t piece = bytes < PIECE_BYTES ? bytes : PIECE_BYTES;
        ssize_t put = pwrite(w->fd, data, piece, (off_t)offset);
        if (put < 0 && errno == EINTR) continue;
        if (put < 0) return writer_fail(w, "cannot be written");
        data += put;
        offset += (uint64_t)put;
        bytes -= (size_t)put;
    }
    return GD_OK;
}

static gd_status flush_buffer(gd_file_writer *w) {
    GD_TRY(write_fully(w, w->flushed, w->buffer, w->buffered));
    w->flushed += w->buffered;
    w->buffered = 0;
    return GD_OK;
}

/* Reports an earlier failure again, since its message may have been replaced. */
static gd_status check_writer(const gd_file_writer *w) {
    if (w->status == GD_OK) return GD_OK;
    return gd_fail(w->status, "%s: an earlier write to it has failed", w->path);
}

gd_status gd_file_writer_write(gd_file_writer *w, const void *data, size_t bytes) {
    GD_TRY(check_writer(w));
    if (bytes == 0) return GD_OK;
    if (bytes > BUFFER_BYTES - w->buffered) GD_TRY(flush_buffer(w));
    if (bytes >= BUFFER_BYTES) { /* large writes bypass the buffer, which is empty now */
        GD_TRY(write_fully(w, w->flushed, data, bytes));
        w->flushed += bytes;
        return GD_OK;
    }
    memcpy(w->buffer + w->buffered, data, bytes);
    w->buffered += bytes;
    return GD_OK;
}

gd_status gd_file_writer_write_at(gd_file_writer *w, uint64_t offset, const void *data,
                                  size_t bytes) {
    GD_TRY(check_writer(w));
    uint64_t end;
    if (!gd_add_u64(offset, bytes, &end) || end > gd_file_writer_position(w))
        return gd_fail(GD_E_ARGUMENT, "%s: %zu bytes at %llu have not been written yet", w->path,
                       bytes, (unsigned long long)offset);
    GD_TRY(flush_buffer(w));
    return write_fully(w, offset, data, bytes);
}

/* Makes the rename durable, if the file system supports that. A disk error is a failure, since the
 * caller may remove the old file next. */
static gd_status sync_folder(gd_file_writer *w, const char *target) {
    const int fd = gd_file_open_folder(target);
    if (fd < 0) return GD_OK;
    gd_status status = GD_OK;
    if (fsync(fd) != 0 && errno != EINVAL && errno != ENOTSUP && errno != EROFS)
        status = writer_fail(w, "is in place, but its folder cannot be written to the disk");
    close(fd);
    return status;
}

/* Closes the file, since some network file systems report a full disk only then. A duplicate
 * descriptor keeps the lock. */
static gd_status close_file(gd_file_writer *w) {
    w->lock = fcntl(w->fd, F_DUPFD_CLOEXEC, 0);
    const int closed = close(w->fd);
    w->fd = -1;
    if (closed == 0 && w->lock >= 0) return GD_OK;
    const gd_status status = writer_fail(w, "cannot be written to the disk");
    if (w->lock < 0) unlink(w->temporary);
    return status;
}

/* Writes the file to the disk and renames it. Keeps the lock. */
static gd_status rename_file(gd_file_writer *w, const char *name) {
    GD_TRY(check_writer(w));
    GD_TRY(flush_buffer(w));
    if (fsync(w->fd) != 0) return writer_fail(w, "cannot be written to the disk");
    GD_TRY(close_file(w));
    if (rename(w->temporary, name) != 0)
        return writer_fail(w, "cannot be renamed to its final name");
    gd_free(w->temporary);
    w->temporary = NULL;
    return sync_folder(w, name);
}

gd_status gd_file_writer_place(gd_file_writer *w, const char *name) { return rename_file(w, name); }

gd_status gd_file_writer_commit(gd_file_writer *w) {
    gd_status status = w->target ? rename_file(w, w->target) : check_writer(w);
    writer_free(w);
    return status;
}

void gd_file_writer_cancel(gd_file_writer *w) {
    if (w != NULL) writer_free(w);
}
