/* file.h - random-access reads, and writes that replace a file atomically.
 *
 * gd_file_reader_size gives the size of the file, so that a format can check the sizes in a header
 * before it allocates memory.
 *
 * A writer fills a temporary file in the same folder ("model.gd.tmp-1"). The commit writes it to
 * the disk and renames it to the target. If anything fails before (a full disk, a cancel), the old
 * file stays unchanged and the temporary one is removed. After the rename the folder is written to
 * the disk, too; if that fails, the commit fails although the new file is in place. A killed
 * process leaves its temporary file; the next writer of the same target removes it (file_claim.h).
 *
 * Files are never mapped into memory: if another program truncated one, an access beyond its new
 * end would end the process. A read there is a failure.
 *
 * Messages name the file. GD_E_IO: a system call failed; GD_E_FORMAT: a read beyond the end.
 */
#ifndef GRADUS_FORMAT_FILE_H
#define GRADUS_FORMAT_FILE_H

#include "format/file_claim.h"
#include "gradus/status.h"

/* Fails with "PATH: no memory ...". */
gd_status gd_file_no_memory(const char *path);

/* --- reading ---------------------------------------------------------------------------------- */

typedef struct gd_file_reader gd_file_reader;

gd_status gd_file_reader_open(gd_file_reader **out, const char *path);

/* Reads from memory instead; messages call it `name`. The bytes are not copied and must
 * outlive the reader. */
gd_status gd_file_reader_open_memory(gd_file_reader **out, const char *name, const void *data,
                                     size_t bytes);

void gd_file_reader_close(gd_file_reader *reader); /* NULL is fine */

const char *gd_file_reader_path(const gd_file_reader *reader);
uint64_t gd_file_reader_size(const gd_file_reader *reader);

/* Reads exactly `bytes` bytes from `offset` on. Keeps no position, so that several threads may
 * read at once. */
gd_status gd_file_reader_read_at(const gd_file_reader *reader, uint64_t offset, void *buffer,
                                 size_t bytes);

/* Reads all of a file into memory from gd_malloc, with a zero byte after the *bytes bytes. */
gd_status gd_file_read_all(const char *path, char **data, size_t *bytes);

/* --- writing ---------------------------------------------------------------------------------- */

typedef struct gd_file_writer gd_file_writer;

/* The new file gets the permissions of the file that it replaces. If `path` is a symbolic link, the
 * file that it points to is replaced. */
gd_status gd_file_writer_begin(gd_file_writer **out, const char *path);

/* Starts a second file, to which the one at `path` will refer. It has the temporary name
 * PATH SUFFIX.tmp-N until gd_file_writer_place, so that the final name may depend on its contents.
 * It gets the permissions of the file at `path`. */
gd_status gd_file_writer_begin_beside(gd_file_writer **out, const char *path, const char *suffix);

/* Writes it to the disk and renames it to `name`; no further writes are possible. The writer still
 * owns the file (gd_file_sweep): commit it after the file that refers to it. A cancel keeps the
 * file. */
gd_status gd_file_writer_place(gd_file_writer *writer, const char *name);

const char *gd_file_writer_path(const gd_file_writer *writer);
uint64_t gd_file_writer_position(const gd_file_writer *writer); /* bytes written so far */

/* Appends. After a failure every further write, and the commit, fails with the same status. */
gd_status gd_file_writer_write(gd_file_writer *writer, const void *data, size_t bytes);

/* Overwrites bytes written before (a size or checksum known only later). */
gd_status gd_file_writer_write_at(gd_file_writer *writer, uint64_t offset, const void *data,
                                  size_t bytes);

/* Both free the writer, also if the commit fails. */
gd_status gd_file_writer_commit(gd_file_writer *writer);
void gd_file_writer_cancel(gd_file_writer *writer); /* NULL is fine */

#endif
