/* state_shards.c - saves a state in several files (shards) and an index that names them.
 *
 * The index and its shards always belong together, even if the process is killed. Shards are
 * written under temporary names. Then, while the folder is locked, they are renamed to names that
 * the old index does not use (two series of names alternate), the new index replaces the old one,
 * and files of both series that it does not name are removed.
 *
 * Order: names; writing; the old index; removing unused files; the save.
 */
#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/checked.h"
#include "io/state_io.h"

enum { MAX_SHARDS = 512, DIGITS = 5 };
static const uint64_t DEFAULT_BYTES = 5000000000u;
static const char *const series[] = {"", "-b"};

typedef struct shard {
    size_t first, count; /* of the contents' tensors */
    gd_file_writer *writer;
    char *path;       /* once it has its final name */
    const char *name; /* the last part of the path */
} shard;

typedef struct shards {
    const gd_state_contents *contents;
    shard *at;
    size_t count;
    uint64_t total_bytes;
    gd_json_doc *old_index; /* the index that is at the path before the save */
    const char **old_names; /* the names of its shards */
    size_t n_old;
} shards;

/* The length of "DIR/model" in "DIR/model.safetensors.index.json". */
static size_t stem_length(const char *path) {
    static const char middle[] = ".safetensors";
    size_t length = strlen(path) - strlen(".index.json");
    if (length > sizeof middle - 1 &&
        strncmp(path + length - (sizeof middle - 1), middle, sizeof middle - 1) == 0)
        length -= sizeof middle - 1;
    return length;
}

/* --- names ------------------------------------------------------------------------------------ */

static bool starts_with_digits(const char *text) { return strspn(text, "0123456789") >= DIGITS; }

/* The series of a file name; -1: none. */
static int name_series(const char *path, const char *name) {
    const size_t stem = stem_length(path) - (size_t)(gd_file_name(path) - path);
    if (strncmp(name, gd_file_name(path), stem) != 0) return -1;
    name += stem;
    for (int s = 1; s >= 0; s--) {
        const size_t length = strlen(series[s]);
        const char *rest = name + length;
        if (strncmp(name, series[s], length) != 0 || strlen(rest) < 2 * DIGITS + 5) continue;
        if (rest[0] == '-' && starts_with_digits(rest + 1) &&
            strncmp(rest + 1 + DIGITS, "-of-", 4) == 0 && starts_with_digits(rest + DIGITS + 5) &&
            strcmp(rest + 2 * DIGITS + 5, ".safetensors") == 0)
            return s;
    }
    return -1;
}

static gd_status name_shards(shards *w) {
    const char *path = w->contents->path;
    const size_t stem = stem_length(path), bytes = stem + 64;
    int used = -1;
    for (size_t i = 0; i < w->n_old; i++)
        if (name_series(path, w->old_names[i]) >= 0) used = name_series(path, w->old_names[i]);
    for (size_t i = 0; i < w->count; i++) {
        shard *s = &w->at[i];
        s->path = gd_malloc(bytes);
        if (!s->path) return gd_no_memory(path, "to save or load a state");
        snprintf(s->path, bytes, "%.*s%s-%05zu-of-%05zu.safetensors", (int)stem, path,
                 series[used == 0], i + 1, w->count);
        s->name = gd_file_name(s->path);
    }
    return GD_OK;
}

/* --- writing ---------------------------------------------------------------------------------- */

/* Assigns the tensors to shards in their order, and starts a new shard when the next tensor does
 * not fit. */
static gd_status assign_shards(shards *w, uint64_t limit) {
    const gd_state_contents *c = w->contents;
    uint64_t filled = 0;
    for (size_t i = 0; i < c->n_tensors; i++) {
        const uint64_t bytes = gd_state_bytes(c->tensors[i]->tensor);
        if (i == 0 || (filled > 0 && (filled >= limit || bytes > limit - filled))) {
            if (w->count == MAX_SHARDS)
                return gd_fail(GD_E_ARGUMENT,
                               "%s: more than %d shards; choose a larger .shard_bytes", c->path,
                               MAX_SHARDS);
            w->at[w->count++] = (shard){.first = i};
            filled = 0;
        }
        w->at[w->count - 1].count++;
        if (!gd_add_u64(filled, bytes, &filled) ||
            !gd_add_u64(w->total_bytes, bytes, &w->total_bytes))
            return gd_fail(GD_E_OVERFLOW, "%s: the tensors are too large", c->path);
    }
    return GD_OK;
}

static gd_status write_shards(shards *w) {
    static const gd_safetensors_value values[] = {{GD_STATE_FORMAT, "pt"},
                                                  {GD_CHECKSUM_KEY, GD_CHECKSUM_BLANK}};
    const gd_state_contents *c = w->contents;
    for (size_t i = 0; i < w->count; i++) {
        char suffix[32];
        snprintf(suffix, sizeof suffix, "-%05zu", i + 1);
        GD_TRY(gd_file_writer_begin_beside(&w->at[i].writer, c->path, suffix));
        GD_TRY(gd_state_write(w->at[i].writer, c->path, c->tensors + w->at[i].first, w->at[i].count,
                              values, c->checksum ? 2 : 1));
    }
    return GD_OK;
}

static gd_status make_index_text(const shards *w, char **text, size_t *bytes) {
    const gd_state_contents *c = w->contents;
    gd_json_writer *j = gd_malloc(sizeof *j);
    if (!j) return gd_no_memory(c->path, "to save or load a state");
    gd_json_writer_begin(j, 2);
    gd_json_put_begin_object(j);
    gd_json_put_key(j, "metadata");
    gd_json_put_begin_object(j);
    gd_json_put_key(j, "total_size");
    gd_json_put_int(j, (int64_t)w->total_bytes);
    for (size_t i = 0; i < c->n_values; i++) {
        gd_json_put_key(j, c->values[i].key);
        gd_json_put_string(j, c->values[i].text);
    }
    gd_json_put_end_object(j);
    gd_json_put_key(j, "weight_map");
    gd_json_put_begin_object(j);
    for (size_t i = 0; i < w->count; i++)
        for (size_t k = 0; k < w->at[i].count; k++) {
            gd_json_put_key(j, c->tensors[w->at[i].first + k]->name);
            gd_json_put_string(j, w->at[i].name);
        }
    gd_json_put_end_object(j);
    gd_json_put_end_object(j);
    const gd_status status = gd_json_writer_end(j, text, bytes);
    gd_free(j);
    return status;
}

static void fill_checksum(char *text, size_t bytes) {
    gd_xxh64 hash = gd_xxh64_begin();
    size_t digits_at;
    if (!gd_checksum_find(text, bytes, &digits_at)) return;
    gd_xxh64_add(&hash, text, bytes);
    gd_checksum_print(gd_xxh64_value(&hash), text + digits_at);
}

static gd_status write_index(const shards *w) {
    char *text;
    size_t bytes;
    gd_file_writer *file;
    GD_TRY(make_index_text(w, &text, &bytes));
    fill_checksum(text, bytes);
    gd_status status = gd_file_writer_begin(&file, w->contents->path);
    if (status == GD_OK) {
        status = gd_file_writer_write(file, text, bytes);
        if (status == GD_OK) status = gd_file_writer_commit(file);
        else gd_file_writer_cancel(file);
    }
    gd_free(text);
    return status;
}

/* --- the old index ---------------------------------------------------------------------------- */

static void free_old_index(shards *w) {
    gd_json_free(w->old_index);
    gd_free(w->old_names);
    w->old_index = NULL;
    w->old_names = NULL;
    w->n_old = 0;
}

/* A file that is not an index, or does not exist, names no shards. */
static gd_status read_old_index(shards *w) {
    free_old_index(w);
    if (access(w->contents->path, F_OK) != 0) return GD_OK;
    const gd_status status =
        gd_state_index_read(w->contents->path, &w->old_index, &w->old_names, &w->n_old);
    return status == GD_E_FORMAT ? GD_OK : status;
}

/* --- removing unused files -------------------------------------------------------------------- */

/* Whether a killed save left this file: "model.safetensors.index.json-00001.tmp-1". */
static bool is_temporary(const char *path, const char *name) {
    const char *base = gd_file_name(path);
    const size_t length = strlen(base);
    return strncmp(name, base, length) == 0 && name[length] == '-' &&
           starts_with_digits(name + length + 1) &&
           strncmp(name + length + 1 + DIGITS, ".tmp-", 5) == 0;
}

static bool is_in_index(const shards *w, const char *name) {
    for (size_t i = 0; i < w->n_old; i++)
        if (strcmp(w->old_names[i], name) == 0) return true;
    return false;
}

/* Removes shards that the index does not name, and temporary files. The folder is locked; files
 * that another save is writing are locked, too. */
static void remove_unused_files(const shards *w) {
    const char *path = w->contents->path;
    const size_t before = (size_t)(gd_file_name(path) - path), room = before + 256 + 2;
    char *name = gd_malloc(room);
    if (!name) return; /* the next save removes them */
    memcpy(name, path, before);
    name[before] = 0;
    DIR *folder = opendir(before ? name : ".");
    for (struct dirent *e; folder && (e = readdir(folder)) != NULL;) {
        const bool unused = name_series(path, e->d_name) >= 0 ? !is_in_index(w, e->d_name)
                                                              : is_temporary(path, e->d_name);
        if (!unused || strlen(e->d_name) > 256) continue;
        memcpy(name + before, e->d_name, strlen(e->d_name) + 1);
        gd_file_sweep(name, NULL);
    }
    if (folder) closedir(folder);
    gd_free(name);
}

/* Reads the index again and removes files that it does not name. Keeps the message of a failure. */
static void clean_up_files(shards *w, gd_status failed) {
    char *message = NULL;
    if (failed != GD_OK) {
        const size_t bytes = strlen(gd_latest_failure()) + 1;
        message = gd_malloc(bytes);
        if (!message) return; /* the next save removes them */
        memcpy(message, gd_latest_failure(), bytes);
    }
    if (read_old_index(w) == GD_OK) remove_unused_files(w);
    if (message) gd_fail(failed, "%s", message);
    gd_free(message);
}

/* --- the save --------------------------------------------------------------------------------- */

static gd_status commit_files(shards *w) {
    GD_TRY(read_old_index(w));
    GD_TRY(name_shards(w));
    for (size_t i = 0; i < w->count; i++)
        GD_TRY(gd_file_writer_place(w->at[i].writer, w->at[i].path));
    return write_index(w);
}

gd_status gd_state_save_shards(const gd_state_contents *c, uint64_t shard_bytes) {
    shards w = {.contents = c};
    w.at = gd_calloc(MAX_SHARDS, sizeof *w.at);
    gd_status status = w.at ? assign_shards(&w, shard_bytes ? shard_bytes : DEFAULT_BYTES)
                            : gd_no_memory(c->path, "to save or load a state");
    if (status == GD_OK) status = write_shards(&w);
    const int lock = gd_file_lock_folder(c->path, true);
    if (status == GD_OK) status = commit_files(&w);
    for (size_t i = 0; i < w.count; i++)
        gd_file_writer_cancel(w.at[i].writer); /* keeps files that have their final name */
    if (w.at) clean_up_files(&w, status);
    if (lock >= 0) close(lock);
    free_old_index(&w);
    for (size_t i = 0; i < w.count; i++) gd_free(w.at[i].path);
    gd_free(w.at);
    return status;
}
