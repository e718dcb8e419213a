/* net.c - a net of named layers that read and write named tensors (gd_nn_net). */
#include "nn/net.h"

#include <stdio.h>
#include <string.h>

#include "core/alloc.h"
#include "core/freed.h"
#include "core/grow.h"
#include "core/name_map.h"
#include "gradus/ops.h"
#include "dispatch/intern.h"

enum { MAX_NAMES = 64 };

/* --- lists of names, separated by spaces ------------------------------------------------------ */

/* Copies the next name of a list. False: the list has no more. */
static bool next_name(const char **list, char *name, size_t size) {
    const char *s = *list + strspn(*list, " ");
    const size_t n = strcspn(s, " ");
    if (n == 0) return false;
    snprintf(name, size, "%.*s", (int)(n < size ? n : size - 1), s);
    *list = s + n;
    return true;
}

static int count_names(const char *list) {
    char name[128];
    int n = 0;
    while (next_name(&list, name, sizeof name)) n++;
    return n;
}

static bool has_name(const char *list, const char *wanted) {
    char name[128];
    while (next_name(&list, name, sizeof name))
        if (strcmp(name, wanted) == 0) return true;
    return false;
}

static gd_status check_names(const char *list, const char *what) {
    if (!list || count_names(list) == 0)
        return gd_fail(GD_E_ARGUMENT, "%s: the list has no names", what);
    if (count_names(list) > MAX_NAMES)
        return gd_fail(GD_E_ARGUMENT, "%s: more than %d names", what, MAX_NAMES);
    for (const char *s = list; *(s += strspn(s, " "));) {
        const size_t n = strcspn(s, " ");
        if (n > 120) return gd_fail(GD_E_ARGUMENT, "%s: the name '%.40s...' is too long", what, s);
        s += n;
    }
    return GD_OK;
}

/* --- forward ---------------------------------------------------------------------------------- */

/* The tensors of a call by their names. */
typedef struct blobs {
    gd_name_map numbers; /* indices of the tensors; the names are interned */
    gd_tensor **tensors;
    int count, room;
} blobs;

static gd_tensor **find_blob(const blobs *b, const char *name) {
    const int i = gd_entry_number(&b->numbers, name);
    return i < 0 ? NULL : &b->tensors[i];
}

static gd_status set_blob(blobs *b, const char *name, gd_tensor *t) {
    gd_tensor **slot = find_blob(b, name);
    const char *kept = slot ? NULL : gd_intern(name);
    if (slot) *slot = t;
    if (slot) return GD_OK;
    if (!kept || !gd_grow(b->tensors, b->count, b->room) ||
        !gd_set_entry_number(&b->numbers, kept, b->count))
        return gd_no_memory(NULL, "for a net");
    b->tensors[b->count++] = t;
    return GD_OK;
}

static gd_status read_names(const blobs *b, const char *list, const char *layer, gd_tensor **in,
                            int *n) {
    char name[128];
    for (*n = 0; next_name(&list, name, sizeof name); (*n)++) {
        gd_tensor **t = strcmp(name, "-") == 0 ? &(gd_tensor *){NULL} : find_blob(b, name);
        if (!t)
            return gd_fail(GD_E_STATE, "%s reads '%s', which no earlier layer writes", layer, name);
        in[*n] = *t;
    }
    return GD_OK;
}

static gd_status run_row(gd_module *m, const gd_net_row *row, blobs *b) {
    const gd_entry *e = &m->entries[row->entry];
    gd_tensor *in[MAX_NAMES];
    int n;
    GD_TRY(read_names(b, row->reads, e->name, in, &n));
    const gd_tensors out = gd_module_run((gd_module *)e->object, (gd_tensors){in, n});
    if (out.at[0]->kind == GD_FAILED) return gd_failure();
    const char *gives = row->gives;
    char name[128];
    for (int i = 0; next_name(&gives, name, sizeof name); i++) {
        if (i >= out.count)
            return gd_fail(GD_E_STATE, "%s has %lld output%s, but %d names for them", e->name,
                           (long long)out.count, out.count == 1 ? "" : "s",
                           count_names(row->gives));
        if (strcmp(name, "-") != 0) GD_TRY(set_blob(b, name, out.at[i]));
    }
    return GD_OK;
}

static gd_status run_rows(gd_module *m, gd_tensors in, blobs *b, gd_tensors *out) {
    const char *list = m->inputs;
    char name[128];
    if (in.count != count_names(m->inputs))
        return gd_fail(GD_E_ARGUMENT, "it takes %d inputs (%s), not %lld", count_names(m->inputs),
                       m->inputs, (long long)in.count);
    for (int i = 0; next_name(&list, name, sizeof name); i++) GD_TRY(set_blob(b, name, in.at[i]));
    for (int i = 0; i < m->n_rows; i++) GD_TRY(run_row(m, &m->rows[i], b));
    gd_tensor *results[MAX_NAMES];
    int n;
    GD_TRY(read_names(b, m->outputs, "the net", results, &n));
    *out = gd_list_copy((gd_tensors){results, n});
    return GD_OK;
}

static gd_tensors run_net(gd_module *m, gd_tensors in) {
    blobs b = {.count = 0};
    gd_tensors out = {NULL, 0};
    const gd_status status = run_rows(m, in, &b, &out);
    gd_name_map_free(&b.numbers);
    gd_free(b.tensors);
    if (status == GD_OK) return out;
    gd_report(NULL, status);
    return gd_list_of_errors(1);
}

/* --- building --------------------------------------------------------------------------------- */

gd_module *gd_nn_net_at(const char *site, const char *inputs, const char *outputs) {
    gd_status status = check_names(inputs, "gd_nn_net: inputs");
    if (status == GD_OK) status = check_names(outputs, "gd_nn_net: outputs");
    const char *in = status == GD_OK ? gd_intern(inputs) : NULL,
               *out = in ? gd_intern(outputs) : NULL;
    gd_module *m = out ? gd_module_bare("net") : NULL;
    if (m) {
        m->inputs = in;
        m->outputs = out;
        m->contained = run_net;
        return m;
    }
    gd_report(site, status != GD_OK ? status : gd_no_memory(NULL, "for a net"));
    return NULL;
}

/* Whether a name is an input of the net or an output of an earlier layer. */
static bool is_defined(const gd_module *m, const char *name) {
    return strcmp(name, "-") == 0 || has_name(m->inputs, name) || gd_name_map_find(&m->given, name);
}

/* Notes what a row gives, for is_defined. */
static gd_status define_names(gd_module *m, const char *gives) {
    char name[128];
    while (next_name(&gives, name, sizeof name)) {
        const char *kept = gd_intern(name);
        if (!kept || !gd_name_map_add(&m->given, kept, m)) return gd_no_memory(NULL, "for a net");
    }
    return GD_OK;
}

static gd_status add_row(gd_module *m, const char *name, gd_module *layer, const char *reads,
                         const char *gives) {
    char what[200], read[128];
    if (!m || !m->inputs)
        return !m && gd_failed() ? gd_failure()
                                 : gd_fail(GD_E_ARGUMENT, "gd_net_add: the module is %s",
                                           m ? "not a gd_nn_net" : "NULL");
    if (!layer)
        return gd_failed()
                   ? gd_failure()
                   : gd_fail(GD_E_ARGUMENT, "gd_net_add: the layer '%s' is NULL", name ? name : "");
    snprintf(what, sizeof what, "gd_net_add: the inputs of '%.80s'", name ? name : "");
    GD_TRY(check_names(reads, what));
    snprintf(what, sizeof what, "gd_net_add: the outputs of '%.80s'", name ? name : "");
    GD_TRY(check_names(gives, what));
    for (const char *list = reads; next_name(&list, read, sizeof read);)
        if (!is_defined(m, read))
            return gd_fail(GD_E_ARGUMENT,
                           "gd_net_add: '%s' reads '%s', which is neither an input of the net (%s) "
                           "nor an output of an earlier layer",
                           name, read, m->inputs);
    const char *kept_reads = gd_intern(reads), *kept_gives = gd_intern(gives);
    if (!kept_reads || !kept_gives || !gd_grow(m->rows, m->n_rows, m->rows_room))
        return gd_no_memory(NULL, "for a net");
    GD_TRY(gd_module_put(m, GD_A_CHILD, name, layer, NULL));
    m->rows[m->n_rows++] = (gd_net_row){m->count - 1, kept_reads, kept_gives};
    const gd_status status = define_names(m, gives);
    if (status == GD_OK) return GD_OK;
    m->n_rows--;
    gd_module_remove_last(m);
    return status;
}

gd_status gd_net_add_at(const char *site, gd_module *m, const char *name, gd_module *layer,
                        const char *reads, const char *gives) {
    GD_LIVE_AT(site, m);
    GD_LIVE_AT(site, layer);
    return gd_report(site, add_row(m, name, layer, reads, gives));
}

void gd_net_rows_free(gd_module *m) {
    gd_free(m->rows);
    gd_name_map_free(&m->given);
}

gd_status gd_net_rows_copy(gd_module *copy, const gd_module *m) {
    copy->inputs = m->inputs;
    copy->outputs = m->outputs;
    if (m->n_rows == 0) return GD_OK;
    copy->rows = gd_malloc((size_t)m->n_rows * sizeof *m->rows);
    if (!copy->rows) return gd_no_memory(NULL, "to copy a net");
    memcpy(copy->rows, m->rows, (size_t)m->n_rows * sizeof *m->rows);
    copy->n_rows = copy->rows_room = m->n_rows;
    for (int i = 0; i < m->n_rows; i++) GD_TRY(define_names(copy, m->rows[i].gives));
    return GD_OK;
}
