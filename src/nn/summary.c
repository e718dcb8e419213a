/* summary.c - runs modules on shapes only: to build them, and to print a table of their layers. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/freed.h"
#include "core/grow.h"
#include "core/map.h"
#include "graph/build/shapes_only.h"
#include "nn/module.h"
#include "nn/watch.h"

/* --- runs on shapes only ---------------------------------------------------------------------- */

/* Calls a module with symbols that have the shapes of the inputs. Integers stay values, as a
 * network may read its structure from them. */
static gd_status run_on_shapes(gd_module *m, gd_tensors in, double *macs) {
    gd_shapes_only only;
    gd_status status = GD_OK;
    if (in.count < 0 || (in.count > 0 && !in.at))
        return gd_fail(GD_E_ARGUMENT, "the list of inputs is NULL");
    gd_shapes_only_begin(&only);
    gd_tensor **symbols = gd_list_new(in.count);
    if (!symbols) status = gd_no_memory(NULL, "for a list");
    for (int64_t i = 0; i < in.count && status == GD_OK; i++) {
        const gd_tensor *x = in.at[i];
        if (x && x->kind == GD_FAILED) status = gd_failure();
        else if (x && x->kind == GD_VALUE && !gd_dtype_is_float((gd_dtype)x->dtype))
            symbols[i] = in.at[i];
        else if (x)
            symbols[i] = gd_symbol(gd_shape_of(x->rank, x->dims), (gd_dtype)x->dtype, x->device);
    }
    if (status == GD_OK &&
        gd_module_run(m, (gd_tensors){symbols, in.count}).at[0]->kind == GD_FAILED)
        status = gd_failure();
    *macs = gd_shapes_only_macs();
    gd_shapes_only_end(&only);
    return status;
}

static gd_status check_module(const gd_module *m, const char *what) {
    if (m) return GD_OK;
    return gd_failed() ? gd_failure() : gd_fail(GD_E_ARGUMENT, "%s: the module is NULL", what);
}

gd_status gd_module_build_at(const char *site, gd_module *m, gd_tensors in) {
    GD_LIVE_AT(site, m);
    GD_CALLED_FROM(site);
    double macs;
    gd_status status = check_module(m, "gd_module_build");
    if (status != GD_OK) return gd_report(site, status);
    gd_attempt attempt;
    gd_attempt_begin(&attempt);
    status = run_on_shapes(m, in, &macs);
    return gd_report(site, gd_attempt_end(&attempt, status));
}

double gd_module_macs_at(const char *site, gd_module *m, gd_tensors in) {
    GD_LIVE_AT(site, m);
    GD_CALLED_FROM(site);
    double macs = NAN;
    gd_status status = check_module(m, "gd_module_macs");
    gd_attempt attempt;
    gd_attempt_begin(&attempt);
    if (status == GD_OK) status = run_on_shapes(m, in, &macs);
    return gd_report(site, gd_attempt_end(&attempt, status)) == GD_OK ? macs : NAN;
}

/* --- rows of the table ------------------------------------------------------------------------ */

enum { CELL = 160 };
typedef struct row {
    char name[CELL], shape[CELL];
    int64_t parameters; /* -1: counted in an earlier row */
    double macs;
    bool inner; /* it called other modules */
} row;

typedef struct table {
    gd_module_watch watch;
    row *rows;
    int count, room, depth;
    gd_map seen;
    gd_status status;
} table;

static int64_t own_parameters(const gd_module *m) {
    int64_t n = 0;
    for (int i = 0; i < m->count; i++) {
        const gd_tensor *t = (const gd_tensor *)m->entries[i].object;
        if (m->entries[i].kind == GD_A_PARAMETER && t) n += gd_numel(t->rank, t->dims);
    }
    return n;
}

/* "    conv1 (conv2d)", indented below the calling module. */
static void name_row(const table *t, char *text) {
    char name[100];
    snprintf(text, CELL, "%*s%s", 2 * (t->depth > 8 ? 8 : t->depth), "",
             gd_module_call_name(name, sizeof name));
}

static int begin_row(gd_module_watch *watch, gd_module *m) {
    table *t = (table *)watch;
    if (!gd_grow(t->rows, t->count, t->room)) {
        t->status = gd_no_memory(NULL, "for a summary");
        return -1;
    }
    row *r = &t->rows[t->count];
    *r = (row){.macs = gd_shapes_only_macs()};
    name_row(t, r->name);
    const bool again = gd_map_find(&t->seen, m) >= 0;
    r->parameters = again ? -1 : 0; /* counted in end_row, since the module may not be built yet */
    if (!again) gd_map_put(&t->seen, m, t->count);
    t->depth++;
    return t->count++;
}

static void end_row(gd_module_watch *watch, int at, gd_tensors out) {
    table *t = (table *)watch;
    if (at < 0) return;
    t->depth--;
    row *r = &t->rows[at];
    r->inner = at + 1 < t->count;
    r->macs = gd_shapes_only_macs() - r->macs;
    if (r->parameters == 0) r->parameters = own_parameters(gd_this_thread.module_frame->module);
    char shape[CELL / 2];
    for (int64_t i = 0; i < out.count && strlen(r->shape) + sizeof shape < CELL; i++) {
        if (!out.at[i]) continue;
        gd_shape_text(out.at[i]->rank, out.at[i]->dims, shape, sizeof shape);
        if (*r->shape) strcat(r->shape, ", ");
        strcat(r->shape, shape);
    }
}

/* --- text ------------------------------------------------------------------------------------- */

/* 11689512 as "11,689,512" */
static const char *format_grouped(double number, char *text, size_t size) {
    char digits[40];
    if (isnan(number)) {
        snprintf(text, size, "?");
        return text;
    }
    snprintf(digits, sizeof digits, "%lld", (long long)number);
    const size_t n = strlen(digits);
    size_t to = 0;
    for (size_t i = 0; i < n && to + 2 < size; i++) {
        if (i > 0 && (n - i) % 3 == 0) text[to++] = ',';
        text[to++] = digits[i];
    }
    text[to] = 0;
    return text;
}

static void print_line(FILE *out, int width) {
    for (int i = 0; i < width; i++) fputs("-", out);
    fputc('\n', out);
}

static int column_width(const table *t, bool shape, int least) {
    for (int i = 0; i < t->count; i++) {
        const int n = (int)strlen(shape ? t->rows[i].shape : t->rows[i].name);
        if (n > least) least = n;
    }
    return least;
}

typedef struct totals {
    int64_t parameters, frozen, bytes, buffer_bytes;
} totals;

static gd_status add_tensor(gd_tree_walk *w, gd_module *holder, gd_entry *e) {
    totals *s = w->user;
    const gd_tensor *t = (const gd_tensor *)e->object;
    const int64_t n = gd_numel(t->rank, t->dims), bytes = n * (int64_t)gd_dtype_bytes(t->dtype);
    (void)holder;
    if (e->kind == GD_A_BUFFER) s->buffer_bytes += bytes;
    if (e->kind != GD_A_PARAMETER) return GD_OK;
    s->parameters += n;
    s->bytes += bytes;
    if (!t->requires_grad) s->frozen += n;
    return GD_OK;
}

static gd_status print_table(FILE *out, gd_module *m, const table *t, double macs) {
    char a[48], b[48];
    totals sum = {0, 0, 0, 0};
    const int name = column_width(t, false, 12), shape = column_width(t, true, 12),
              width = name + shape + 2 + 15 + 17;
    fprintf(out, "%-*s  %-*s%15s%17s\n", name, "layer", shape, "output", "parameters",
            "multiply-adds");
    print_line(out, width);
    for (int i = 0; i < t->count; i++) {
        const row *r = &t->rows[i];
        const bool counts = r->macs > 0 || isnan(r->macs);
        fprintf(out, "%-*s  %-*s%15s%17s\n", name, r->name, shape, r->shape,
                r->parameters < 0   ? "shared"
                : r->parameters > 0 ? format_grouped((double)r->parameters, a, sizeof a)
                                    : "",
                counts && !r->inner ? format_grouped(r->macs, b, sizeof b) : "");
    }
    print_line(out, width);
    GD_TRY(gd_module_walk(m, &(gd_tree_walk){.tensor = add_tensor, .user = &sum}));
    fprintf(out, "%s parameters", format_grouped((double)sum.parameters, a, sizeof a));
    if (sum.frozen) fprintf(out, " (%s frozen)", format_grouped((double)sum.frozen, a, sizeof a));
    fprintf(out, ", %s bytes", format_grouped((double)(sum.bytes + sum.buffer_bytes), a, sizeof a));
    fprintf(out, "; %s multiply-adds\n", format_grouped(macs, a, sizeof a));
    return GD_OK;
}

static gd_status summarize(gd_module *m, gd_tensors in, char **text) {
    table t = {.watch = {begin_row, end_row}, .status = GD_OK};
    gd_module_watch *before = gd_this_thread.module_watch;
    double macs = 0;
    gd_this_thread.module_watch = &t.watch;
    gd_status status = run_on_shapes(m, in, &macs);
    gd_this_thread.module_watch = before;
    if (status == GD_OK) status = t.status;
    size_t size = 0;
    FILE *out = status == GD_OK ? open_memstream(text, &size) : NULL;
    if (out) {
        status = print_table(out, m, &t, macs);
        if (fclose(out) != 0 && status == GD_OK) status = GD_E_MEMORY;
    }
    if ((!out && status == GD_OK) || status == GD_E_MEMORY)
        status = gd_no_memory(NULL, "for a summary");
    gd_map_free(&t.seen);
    gd_free(t.rows);
    if (status == GD_OK) return GD_OK;
    free(*text);
    *text = NULL;
    return status;
}

char *gd_module_summary_at(const char *site, gd_module *m, gd_tensors in) {
    GD_LIVE_AT(site, m);
    GD_CALLED_FROM(site);
    char *text = NULL;
    gd_status status = check_module(m, "gd_module_summary");
    if (status == GD_OK) {
        gd_attempt attempt;
        gd_attempt_begin(&attempt);
        status = gd_attempt_end(&attempt, summarize(m, in, &text));
    }
    gd_report(site, status);
    return text;
}

gd_status gd_module_print_at(const char *site, gd_module *m, gd_tensors in) {
    GD_LIVE_AT(site, m);
    char *text = gd_module_summary_at(site, m, in);
    if (!text) return gd_error_status();
    fputs(text, stdout);
    free(text);
    return GD_OK;
}
