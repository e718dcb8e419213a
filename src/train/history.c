/* history.c - the table of values that gd_fit returns: one row for each epoch. */
#include "train/history.h"

#include <math.h>
#include <string.h>

#include "core/alloc.h"
#include "core/checked.h"
#include "core/device.h"
#include "core/freed.h"
#include "core/grow.h"
#include "core/thread.h"

/* --- the object ------------------------------------------------------------------------------- */

static void free_names(char **names, int count) {
    for (int i = 0; i < count; i++) gd_free(names[i]);
    gd_free(names);
}

static void destroy_history(gd_object *object) {
    gd_history *h = (gd_history *)object;
    free_names(h->names, h->n_columns);
    gd_free(h->values);
    gd_object_free(object);
    gd_object_count(-1);
}

static gd_status save_history(gd_object *object, gd_state *state);
static gd_status load_history(gd_object *object, gd_loading *in);
static const gd_state_rules state_rules = {save_history, load_history};
static const gd_class history_class = {
    .name = "history", .destroy = destroy_history, .state = &state_rules};
GD_KNOWN_CLASS(history_class)

gd_history *gd_history_bare(void) {
    gd_history *h = gd_calloc(1, sizeof *h);
    if (!h) {
        gd_no_memory(NULL, "for a history");
        return NULL;
    }
    gd_object_init(&h->object, &history_class);
    gd_object_count(1);
    return h;
}

/* --- filling it ------------------------------------------------------------------------------- */

int gd_history_find(const gd_history *h, const char *name) {
    for (int i = 0; h && name && i < h->n_columns; i++)
        if (strcmp(h->names[i], name) == 0) return i;
    return -1;
}

/* Reallocates the values for this many rows and columns. */
static gd_status reserve_values(gd_history *h, int64_t rows, int columns) {
    size_t count, bytes;
    if (!gd_mul_size((size_t)rows, (size_t)columns, &count) ||
        !gd_mul_size(count, sizeof(double), &bytes))
        return gd_fail(GD_E_OVERFLOW, "a history of %lld rows is too large", (long long)rows);
    double *values = gd_realloc(h->values, bytes ? bytes : 1);
    if (!values) return gd_no_memory(NULL, "for a history");
    h->values = values;
    h->rows_room = rows;
    return GD_OK;
}

int gd_history_column(gd_history *h, const char *name) {
    const int found = gd_history_find(h, name);
    if (found >= 0) return found;
    const int old = h->n_columns;
    char *copy = gd_malloc(strlen(name) + 1);
    if (!copy || !gd_grow(h->names, old, h->columns_room) ||
        reserve_values(h, h->rows_room, old + 1) != GD_OK) {
        gd_free(copy);
        gd_no_memory(NULL, "for a history");
        return -1;
    }
    h->names[h->n_columns++] = strcpy(copy, name);
    for (int64_t row = h->n_rows; row-- > 0;) { /* moves the last row first */
        memmove(h->values + row * (old + 1), h->values + row * old, (size_t)old * sizeof(double));
        h->values[row * (old + 1) + old] = (double)NAN;
    }
    return old;
}

gd_status gd_history_add_row(gd_history *h) {
    if (h->n_rows == h->rows_room)
        GD_TRY(reserve_values(h, h->rows_room ? 2 * h->rows_room : 16, h->n_columns));
    for (int i = 0; i < h->n_columns; i++) h->values[h->n_rows * h->n_columns + i] = (double)NAN;
    h->n_rows++;
    return GD_OK;
}

void gd_history_set(gd_history *h, int column, double value) {
    if (column >= 0) h->values[(h->n_rows - 1) * h->n_columns + column] = value;
}

/* --- reading it ------------------------------------------------------------------------------- */

gd_history *gd_history_finish(const char *site, gd_history *h, gd_status status) {
    if (status == GD_OK) status = gd_scope_reserve(1);
    if (status == GD_OK) {
        gd_scope_adopt(&h->object);
        return h;
    }
    gd_release(h);
    gd_report(site, status);
    return NULL;
}

const char *gd_history_stopped(const gd_history *h) {
    GD_LIVE(h);
    return h && *h->stopped ? h->stopped : NULL;
}

bool gd_history_interrupted(const gd_history *h) {
    GD_LIVE(h);
    return h && h->interrupted;
}

int64_t gd_history_rows(const gd_history *h) {
    GD_LIVE(h);
    return h ? h->n_rows : 0;
}
int64_t gd_history_columns(const gd_history *h) {
    GD_LIVE(h);
    return h ? h->n_columns : 0;
}

const char *gd_history_name(const gd_history *h, int64_t column) {
    GD_LIVE(h);
    return h && column >= 0 && column < h->n_columns ? h->names[column] : NULL;
}

double gd_history_value(const gd_history *h, const char *name, int64_t row) {
    GD_LIVE(h);
    const int column = gd_history_find(h, name);
    if (row < 0 && h) row += h->n_rows;
    return column >= 0 && row >= 0 && row < h->n_rows ? h->values[row * h->n_columns + column]
                                                      : (double)NAN;
}

/* --- state: "names", separated by newlines, and "values" (rows, columns) ---------------------- */

static char *join_names(const gd_history *h) {
    size_t bytes = 1;
    for (int i = 0; i < h->n_columns; i++) bytes += strlen(h->names[i]) + 1;
    char *text = gd_malloc(bytes), *at = text;
    if (!text) return NULL;
    for (int i = 0; i < h->n_columns; i++) {
        if (i) *at++ = '\n';
        at = stpcpy(at, h->names[i]);
    }
    *at = '\0';
    return text;
}

static gd_status save_history(gd_object *object, gd_state *state) {
    const gd_history *h = (const gd_history *)object;
    char *names = join_names(h);
    if (!names) return gd_no_memory(NULL, "for a history");
    gd_status status = gd_state_put_text(state, "names", names);
    gd_free(names);
    if (status != GD_OK || h->n_rows == 0 || h->n_columns == 0) return status;
    gd_scope *scope = gd_scope_open();
    const int64_t dims[2] = {h->n_rows, h->n_columns};
    gd_tensor *values = gd_tensor_new(gd_cpu(), GD_F64, 2, dims);
    status =
        values ? gd_copy_in(values, h->values, (size_t)(h->n_rows * h->n_columns) * sizeof(double))
               : GD_E_MEMORY;
    if (status == GD_OK) status = gd_state_put_tensor(state, "values", values);
    gd_scope_close(&scope);
    return status;
}

/* A loaded table. It replaces the history when the entire load has succeeded. */
typedef struct loading {
    gd_history *history; /* retained */
    char *text;          /* the names, separated by newlines */
    gd_tensor *values;   /* retained; NULL: no rows */
    char **names;
    int columns;
    double *room; /* for a copy of the values: adopt_loading must not fail */
} loading;

static void loading_free(loading *l) {
    gd_release(l->history);
    gd_release(l->values);
    free_names(l->names, l->names ? l->columns : 0);
    gd_free(l->text);
    gd_free(l->room);
    gd_free(l);
}

static void adopt_loading(void *user, bool loaded) {
    loading *l = user;
    gd_history *h = l->history;
    if (loaded && l->names) {
        free_names(h->names, h->n_columns);
        gd_free(h->values);
        h->names = l->names;
        h->n_columns = h->columns_room = l->columns;
        h->n_rows = h->rows_room = l->values ? l->values->dims[0] : 0;
        h->values = l->room;
        if (l->values)
            gd_copy_out(l->values, h->values, (size_t)(h->n_rows * h->n_columns) * sizeof(double));
        l->names = NULL;
        l->room = NULL;
    }
    loading_free(l);
}

static gd_status split_names(loading *l, const char *text) {
    l->columns = *text != '\0';
    for (const char *c = text; *c; c++) l->columns += *c == '\n';
    l->names = gd_calloc((size_t)l->columns + 1, sizeof *l->names);
    if (!l->names) return gd_no_memory(NULL, "for a history");
    for (int i = 0; i < l->columns; i++) {
        const size_t length = strcspn(text, "\n");
        if (!(l->names[i] = gd_malloc(length + 1))) return gd_no_memory(NULL, "for a history");
        memcpy(l->names[i], text, length);
        l->names[i][length] = '\0';
        text += length + (text[length] == '\n');
    }
    return GD_OK;
}

static gd_status prepare_loading(loading *l, gd_loading *in) {
    const char *names = gd_loading_peek_text(in, "names");
    gd_shape shape;
    gd_dtype dtype;
    GD_TRY(gd_loading_text(in, "names", &l->text)); /* reports it if it is missing */
    if (!names) return GD_OK;
    GD_TRY(split_names(l, names));
    if (!gd_loading_shape(in, "values", &shape, &dtype)) return GD_OK;
    if (shape.rank != 2 || shape.at[1] != l->columns)
        return gd_fail(GD_E_FORMAT, "the values of a history do not have %d columns", l->columns);
    size_t count, bytes;
    if (!gd_mul_size((size_t)shape.at[0], (size_t)l->columns, &count) ||
        !gd_mul_size(count, sizeof(double), &bytes))
        return gd_fail(GD_E_OVERFLOW, "a history of %lld rows is too large",
                       (long long)shape.at[0]);
    if (!(l->room = gd_malloc(bytes ? bytes : 1))) return gd_no_memory(NULL, "for a history");
    gd_scope *scope = gd_scope_open();
    l->values = gd_retain(gd_tensor_new(gd_cpu(), GD_F64, 2, shape.at));
    gd_scope_close(&scope);
    return l->values ? gd_loading_tensor(in, "values", l->values) : GD_E_MEMORY;
}

static gd_status load_history(gd_object *object, gd_loading *in) {
    gd_history *h = (gd_history *)object;
    loading *l = gd_calloc(1, sizeof *l);
    if (!l) return gd_no_memory(NULL, "for a history");
    l->history = gd_retain(h);
    const gd_status status = prepare_loading(l, in);
    if (status != GD_OK) {
        loading_free(l);
        return status;
    }
    return gd_loading_when_done(in, adopt_loading, l);
}
