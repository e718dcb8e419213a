/* file.h - reading files at any place, and writing them whole or not at all.
 *
 * A reader knows the file's size, so that a format can compare what a header claims with what can
 * be there before it allocates anything.
 *
 * A writer fills a temporary file beside the target ("model.gd.tmp-1") and moves it over the target
 * at commit, after the bytes are on the disk. Whatever goes wrong before (a full disk, a cancel),
 * the old file is as it was and the temporary one is removed. After the move the folder is written to
 * the disk, too; if that fails, so does the commit, and the new file is in place. A killed process
 * leaves its temporary file behind; the next writer of the same target removes it (file_claim.h says
 * how it knows).
 *
 * Messages name the file. GD_E_IO: the system refused; GD_E_FORMAT: a read beyond the end.
 */
#ifndef GRADUS_FORMAT_FILE_H
#define GRADUS_FORMAT_FILE_H

#include "format/file_claim.h"
#include "gradus/status.h"

/* --- reading ---------------------------------------------------------------------------------- */

typedef struct gd_file_reader gd_file_reader;

gd_status gd_file_reader_open(gd_file_reader **out, const char *path);

/* Reads from memory instead; `name` is what messages call it. The bytes are not copied and must
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

/* The bytes of the file as memory, read when they are looked at; NULL for an empty file. They are
 * there until the reader is closed. Another program that shortens the file meanwhile breaks them.
 */
gd_status gd_file_reader_map(gd_file_reader *reader, const uint8_t **data);

/* Reads a whole file into memory from gd_malloc, with a zero byte behind the *bytes bytes. */
gd_status gd_file_read_all(const char *path, char **data, size_t *bytes);

/* --- writing ---------------------------------------------------------------------------------- */

typedef struct gd_file_writer gd_file_writer;

/* The target may be there already; then the new file keeps its permissions, and a symbolic link
 * keeps pointing to it. */
gd_status gd_file_writer_begin(gd_file_writer **out, const char *path);

/* A second file, which the one at `path` is to refer to. Its name is chosen once its contents are
 * written: until then it is PATH SUFFIX.tmp-N. It gets the permissions of the file at `path`. */
gd_status gd_file_writer_begin_beside(gd_file_writer **out, const char *path, const char *suffix);

/* Puts it in place under this name, on the disk; nothing can be written any more. It still counts
 * as owned (gd_file_sweep) until the writer is gone: commit it after the file that refers to it. A
 * cancel leaves it there. */
gd_status gd_file_writer_place(gd_file_writer *writer, const char *name);

const char *gd_file_writer_path(const gd_file_writer *writer);
uint64_t gd_file_writer_position(const gd_file_writer *writer); /* bytes written so far */

/* Appends. After a failure every further write, and the commit, fails with the same status. */
gd_status gd_file_writer_write(gd_file_writer *writer, const void *data, size_t bytes);

/* Overwrites bytes written before (a size or checksum known only later). */
gd_status gd_file_writer_write_at(gd_file_writer *writer, uint64_t offset, const void *data,
                                  size_t bytes);

/* Ends the writing, successfully or not; the writer is gone either way. */
gd_status gd_file_writer_commit(gd_file_writer *writer);
void gd_file_writer_cancel(gd_file_writer *writer); /* NULL is fine */

#endif
