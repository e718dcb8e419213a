/* lmdb.h - reads and writes LMDB databases: sorted keys with values, in a folder with data.mdb.
 *
 * This needs liblmdb (lmdb.c); if Gradus was built without it, opening is GD_E_UNSUPPORTED and the
 * message names the package to install.
 *
 * Reading: records are numbered in the order of their keys. LMDB finds a key, not a number, so a
 * database keeps the key of each 32nd record that it has passed. A read in order takes one step for
 * a record, any other read a search and at most 31 steps; the first one beyond all records that
 * were read takes as many steps as it goes further. So n reads from the first record on take time
 * in proportion to n, in any order.
 *
 * A reader sees the database as it was when it was opened. Where the folder cannot be written, or
 * its file system has no locks, it is opened without a lock file; a program that changes the
 * database meanwhile then makes reads fail or wrong.
 *
 * liblmdb maps the file into memory and trusts it: a damaged one could end the process. Therefore
 * gd_lmdb_open checks the file first (lmdb_check.h has what it checks, and what remains). A file
 * that another program truncates while it is open still ends the process, as with every mapped
 * file.
 *
 * Writing: gd_lmdb_put collects records, which are committed, a thousand at a time, in a
 * transaction. A full disk or a killed process loses those that are not committed; the database
 * stays valid, with all others.
 *
 * Messages name the folder. GD_E_FORMAT: it is damaged; GD_E_IO: a system call failed.
 */
#ifndef GRADUS_FORMAT_LMDB_H
#define GRADUS_FORMAT_LMDB_H

#include "gradus/status.h"

/* Whether the library was built with liblmdb. */
bool gd_lmdb_is_built(void);

/* Whether a folder has a file data.mdb. */
bool gd_lmdb_is_folder(const char *folder);

/* --- reading ---------------------------------------------------------------------------------- */

typedef struct gd_lmdb gd_lmdb;

typedef struct gd_lmdb_record {
    const char *key, *value; /* in the mapped file, valid until the database is closed */
    size_t key_bytes, value_bytes;
} gd_lmdb_record;

gd_status gd_lmdb_open(gd_lmdb **out, const char *folder);
void gd_lmdb_close(gd_lmdb *db); /* NULL is fine */

const char *gd_lmdb_folder(const gd_lmdb *db);
int64_t gd_lmdb_count(const gd_lmdb *db);

/* Reads `count` records from number `first` on. Several threads may read at once. In the child of a
 * fork() records that were read before it are not valid; those that are read there are. */
gd_status gd_lmdb_read(gd_lmdb *db, int64_t first, int64_t count, gd_lmdb_record *records);

/* --- writing ---------------------------------------------------------------------------------- */

typedef struct gd_lmdb_writer gd_lmdb_writer;

/* Creates the folder, unless it exists, and a database in it. Fails if it has one already. */
gd_status gd_lmdb_create(gd_lmdb_writer **out, const char *folder);

/* Adds a record; key and value are copied. A key that is there already is a failure. */
gd_status gd_lmdb_put(gd_lmdb_writer *writer, const void *key, size_t key_bytes, const void *value,
                      size_t value_bytes);

/* The records that a failure or a kill cannot lose any more. */
int64_t gd_lmdb_committed(const gd_lmdb_writer *writer);

/* Commits the last records, and frees the writer, also after a failure. */
gd_status gd_lmdb_finish(gd_lmdb_writer *writer);
/* Frees it without its last records, which are lost. */
void gd_lmdb_cancel(gd_lmdb_writer *writer); /* NULL is fine */

#endif
