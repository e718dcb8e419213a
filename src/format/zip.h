/* zip.h - reads and writes ZIP archives, as .npz files (and PyTorch's .pth) need them.
 *
 * Reading: the central directory, Zip64, entries that are stored or deflated, with their checksum
 * verified when the last byte is read. Writing: stored entries, Zip64 if sizes need it, the same
 * bytes for the same contents (no dates). Not supported: encryption, archives in several parts, or
 * with data before the first entry.
 *
 * A damaged archive is GD_E_FORMAT with the reason and the position. Sizes are checked before
 * memory is allocated: `bytes` of an entry is at most what its compressed bytes can hold.
 */
#ifndef GRADUS_FORMAT_ZIP_H
#define GRADUS_FORMAT_ZIP_H

#include "gradus/status.h"
#include "format/file.h"

/* --- reading ---------------------------------------------------------------------------------- */

typedef struct gd_zip_entry {
    const char *name;      /* without zero bytes; otherwise as in the archive */
    uint64_t bytes;        /* decompressed */
    uint64_t stored_bytes; /* in the archive */
    uint64_t offset;       /* of its local header */
    uint32_t crc;
    uint16_t method; /* 0 stored, 8 deflated; others cannot be read */
    uint16_t flags;
} gd_zip_entry;

typedef struct gd_zip_reader gd_zip_reader;

/* Reads the directory. The file is borrowed: it must outlive the reader. */
gd_status gd_zip_reader_open(gd_zip_reader **out, const gd_file_reader *file);
void gd_zip_reader_close(gd_zip_reader *zip); /* NULL is fine */

size_t gd_zip_reader_count(const gd_zip_reader *zip);
const gd_zip_entry *gd_zip_reader_at(const gd_zip_reader *zip, size_t i); /* i < count */

/* The entry of this name, or NULL; if there are several, the last one, as in other
 * implementations. */
const gd_zip_entry *gd_zip_reader_find(const gd_zip_reader *zip, const char *name);

/* An entry's contents, from the first byte to the last. Several may be open at once. */
typedef struct gd_zip_stream gd_zip_stream;

gd_status gd_zip_stream_open(gd_zip_stream **out, const gd_zip_reader *zip,
                             const gd_zip_entry *entry);
void gd_zip_stream_close(gd_zip_stream *stream); /* NULL is fine */

/* "archive.npz: entry.npy", for messages. */
const char *gd_zip_stream_name(const gd_zip_stream *stream);

/* The position in the file of the next byte of a stored entry. */
uint64_t gd_zip_stream_offset(const gd_zip_stream *stream);

/* Reads exactly the next `bytes` bytes. With the last byte of the entry the checksum is compared,
 * and a mismatch is that call's GD_E_FORMAT. */
gd_status gd_zip_stream_read(gd_zip_stream *stream, void *buffer, size_t bytes);

/* --- writing ---------------------------------------------------------------------------------- */

typedef struct gd_zip_writer gd_zip_writer;

/* The archive appears at `path` with the commit: see gd_file_writer. */
gd_status gd_zip_writer_begin(gd_zip_writer **out, const char *path);

/* Begins an entry (and ends the one before); its contents follow in any number of writes. Names
 * are UTF-8 and not empty; each may be used once, which is checked at the commit. */
gd_status gd_zip_writer_entry(gd_zip_writer *zip, const char *name);
gd_status gd_zip_writer_write(gd_zip_writer *zip, const void *data, size_t bytes);

/* Both free the writer, also if the commit fails. */
gd_status gd_zip_writer_commit(gd_zip_writer *zip);
void gd_zip_writer_cancel(gd_zip_writer *zip); /* NULL is fine */

#endif
