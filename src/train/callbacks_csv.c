/* callbacks_csv.c - csv_log: writes the values of a run to a CSV file.
 *
 * The first line is the header: the names of the values. A name that appears later is added at the
 * end of the header; rows written before are shorter. A checkpoint holds the number of rows; a run
 * that is resumed from it drops later rows and appends.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/grow.h"
#include "core/number.h"
#include "format/file.h"
#include "format/log_file.h"
#include "gradus/callbacks.h"
#include "train/callback.h"
#include "train/checkpoint_files.h"

/*callback csv_log(path:string)
 * Appends a row to a CSV file after each epoch: the epoch, counted from 1, the number of steps so
 * far, and all values. A new run replaces the log of an earlier one; a resumed run drops the rows
 * written after its checkpoint and appends. If the disk is full, rows are lost with a warning and
 * training continues.
 *   every int = 0   in [0, inf): steps between additional rows, which have no validation values; 0: none
 *   python CSVLog
 */

/* A string that grows. */
typedef struct text {
    char *at;
    int count, room;
    bool failed; /* no memory */
} text;

static void add_text(text *t, const char *more, size_t bytes) {
    for (size_t i = 0; i < bytes && !t->failed; i++) {
        t->failed = !gd_grow(t->at, t->count, t->room);
        if (!t->failed) t->at[t->count++] = more[i];
    }
}

typedef struct csv_log {
    gd_log_file *file; /* NULL: the run has not begun, or the file cannot be opened */
    char **columns;    /* names of values, owned */
    int n_columns, columns_room;
    int64_t rows; /* without the header */
    bool warned;  /* about lost rows */
} csv_log;

static void drop_columns(csv_log *l) {
    while (l->n_columns > 0) gd_free(l->columns[--l->n_columns]);
}

static gd_status add_column(csv_log *l, const char *name, size_t length) {
    char *copy = gd_calloc(1, length + 1);
    if (!copy || !gd_grow(l->columns, l->n_columns, l->columns_room)) {
        gd_free(copy);
        return gd_no_memory(NULL, "for the log");
    }
    l->columns[l->n_columns++] = memcpy(copy, name, length);
    return GD_OK;
}

static bool has_column(const csv_log *l, const char *name) {
    for (int i = 0; i < l->n_columns; i++)
        if (strcmp(l->columns[i], name) == 0) return true;
    return false;
}

static gd_status csv_log_check(const void *options) {
    const gd_csv_log_options *o = options;
    return o->path && *o->path ? GD_OK : gd_fail(GD_E_ARGUMENT, "the path is empty");
}

static gd_status csv_log_open(gd_callback *c) {
    c->self = gd_calloc(1, sizeof(csv_log));
    return c->self ? GD_OK : gd_no_memory(NULL, "for the log");
}

static void csv_log_close(gd_callback *c) {
    csv_log *l = c->self;
    if (!l) return;
    gd_log_file_close(l->file);
    drop_columns(l);
    gd_free(l->columns);
    gd_free(l);
}

static gd_status csv_log_save(gd_callback *c, gd_state *state) {
    return gd_state_put_integer(state, "rows", ((csv_log *)c->self)->rows);
}

static gd_status csv_log_load(gd_callback *c, gd_loading *in) {
    return gd_loading_integer(in, "rows", &((csv_log *)c->self)->rows);
}

/* --- the header ------------------------------------------------------------------------------- */

/* A name with commas or quotes is quoted; quotes in it are doubled. */
static void add_name(text *t, const char *name) {
    const bool quoted = strcspn(name, ",\"\r\n") < strlen(name);
    if (quoted) add_text(t, "\"", 1);
    for (const char *c = name; *c; c++) {
        if (*c == '"') add_text(t, "\"", 1);
        add_text(t, *c == '\n' || *c == '\r' ? " " : c, 1);
    }
    if (quoted) add_text(t, "\"", 1);
}

static void add_header(text *t, const csv_log *l) {
    add_text(t, "epoch,step", 10);
    for (int i = 0; i < l->n_columns; i++) {
        add_text(t, ",", 1);
        add_name(t, l->columns[i]);
    }
    add_text(t, "\n", 1);
}

/* Reads a name of the header, which ends at a comma or at `end`. Returns the position after it. */
static const char *read_name(const char *at, const char *end, text *name) {
    const bool quoted = at < end && *at == '"';
    for (at += quoted; at < end; at++) {
        if (quoted && *at == '"') {
            if (at + 1 >= end || at[1] != '"') return at + 1;
            at++;
        } else if (!quoted && *at == ',') {
            return at;
        }
        add_text(name, at, 1);
    }
    return at;
}

static gd_status read_header(csv_log *l, const char *at, const char *end) {
    gd_status status = GD_OK;
    drop_columns(l);
    for (int i = 0; at <= end && status == GD_OK; i++) { /* the first two are epoch and step */
        text name = {0};
        at = read_name(at, end, &name) + 1;
        if (name.failed) status = gd_no_memory(NULL, "for the log");
        else if (i >= 2) status = add_column(l, name.at ? name.at : "", (size_t)name.count);
        gd_free(name.at);
    }
    return status;
}

/* --- the file --------------------------------------------------------------------------------- */

/* Turns a failure to write into a warning. */
static gd_status warn_lost(csv_log *l, gd_event *event, gd_status status) {
    return gd_event_warn_lost(event, status, "csv_log: rows", &l->warned);
}

/* Replaces the file by the header and these rows. */
static gd_status replace_log(csv_log *l, const char *path, const char *rows, size_t bytes) {
    gd_log_file_close(l->file);
    l->file = NULL;
    text header = {0};
    add_header(&header, l);
    gd_file_writer *writer = NULL;
    gd_status status =
        header.failed ? gd_no_memory(NULL, "for the log") : gd_file_writer_begin(&writer, path);
    if (status == GD_OK) status = gd_file_writer_write(writer, header.at, (size_t)header.count);
    if (status == GD_OK && bytes) status = gd_file_writer_write(writer, rows, bytes);
    if (status == GD_OK) status = gd_file_writer_commit(writer);
    else gd_file_writer_cancel(writer);
    gd_free(header.at);
    return status == GD_OK ? gd_log_file_open(&l->file, path, false) : status;
}

/* Skips `lines` complete lines, or all of them if there are fewer; *found is the number skipped. */
static const char *skip_lines(const char *at, const char *end, int64_t lines, int64_t *found) {
    *found = 0;
    for (const char *next; *found < lines && (next = memchr(at, '\n', (size_t)(end - at)));
         ++*found)
        at = next + 1;
    return at;
}

static gd_status check_header(const char *path, const char *data, size_t bytes) {
    if (bytes == 0 || (bytes >= 11 && strncmp(data, "epoch,step", 10) == 0)) return GD_OK;
    return gd_fail(GD_E_FORMAT, "%s: not a log of csv_log: it does not begin with \"epoch,step\"",
                   path);
}

/* Reads the header, and removes all rows after the first `rows`. */
static gd_status resume_log(csv_log *l, const char *path, int64_t rows) {
    char *data;
    size_t bytes;
    GD_TRY(gd_file_read_all(path, &data, &bytes));
    int64_t found;
    const char *end = data + bytes, *body = skip_lines(data, end, 1, &found);
    gd_status status = check_header(path, data, bytes);
    if (status == GD_OK) status = found ? read_header(l, data, body - 1) : GD_OK;
    const char *rest = status == GD_OK ? skip_lines(body, end, rows, &l->rows) : NULL;
    if (status == GD_OK)
        status = rest == end ? gd_log_file_open(&l->file, path, false)
                             : replace_log(l, path, body, (size_t)(rest - body));
    gd_free(data);
    return status;
}

static gd_status make_folder_of(const char *path) {
    const char *slash = strrchr(path, '/');
    if (!slash || slash == path) return GD_OK;
    char *folder = gd_calloc(1, (size_t)(slash - path) + 1);
    if (!folder) return gd_no_memory(NULL, "for the log");
    memcpy(folder, path, (size_t)(slash - path));
    const gd_status status = gd_checkpoint_make_folder(folder);
    gd_free(folder);
    return status;
}

/* Removes the log of an earlier run. Fails for any other file: its path is a mistake. */
static gd_status remove_log(const char *path) {
    char *data;
    size_t bytes;
    GD_TRY(gd_file_read_all(path, &data, &bytes));
    const gd_status status = check_header(path, data, bytes);
    gd_free(data);
    if (status == GD_OK) unlink(path);
    return status;
}

/* Fails before the run if the path cannot be written. */
static gd_status begin_log(csv_log *l, const char *path, gd_event *event) {
    gd_log_file_close(l->file);
    l->file = NULL;
    l->warned = false;
    GD_TRY(make_folder_of(path));
    const bool exists = access(path, F_OK) == 0;
    if (event->step > 0 && exists) return resume_log(l, path, l->rows);
    if (exists) GD_TRY(remove_log(path));
    l->rows = 0;
    drop_columns(l);
    return gd_log_file_open(&l->file, path, false);
}

/* --- rows ------------------------------------------------------------------------------------- */

static void add_number(text *t, double value) {
    char digits[GD_DOUBLE_TEXT];
    if (isnan(value)) strcpy(digits, "nan");
    else if (isinf(value)) strcpy(digits, value < 0 ? "-inf" : "inf");
    else gd_double_print(digits, value);
    add_text(t, digits, strlen(digits));
}

/* Rows after a step leave out the values of the last validation. */
static bool is_in_row(const char *name, bool of_step) {
    return !of_step || strncmp(name, "val_", 4) != 0;
}

/* Adds columns for names that the header lacks. "lr" comes last. */
static gd_status add_new_columns(csv_log *l, gd_event *event, bool *added) {
    const char *name;
    for (int i = 0; (name = gd_event_name_at(event, i)); i++) {
        if (has_column(l, name)) continue;
        GD_TRY(add_column(l, name, strlen(name)));
        *added = true;
    }
    if (has_column(l, "lr") || isnan(gd_event_value(event, "lr"))) return GD_OK;
    *added = true;
    return add_column(l, "lr", 2);
}

static gd_status rewrite_header(csv_log *l, const char *path) {
    char *data;
    size_t bytes;
    int64_t found;
    GD_TRY(gd_file_read_all(path, &data, &bytes));
    const char *body = skip_lines(data, data + bytes, 1, &found);
    const gd_status status = replace_log(l, path, body, (size_t)(data + bytes - body));
    gd_free(data);
    return status;
}

static gd_status write_row(csv_log *l, gd_event *event, bool of_step) {
    char start[60];
    text row = {0};
    snprintf(start, sizeof start, "%lld,%lld", (long long)event->epoch + 1, (long long)event->step);
    add_text(&row, start, strlen(start));
    for (int i = 0; i < l->n_columns; i++) {
        add_text(&row, ",", 1);
        if (is_in_row(l->columns[i], of_step))
            add_number(&row, gd_event_value(event, l->columns[i]));
    }
    add_text(&row, "\n", 1);
    const gd_status status = row.failed ? gd_no_memory(NULL, "for the log")
                                        : gd_log_file_append(l->file, row.at, (size_t)row.count);
    gd_free(row.at);
    if (status == GD_OK) l->rows++;
    return status;
}

static gd_status log_values(csv_log *l, const char *path, gd_event *event, bool of_step) {
    bool added = false;
    if (!l->file) GD_TRY(gd_log_file_open(&l->file, path, false));
    const int before = l->n_columns;
    GD_TRY(add_new_columns(l, event, &added));
    const gd_status status = added ? rewrite_header(l, path) : GD_OK;
    if (status != GD_OK) { /* the file still has the old header */
        while (l->n_columns > before) gd_free(l->columns[--l->n_columns]);
        return status;
    }
    return write_row(l, event, of_step);
}

static gd_status csv_log_on(gd_callback *c, gd_event *event) {
    const gd_csv_log_options *o = c->options;
    csv_log *l = c->self;
    switch (event->kind) {
    case GD_ON_FIT_BEGIN: return begin_log(l, o->path, event);
    case GD_ON_BATCH_END:
        if (o->every == 0 || event->step % o->every != 0) return GD_OK;
        return warn_lost(l, event, log_values(l, o->path, event, true));
    case GD_ON_EPOCH_END: return warn_lost(l, event, log_values(l, o->path, event, false));
    case GD_ON_FIT_END:
        gd_log_file_close(l->file);
        l->file = NULL;
        return GD_OK;
    default: return GD_OK;
    }
}

#include "train/callbacks_csv.gen.h"
