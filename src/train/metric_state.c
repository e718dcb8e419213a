/* metric_state.c - saves and loads the sums of a metric (core/state.h): each as "sum.NAME", and all
 * names, separated by spaces, as "sums". */
#include <string.h>

#include "core/alloc.h"
#include "gradus/ops.h"
#include "train/metric.h"

/* "sum.NAME". Names have no spaces. */
static gd_status full_name(char text[GD_METRIC_NAME + 8], const char *name, size_t length) {
    if (length == 0 || length >= GD_METRIC_NAME)
        return gd_fail(GD_E_FORMAT, "the list of a metric's sums has the name '%.*s'",
                       (int)(length < 40 ? length : 40), name);
    memcpy(text, "sum.", 4);
    memcpy(text + 4, name, length);
    text[4 + length] = 0;
    return GD_OK;
}

static gd_status save_sums(gd_object *object, gd_state *state) {
    gd_metric *m = (gd_metric *)object;
    char name[GD_METRIC_NAME + 8];
    char *names = gd_calloc((size_t)m->n_totals + 1, GD_METRIC_NAME + 1);
    if (!names) return gd_no_memory(NULL, "for the sums of a metric");
    gd_status status = GD_OK;
    for (int i = 0; i < m->n_totals && status == GD_OK; i++) {
        if (i) strcat(names, " ");
        strcat(names, m->totals[i].name);
        status = full_name(name, m->totals[i].name, strlen(m->totals[i].name));
        if (status == GD_OK) status = gd_state_put_tensor(state, name, m->totals[i].sum);
    }
    if (status == GD_OK) status = gd_state_put_text(state, "sums", names);
    gd_free(names);
    return status;
}

/* Loaded sums. They replace the metric's when the entire load has succeeded. */
typedef struct loaded_sums {
    gd_metric *metric;
    char *names; /* "sums", which the load writes */
    gd_metric_total *totals;
    int count, room;
    bool same; /* all of them are the metric's own tensors */
} loaded_sums;

static void adopt_loaded(void *user, bool loaded) {
    loaded_sums *a = user;
    gd_metric *m = a->metric;
    if (loaded && !a->same) {
        gd_metric_total *before = m->totals;
        const int n = m->n_totals;
        m->totals = a->totals;
        m->n_totals = a->count;
        m->totals_room = a->room;
        m->replaced++;
        a->totals = before;
        a->count = n;
    }
    for (int i = 0; i < a->count; i++) gd_release(a->totals[i].sum);
    gd_free(a->totals);
    gd_free(a->names);
    gd_free(a);
}

/* The metric's own tensor if it has the right shape, else a new one. */
static gd_status sum_for(const gd_metric *m, const char *name, gd_shape shape, gd_tensor **sum) {
    gd_device *device = NULL;
    for (int i = 0; i < m->n_totals; i++) {
        gd_tensor *own = m->totals[i].sum;
        if (strcmp(m->totals[i].name, name) != 0) continue;
        device = own->device;
        if (own->rank == shape.rank &&
            memcmp(own->dims, shape.at, (size_t)own->rank * sizeof *own->dims) == 0) {
            *sum = own;
            return GD_OK;
        }
    }
    *sum = gd_metric_zeros(device, shape.rank, shape.at);
    return (*sum)->kind == GD_FAILED ? gd_failure() : GD_OK;
}

static gd_status load_sum(gd_loading *in, loaded_sums *a, const char *name, size_t length) {
    char full[GD_METRIC_NAME + 8];
    GD_TRY(full_name(full, name, length));
    gd_shape shape;
    gd_dtype dtype;
    gd_tensor *sum;
    if (!gd_loading_shape(in, full, &shape, &dtype)) shape = gd_dims(); /* reported as missing */
    GD_TRY(sum_for(a->metric, full + 4, shape, &sum));
    gd_metric_total *t = &a->totals[a->count++];
    *t = (gd_metric_total){.sum = gd_retain(sum)};
    strcpy(t->name, full + 4);
    return gd_loading_tensor(in, full, sum);
}

static gd_status load_sums(gd_loading *in, loaded_sums *a) {
    const char *names = gd_loading_peek_text(in, "sums");
    a->room = 1;
    for (const char *c = names; c && *c; c++) a->room += *c == ' ';
    a->totals = gd_calloc((size_t)a->room, sizeof *a->totals);
    if (!a->totals) return gd_no_memory(NULL, "for the sums of a metric");
    for (const char *at = names; at && *at; at += *at == ' ') {
        const size_t length = strcspn(at, " ");
        GD_TRY(load_sum(in, a, at, length));
        at += length;
    }
    const gd_metric *m = a->metric;
    a->same = a->count == m->n_totals;
    for (int i = 0; i < a->count && a->same; i++) a->same = a->totals[i].sum == m->totals[i].sum;
    return gd_loading_text(in, "sums", &a->names);
}

static gd_status load_metric(gd_object *object, gd_loading *in) {
    loaded_sums *a = gd_calloc(1, sizeof *a);
    if (!a) return gd_no_memory(NULL, "for the sums of a metric");
    a->metric = (gd_metric *)object;
    GD_TRY(gd_loading_when_done(in, adopt_loaded, a));
    GD_SCOPE;
    return load_sums(in, a);
}

const gd_state_rules gd_metric_state_rules = {save_sums, load_metric};
