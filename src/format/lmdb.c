/* lmdb.c - LMDB databases by liblmdb; see lmdb.h. */
#include "format/lmdb.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/error.h"
#include "format/lmdb_check.h"

/* "folder/data.mdb" from gd_malloc; NULL: no memory. */
static char *data_path(const char *folder) {
    const size_t length = strlen(folder);
    char *path = gd_malloc(length + sizeof "/data.mdb");
    if (path) memcpy(path, folder, length), strcpy(path + length, "/data.mdb");
    return path;
}

bool gd_lmdb_is_folder(const char *folder) {
    char *path = data_path(folder);
    const bool is = path && access(path, F_OK) == 0;
    gd_free(path);
    return is;
}

#ifdef GD_HAVE_LMDB

#include <lmdb.h>

bool gd_lmdb_is_built(void) { return true; }

/* Fails with "FOLDER: cannot be WHAT: ..." for a result of liblmdb. */
static gd_status fail_lmdb(const char *folder, const char *what, int result) {
    const bool damaged = result == MDB_CORRUPTED || result == MDB_PAGE_NOTFOUND ||
                         result == MDB_INVALID || result == MDB_VERSION_MISMATCH;
    const gd_status status = result == ENOMEM ? GD_E_MEMORY : damaged ? GD_E_FORMAT : GD_E_IO;
    return gd_fail(status, "%s: cannot be %s: %s", folder, what, mdb_strerror(result));
}

/* --- open databases --------------------------------------------------------------------------- */

/* A process may open a database only once at a time, because closing a file drops the locks of the
 * process on it. Readers of the same file share its environment. */
typedef struct environment {
    MDB_env *env;
    dev_t device;
    ino_t inode;
    int readers;
    struct environment *next;
} environment;

/* Protects the list, and cursors: a read holds it for a few steps, not while values are read. A
 * fork() waits for it. The child has the list of its own environments: it must not use those that
 * it inherits. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static environment *environments;
static int generation; /* the number of forks above this process */

static void before_fork(void) { pthread_mutex_lock(&lock); }
static void in_parent(void) { pthread_mutex_unlock(&lock); }
static void in_child(void) {
    environments = NULL;
    generation++;
    pthread_mutex_unlock(&lock);
}
static void watch_forks(void) { pthread_atfork(before_fork, in_parent, in_child); }

/* Whether a database that cannot be opened with a lock file may be opened without. */
static bool needs_no_lock(int result) {
    return result == EACCES || result == EPERM || result == EROFS || result == ENOLCK ||
           result == ENOSYS || result == ENOSPC || result == EDQUOT || result == MDB_READERS_FULL;
}

static int try_open(MDB_env **env, const char *folder, uint64_t bytes, unsigned flags) {
    int result = mdb_env_create(env);
    if (result) return result;
    /* the size of the map: no more than the file, whatever its head says */
    result = mdb_env_set_mapsize(*env, bytes);
    if (!result)
        result = mdb_env_open(*env, folder, MDB_RDONLY | MDB_NOTLS | MDB_NORDAHEAD | flags, 0644);
    if (result) mdb_env_close(*env);
    return result;
}

/* With the lock held. */
static gd_status share_environment(environment **shared, const char *folder, const char *path,
                                   int file) {
    struct stat info;
    uint64_t bytes;
    if (fstat(file, &info) != 0) return fail_lmdb(folder, "opened", errno);
    for (environment *e = environments; e; e = e->next)
        if (e->device == info.st_dev && e->inode == info.st_ino) {
            e->readers++;
            *shared = e;
            return GD_OK;
        }
    GD_TRY(gd_lmdb_check_head(path, file, &bytes));
    environment *e = gd_calloc(1, sizeof *e);
    if (!e) return gd_no_memory(folder, "to open it");
    int result = try_open(&e->env, folder, bytes, 0);
    if (needs_no_lock(result)) result = try_open(&e->env, folder, bytes, MDB_NOLOCK);
    if (result) {
        gd_free(e);
        return fail_lmdb(folder, "opened", result);
    }
    e->device = info.st_dev;
    e->inode = info.st_ino;
    e->readers = 1;
    e->next = environments;
    environments = *shared = e;
    return GD_OK;
}

/* With the lock held. */
static void leave_environment(environment *e) {
    if (--e->readers > 0) return;
    environment **link = &environments;
    while (*link != e) link = &(*link)->next;
    *link = e->next;
    mdb_env_close(e->env);
    gd_free(e);
}

/* --- reading ---------------------------------------------------------------------------------- */

enum { MARK_STEP = 32 }; /* records from one mark to the next */

/* The key of record i * MARK_STEP is marks[i]. */
typedef struct mark {
    char *key;
    size_t bytes;
} mark;

struct gd_lmdb {
    char *folder;
    environment *shared; /* NULL: not open */
    MDB_txn *txn;
    MDB_cursor *cursor;
    int generation;   /* of the process that opened it */
    int64_t count;    /* of records */
    int64_t position; /* of the cursor; -1: nowhere */
    mark *marks;
    int64_t n_marks, marks_room;
};

/* With the lock held. */
static gd_status begin_reading(gd_lmdb *db, const char *path, int file) {
    MDB_dbi dbi;
    MDB_stat stat;
    unsigned flags = 0;
    GD_TRY(share_environment(&db->shared, db->folder, path, file));
    db->generation = generation;
    int result = mdb_txn_begin(db->shared->env, NULL, MDB_RDONLY, &db->txn);
    if (!result) GD_TRY(gd_lmdb_check_tree(path, file, mdb_txn_id(db->txn)));
    if (!result) result = mdb_dbi_open(db->txn, NULL, 0, &dbi);
    if (!result) result = mdb_dbi_flags(db->txn, dbi, &flags);
    if (!result) result = mdb_stat(db->txn, dbi, &stat);
    if (!result) result = mdb_cursor_open(db->txn, dbi, &db->cursor);
    if (result) return fail_lmdb(db->folder, "opened", result);
    db->count = (int64_t)stat.ms_entries;
    db->position = -1;
    return GD_OK;
}

/* With the lock held. In the child of a fork() what the parent opened is left alone. */
static void end_reading(gd_lmdb *db) {
    if (db->generation == generation) {
        if (db->cursor) mdb_cursor_close(db->cursor);
        if (db->txn) mdb_txn_abort(db->txn);
        if (db->shared) leave_environment(db->shared);
    }
    db->cursor = NULL;
    db->txn = NULL;
    db->shared = NULL;
}

/* With the lock held. */
static gd_status open_files(gd_lmdb *db) {
    char *path = data_path(db->folder);
    if (!path) return gd_no_memory(db->folder, "to open it");
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    gd_status status = GD_OK;
    if (file < 0) {
        status = errno == ENOENT
                     ? gd_fail(GD_E_IO, "%s: is no LMDB: there is no file data.mdb", db->folder)
                     : gd_fail(GD_E_IO, "%s: cannot be opened: %s", path, strerror(errno));
    } else {
        status = begin_reading(db, path, file);
        close(file);
    }
    if (status != GD_OK) end_reading(db);
    gd_free(path);
    return status;
}

gd_status gd_lmdb_open(gd_lmdb **out, const char *folder) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_forks);
    *out = NULL;
    gd_lmdb *db = gd_calloc(1, sizeof *db);
    if (!db || !(db->folder = gd_malloc(strlen(folder) + 1))) {
        gd_free(db);
        return gd_no_memory(folder, "to open it");
    }
    strcpy(db->folder, folder);
    pthread_mutex_lock(&lock);
    const gd_status status = open_files(db);
    pthread_mutex_unlock(&lock);
    if (status == GD_OK) *out = db;
    else gd_lmdb_close(db);
    return status;
}

void gd_lmdb_close(gd_lmdb *db) {
    if (!db) return;
    pthread_mutex_lock(&lock);
    end_reading(db);
    pthread_mutex_unlock(&lock);
    for (int64_t i = 0; i < db->n_marks; i++) gd_free(db->marks[i].key);
    gd_free(db->marks);
    gd_free(db->folder);
    gd_free(db);
}

const char *gd_lmdb_folder(const gd_lmdb *db) { return db->folder; }
int64_t gd_lmdb_count(const gd_lmdb *db) { return db->count; }

/* Marks the record of the cursor, which is the next one to be marked. */
static gd_status add_mark(gd_lmdb *db, MDB_val key) {
    if (db->n_marks == db->marks_room) {
        const int64_t room = db->marks_room ? 2 * db->marks_room : 64;
        mark *marks = gd_realloc(db->marks, (size_t)room * sizeof *marks);
        if (!marks) return gd_no_memory(db->folder, "for the positions of records");
        db->marks = marks;
        db->marks_room = room;
    }
    char *copy = gd_malloc(key.mv_size);
    if (!copy) return gd_no_memory(db->folder, "for the positions of records");
    memcpy(copy, key.mv_data, key.mv_size);
    db->marks[db->n_marks++] = (mark){copy, key.mv_size};
    return GD_OK;
}

/* Moves the cursor and reads the record there. */
static gd_status move_cursor(gd_lmdb *db, MDB_cursor_op how, MDB_val *key, MDB_val *value) {
    const int result = mdb_cursor_get(db->cursor, key, value, how);
    if (result == MDB_NOTFOUND)
        return gd_fail(GD_E_FORMAT, "%s: damaged: a record is not found by its key", db->folder);
    return result ? fail_lmdb(db->folder, "read", result) : GD_OK;
}

/* Moves the cursor to record `to`: from the mark before it, or from where it is, or from the last
 * mark. */
static gd_status seek(gd_lmdb *db, int64_t to, MDB_val *key, MDB_val *value) {
    int64_t at = to / MARK_STEP < db->n_marks ? to / MARK_STEP : db->n_marks - 1;
    const int64_t from = db->position;
    const bool steps = from >= 0 && from < to && from >= at * MARK_STEP;
    if (!steps) {
        db->position = -1;
        if (at < 0) {
            GD_TRY(move_cursor(db, MDB_FIRST, key, value));
            GD_TRY(add_mark(db, *key));
            at = 0;
        } else {
            *key = (MDB_val){db->marks[at].bytes, db->marks[at].key};
            GD_TRY(move_cursor(db, MDB_SET_KEY, key, value));
        }
        db->position = at * MARK_STEP;
    }
    while (db->position < to) {
        const int64_t next = db->position + 1;
        db->position = -1; /* if it fails */
        GD_TRY(move_cursor(db, MDB_NEXT, key, value));
        if (next == db->n_marks * MARK_STEP) GD_TRY(add_mark(db, *key));
        db->position = next;
    }
    return GD_OK;
}

static gd_status read_records(gd_lmdb *db, int64_t first, int64_t count, gd_lmdb_record *records) {
    if (db->generation != generation) { /* the child of a fork */
        end_reading(db);
        const int64_t before = db->count;
        GD_TRY(open_files(db));
        if (db->count != before)
            return gd_fail(GD_E_IO, "%s: was changed while it was open", db->folder);
    }
    if (!db->cursor) return gd_fail(GD_E_IO, "%s: could not be opened again", db->folder);
    for (int64_t i = 0; i < count; i++) {
        MDB_val key, value;
        GD_TRY(seek(db, first + i, &key, &value));
        records[i] = (gd_lmdb_record){key.mv_data, value.mv_data, key.mv_size, value.mv_size};
    }
    return GD_OK;
}

gd_status gd_lmdb_read(gd_lmdb *db, int64_t first, int64_t count, gd_lmdb_record *records) {
    if (first < 0 || count < 0 || first > db->count || count > db->count - first)
        return gd_fail(GD_E_INDEX, "%s: has %lld records; number %lld does not exist", db->folder,
                       (long long)db->count, (long long)(first < 0 ? first : first + count - 1));
    pthread_mutex_lock(&lock);
    const gd_status status = read_records(db, first, count, records);
    pthread_mutex_unlock(&lock);
    return status;
}

/* --- writing ---------------------------------------------------------------------------------- */

enum { BATCH_RECORDS = 1000, BATCH_BYTES = 1 << 26, FIRST_MAP = 1 << 20 };

/* A record that is not committed: its key and its value follow each other in `data`. */
typedef struct pending {
    size_t at, key_bytes, value_bytes;
} pending;

struct gd_lmdb_writer {
    char *folder;
    MDB_env *env;
    size_t map; /* bytes */
    pending records[BATCH_RECORDS];
    int count;
    char *data;
    size_t bytes, room;
    int64_t committed;
};

static gd_status create_files(gd_lmdb_writer *w) {
    if (mkdir(w->folder, 0777) != 0 && errno != EEXIST)
        return gd_fail(GD_E_IO, "%s: cannot be created: %s", w->folder, strerror(errno));
    if (gd_lmdb_is_folder(w->folder))
        return gd_fail(GD_E_IO,
                       "%s: has a database already; remove the folder or choose another name",
                       w->folder);
    int result = mdb_env_create(&w->env);
    if (!result) result = mdb_env_set_mapsize(w->env, w->map = FIRST_MAP);
    if (!result) result = mdb_env_open(w->env, w->folder, 0, 0666);
    return result ? fail_lmdb(w->folder, "created", result) : GD_OK;
}

gd_status gd_lmdb_create(gd_lmdb_writer **out, const char *folder) {
    *out = NULL;
    gd_lmdb_writer *w = gd_calloc(1, sizeof *w);
    if (!w || !(w->folder = gd_malloc(strlen(folder) + 1))) {
        gd_free(w);
        return gd_no_memory(folder, "to create it");
    }
    strcpy(w->folder, folder);
    const gd_status status = create_files(w);
    if (status == GD_OK) *out = w;
    else gd_lmdb_cancel(w);
    return status;
}

static int put_all(gd_lmdb_writer *w, MDB_txn *txn) {
    MDB_dbi dbi;
    int result = mdb_dbi_open(txn, NULL, 0, &dbi);
    for (int i = 0; i < w->count && !result; i++) {
        const pending *r = &w->records[i];
        MDB_val key = {r->key_bytes, w->data + r->at},
                value = {r->value_bytes, w->data + r->at + r->key_bytes};
        result = mdb_put(txn, dbi, &key, &value, MDB_NOOVERWRITE);
    }
    return result;
}

/* One transaction for all records that wait. */
static int try_commit(gd_lmdb_writer *w) {
    MDB_txn *txn;
    int result = mdb_txn_begin(w->env, NULL, 0, &txn);
    if (result) return result;
    result = put_all(w, txn);
    if (!result) return mdb_txn_commit(txn);
    mdb_txn_abort(txn);
    return result;
}

static gd_status commit(gd_lmdb_writer *w) {
    if (w->count == 0) return GD_OK;
    int result;
    /* the map is enlarged between transactions, so one that finds it full is repeated */
    while ((result = try_commit(w)) == MDB_MAP_FULL) {
        if (w->map > SIZE_MAX / 4) break;
        if ((result = mdb_env_set_mapsize(w->env, w->map *= 2))) break;
    }
    if (result == MDB_KEYEXIST)
        return gd_fail(GD_E_ARGUMENT, "%s: a key is written twice", w->folder);
    if (result) return fail_lmdb(w->folder, "written", result);
    w->committed += w->count;
    w->count = 0;
    w->bytes = 0;
    return GD_OK;
}

gd_status gd_lmdb_put(gd_lmdb_writer *w, const void *key, size_t key_bytes, const void *value,
                      size_t value_bytes) {
    const size_t most = (size_t)mdb_env_get_maxkeysize(w->env);
    if (key_bytes < 1 || key_bytes > most)
        return gd_fail(GD_E_ARGUMENT, "%s: a key has %zu bytes, '%.60s...'; LMDB takes 1 to %zu",
                       w->folder, key_bytes, key_bytes ? (const char *)key : "", most);
    if (value_bytes > INT32_MAX)
        return gd_fail(GD_E_ARGUMENT, "%s: a value has %zu bytes; at most 2^31 - 1 are written",
                       w->folder, value_bytes);
    const size_t bytes = key_bytes + value_bytes;
    if (w->count == BATCH_RECORDS || (w->count && w->bytes + bytes > BATCH_BYTES))
        GD_TRY(commit(w));
    if (w->room - w->bytes < bytes) {
        const size_t room = 2 * w->bytes + bytes + 4096;
        char *data = gd_realloc(w->data, room);
        if (!data) return gd_no_memory(w->folder, "to write it");
        w->data = data;
        w->room = room;
    }
    memcpy(w->data + w->bytes, key, key_bytes);
    memcpy(w->data + w->bytes + key_bytes, value, value_bytes);
    w->records[w->count++] = (pending){w->bytes, key_bytes, value_bytes};
    w->bytes += bytes;
    return GD_OK;
}

int64_t gd_lmdb_committed(const gd_lmdb_writer *w) { return w->committed; }

gd_status gd_lmdb_finish(gd_lmdb_writer *w) {
    const gd_status status = commit(w);
    gd_lmdb_cancel(w);
    return status;
}

void gd_lmdb_cancel(gd_lmdb_writer *w) {
    if (!w) return;
    if (w->env) mdb_env_close(w->env);
    gd_free(w->data);
    gd_free(w->folder);
    gd_free(w);
}

#else

bool gd_lmdb_is_built(void) { return false; }

static gd_status fail_not_built(const char *folder) {
    return gd_fail(GD_E_UNSUPPORTED,
                   "%s: this library was built without liblmdb, which LMDB databases need: install "
                   "liblmdb-dev "
                   "(Debian, Ubuntu) or lmdb-devel (Fedora) and build it again",
                   folder);
}

gd_status gd_lmdb_open(gd_lmdb **out, const char *folder) {
    *out = NULL;
    return fail_not_built(folder);
}
void gd_lmdb_close(gd_lmdb *db) { (void)db; }
const char *gd_lmdb_folder(const gd_lmdb *db) { return (void)db, ""; }
int64_t gd_lmdb_count(const gd_lmdb *db) { return (void)db, 0; }
gd_status gd_lmdb_read(gd_lmdb *db, int64_t first, int64_t count, gd_lmdb_record *records) {
    (void)db, (void)first, (void)count, (void)records;
    return fail_not_built("?");
}
gd_status gd_lmdb_create(gd_lmdb_writer **out, const char *folder) {
    *out = NULL;
    return fail_not_built(folder);
}
gd_status gd_lmdb_put(gd_lmdb_writer *w, const void *key, size_t key_bytes, const void *value,
                      size_t value_bytes) {
    (void)w, (void)key, (void)key_bytes, (void)value, (void)value_bytes;
    return fail_not_built("?");
}
int64_t gd_lmdb_committed(const gd_lmdb_writer *w) { return (void)w, 0; }
gd_status gd_lmdb_finish(gd_lmdb_writer *w) { return (void)w, fail_not_built("?"); }
void gd_lmdb_cancel(gd_lmdb_writer *w) { (void)w; }

#endif
