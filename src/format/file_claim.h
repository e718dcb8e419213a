/* file_claim.h - temporary files that one writer owns, and that are removed after it died.
 *
 * A writer claims one of STEM1 ... STEM16: it creates the file and holds a lock (flock) on it while
 * it writes. The system drops the lock when the process dies, whatever its pid namespace. So a file
 * that can be locked has no owner: the next claim of the same stem removes it. There are only
 * 16 names, so no folder is searched. On a file system without locks, a file without writes for a
 * day has no owner.
 */
#ifndef GRADUS_FORMAT_FILE_CLAIM_H
#define GRADUS_FORMAT_FILE_CLAIM_H

#include <stdbool.h>

/* Creates one of the names and locks it. Returns its descriptor, or -1 with errno set; *name is
 * from gd_malloc. A duplicate of the descriptor also holds the lock, and a rename keeps it. */
int gd_file_claim(const char *stem, char **name);

/* Removes the files of these names that have no owner. */
void gd_file_sweep_claims(const char *stem);

/* The last part of a path. */
const char *gd_file_name(const char *path);

/* The folder of a path, "." if it has none; from gd_malloc, NULL: no memory. */
char *gd_file_folder(const char *path);

/* Opens the folder of a path. Returns a descriptor to close, or -1. */
int gd_file_open_folder(const char *path);

/* Locks the folder of a path (flock), shared for readers or exclusive for a writer: for several
 * files that change together. Blocks until it has the lock. Returns a descriptor to close, or -1
 * without locks. */
int gd_file_lock_folder(const char *path, bool writes);

/* Whether a file without an owner is still needed. Called while the file is locked. */
typedef struct gd_file_keep {
    bool (*needs)(void *user, const char *name);
    void *user;
} gd_file_keep;

/* Removes a file unless it has an owner or is needed. */
void gd_file_sweep(const char *name, const gd_file_keep *keep);

/* The same for all files whose names are STEM and 16 hexadecimal digits. */
void gd_file_sweep_folder(const char *stem, const gd_file_keep *keep);

#endif
