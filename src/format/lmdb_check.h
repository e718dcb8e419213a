/* lmdb_check.h - checks the file of an LMDB database before liblmdb maps it into memory.
 *
 * gd_lmdb_check_head reads the two meta pages: magic, version, page size, flags, roots.
 * gd_lmdb_check_tree reads all branch and leaf pages of the records by ordinary reads, and checks
 * that every page, record and value lies inside of the file, that the depth and the number of the
 * records are those of the meta page, and that there is nothing that the reader does not expect
 * (named databases, several values for a key).
 *
 * Not checked: the order of the keys (a search may then fail to find one), the contents of values,
 * and of a file with more than GD_LMDB_CHECKED_LEAVES leaf pages (256 MiB) those leaves that come
 * later; such a file fails if it is shorter than its meta page says. Files of machines with 32 bits
 * or another byte order are refused by the magic number or the sizes.
 */
#ifndef GRADUS_FORMAT_LMDB_CHECK_H
#define GRADUS_FORMAT_LMDB_CHECK_H

#include "gradus/status.h"

enum { GD_LMDB_CHECKED_LEAVES = 1 << 16 };

/* A meta page: the state after a transaction. */
typedef struct gd_lmdb_meta {
    uint64_t transaction, root, last_page, records;
    uint32_t page_bytes;
    unsigned depth;
} gd_lmdb_meta;

/* Checks the meta pages of the file. *bytes is its size. Messages call it `path`. */
gd_status gd_lmdb_check_head(const char *path, int file, uint64_t *bytes);

/* Checks the records as of transaction `number`, which must be that of a meta page. */
gd_status gd_lmdb_check_tree(const char *path, int file, uint64_t number);

#endif
