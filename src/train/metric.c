/* metric.c - metrics: creation, updates, values, resets.
 *
 * An update computes the new value of every sum first and assigns all of them at the end, so a
 * failure leaves the sums unchanged.
 */
#include "train/metric.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/alloc.h"
#include "core/freed.h"
#include "core/grow.h"
#include "core/number.h"
#include "gradus/autograd.h"
#include "gradus/ops.h"
#include "graph/build/graph.h"
#include "dispatch/call.h"

static const gd_metric_rules *rules_of(const gd_metric *m) { return m->factory->rules; }

static void destroy_metric(gd_object *object) {
    gd_metric *m = (gd_metric *)object;
    for (int i = 0; i < m->n_totals; i++) gd_release(m->totals[i].sum);
    gd_release(m->reset_mark);
    gd_free(m->totals);
    gd_free(m->options);
    gd_object_free(object);
    gd_object_count(-1);
}
static const gd_class metric_class = {
    .name = "metric", .destroy = destroy_metric, .state = &gd_metric_state_rules};
GD_KNOWN_CLASS(metric_class)

/* --- making one ------------------------------------------------------------------------------- */

/* Writes the label; in "top_{k}" the option k is inserted. */
static void write_label(gd_metric *m, const char *form) {
    size_t n = 0;
    for (const char *c = form; *c && n + 1 < sizeof m->label; c++) {
        const size_t word = *c == '{' ? strcspn(c + 1, "}") : 0;
        char name[40];
        const gd_op_attr *attr = NULL;
        if (word && word < sizeof name && c[1 + word]) {
            snprintf(name, sizeof name, "%.*s", (int)word, c + 1);
            if (gd_factory_option(m->factory, m->options, name, &attr)) {
                const double value = gd_attr_number(attr, m->options).value;
                n += (size_t)gd_snprintf(m->label + n, sizeof m->label - n, "%g", value);
                if (n >= sizeof m->label) n = sizeof m->label - 1;
                c += 1 + word;
                continue;
            }
        }
        m->label[n++] = *c;
    }
    m->label[n] = 0;
}

static void set_label(gd_metric *m) {
    const gd_op_attr *attr = NULL;
    const char *const *form = gd_factory_option(m->factory, m->options, "label", &attr);
    const bool given = form && attr->type == GD_ATTR_STRING && *form && **form;
    write_label(m, given ? *form : m->factory->record.name);
}

/* Owns `options`, also after a failure. */
static gd_status make_metric(const gd_factory *factory, void *options, gd_metric **made) {
    const gd_metric_rules *rules = factory->rules;
    gd_status status = gd_check_ranges(factory, options, "gd_metric_");
    if (status == GD_OK && rules->check) {
        status = rules->check(options);
        if (status != GD_OK) gd_error_prefix("gd_metric_%s: ", factory->record.name);
    }
    if (status == GD_OK) status = gd_scope_reserve(1);
    gd_metric *m = status == GD_OK ? gd_calloc(1, sizeof *m) : NULL;
    if (!m) {
        gd_free(options);
        return status != GD_OK ? status : gd_no_memory(NULL, "for a metric");
    }
    gd_object_init(&m->object, &metric_class);
    gd_object_count(1);
    m->factory = factory;
    m->options = options;
    set_label(m);
    gd_scope_adopt(&m->object);
    *made = m;
    return GD_OK;
}

gd_metric *gd_metric_make(const char *site, const gd_factory *factory, const void *given) {
    GD_CALLED_FROM(site);
    void *options;
    gd_metric *m = NULL;
    gd_status status = gd_factory_take_options(factory, given, &options);
    if (status == GD_OK) status = make_metric(factory, options, &m);
    else gd_error_prefix("gd_metric_%s: ", factory->record.name);
    gd_report(site, status);
    return m;
}

gd_metric *gd_metric_new_at(const char *site, const char *name, const char *text) {
    GD_CALLED_FROM(site);
    const gd_factory *factory;
    void *options;
    gd_metric *m = NULL;
    gd_status status = gd_factory_read("metric", name, text, &factory, &options);
    if (status == GD_OK) status = make_metric(factory, options, &m);
    gd_report(site, status);
    return m;
}

gd_status gd_metric_define_at(const char *site, const char *record, gd_metric_rules rules) {
    GD_CALLED_FROM(site);
    gd_status status = rules.update && rules.value
                           ? gd_factory_define("metric", record, &rules, sizeof rules)
                           : gd_fail(GD_E_ARGUMENT, "a metric needs update and value");
    if (status != GD_OK) gd_error_prefix("gd_metric_define: ");
    return gd_report(site, status);
}

const char *gd_metric_name(const gd_metric *m) {
    GD_LIVE(m);
    return m ? m->label : "";
}
const void *gd_metric_options(const gd_metric *m) {
    GD_LIVE(m);
    return m ? m->options : NULL;
}

const char *gd_metric_unique_name(gd_metric *const *list, int64_t index,
                                  char text[GD_METRIC_UNIQUE]) {
    int same = 1;
    for (int64_t i = 0; i < index; i++)
        same += strcmp(gd_metric_name(list[i]), gd_metric_name(list[index])) == 0;
    if (same == 1) snprintf(text, GD_METRIC_UNIQUE, "%s", gd_metric_name(list[index]));
    else snprintf(text, GD_METRIC_UNIQUE, "%s_%d", gd_metric_name(list[index]), same);
    return text;
}

/* --- sums ------------------------------------------------------------------------------------- */

gd_tensor *gd_metric_zeros(gd_device *device, int rank, const int64_t *dims) {
    GD_EAGER;
    gd_device *before = gd_this_thread.device;
    if (device) gd_this_thread.device = device;
    gd_tensor *t = gd_zeros(gd_shape_of(rank, dims), .dtype = GD_F64);
    gd_this_thread.device = before;
    return t;
}

static gd_metric_total *find_total(const gd_metric *m, const char *name) {
    for (int i = 0; i < m->n_totals; i++)
        if (strcmp(m->totals[i].name, name) == 0) return &m->totals[i];
    return NULL;
}

/* Whether the traced function has reset the metric before it had sums. */
static bool was_reset_here(const gd_metric *m) {
    gd_graph *graph = gd_graph_traced();
    return graph && m->reset_mark && gd_graph_find_write(graph, m->reset_mark);
}

/* Adds a sum for values of this shape, 0 at first. */
static gd_status add_total(gd_metric *m, const char *name, const gd_tensor *value,
                           gd_metric_total **total) {
    if (strlen(name) >= GD_METRIC_NAME)
        return gd_fail(GD_E_ARGUMENT, "the name of a sum, '%.20s...', is longer than %d characters",
                       name, GD_METRIC_NAME - 1);
    for (int i = 0; i < value->rank; i++)
        if (value->dims[i] < 0)
            return gd_fail(GD_E_SHAPE, "the shape of the sum '%s' is unknown in this graph", name);
    gd_tensor *zeros = gd_metric_zeros(value->device, value->rank, value->dims);
    if (zeros->kind == GD_FAILED) return gd_failure();
    if (!gd_grow(m->totals, m->n_totals, m->totals_room))
        return gd_no_memory(NULL, "for the sums of a metric");
    *total = &m->totals[m->n_totals++];
    **total = (gd_metric_total){.sum = gd_retain(zeros)};
    strcpy((*total)->name, name);
    return GD_OK;
}

static gd_status check_shape(const gd_metric_total *t, const gd_tensor *value) {
    char before[128], now[128];
    if (value->rank == t->sum->rank &&
        memcmp(value->dims, t->sum->dims, (size_t)value->rank * sizeof *value->dims) == 0)
        return GD_OK;
    return gd_fail(GD_E_SHAPE, "the sum '%s' has shape %s, and the value of this batch %s", t->name,
                   gd_shape_text(t->sum->rank, t->sum->dims, before, sizeof before),
                   gd_shape_text(value->rank, value->dims, now, sizeof now));
}

static gd_status add_value(gd_metric *m, const char *name, gd_tensor *value) {
    if (!m->updating)
        return gd_fail(GD_E_STATE, "gd_metric_add is called outside the metric's update");
    if (!name || !value) return gd_fail(GD_E_ARGUMENT, "gd_metric_add: an argument is NULL");
    if (value->kind == GD_FAILED) return gd_failure();
    gd_metric_total *t = find_total(m, name);
    if (t) {
        GD_TRY(check_shape(t, value));
    } else {
        const bool first = was_reset_here(m); /* then each call of the function starts at 0 */
        GD_TRY(add_total(m, name, value, &t));
        if (first) t->next = gd_metric_zeros(value->device, value->rank, value->dims);
    }
    gd_tensor *more = value->dtype == GD_F64 ? value : gd_cast(value, GD_F64);
    t->next = gd_add(t->next ? t->next : t->sum, more);
    return t->next->kind == GD_FAILED ? gd_failure() : GD_OK;
}

void gd_metric_add(gd_metric *m, const char *name, gd_tensor *value) {
    GD_LIVE(m);
    if (!m || m->added != GD_OK) return;
    const gd_status status = add_value(m, name, value);
    if (m->updating) m->added = status;
    else gd_report(NULL, status);
}

gd_tensor *gd_metric_sum(gd_metric *m, const char *name) {
    GD_LIVE(m);
    const gd_metric_total *t = m && name ? find_total(m, name) : NULL;
    if (t) return t->next ? t->next : t->sum;
    if (m) { /* in a trace: reads 0, and the function is traced again once there are sums */
        const gd_status status = gd_trace_record_value(&m->object, &m->n_totals);
        if (status != GD_OK) return gd_tensor_fail(status);
    }
    return gd_scalar_of(0, GD_F64);
}

/* --- updates ---------------------------------------------------------------------------------- */

static gd_status check_update(const gd_metric *m, const gd_tensor *output, const gd_tensor *target,
                              const gd_tensor *weight) {
    char weights[128], outputs[128];
    if (!m || !output || !target)
        return gd_fail(GD_E_ARGUMENT, "gd_metric_update: the %s is NULL",
                       !m        ? "metric"
                       : !output ? "output"
                                 : "target");
    if (output->kind == GD_FAILED || target->kind == GD_FAILED ||
        (weight && weight->kind == GD_FAILED))
        return gd_failure();
    if (weight &&
        (!gd_is_float(weight->dtype) || weight->rank != 1 || output->rank == 0 ||
         (weight->dims[0] != output->dims[0] && weight->dims[0] >= 0 && output->dims[0] >= 0)))
        return gd_fail(GD_E_SHAPE,
                       "weight is %s; it must be floats of rank 1, one for each sample of "
                       "the output %s",
                       gd_describe(weight, weights, sizeof weights),
                       gd_describe(output, outputs, sizeof outputs));
    return GD_OK;
}

/* Assigns all sums; if memory runs out, none. */
static gd_status assign_all(gd_metric *m) {
    gd_transaction updates;
    gd_transaction_begin(&updates);
    gd_status status = GD_OK;
    for (int i = 0; i < m->n_totals && status == GD_OK; i++)
        if (m->totals[i].next && gd_assign(m->totals[i].sum, m->totals[i].next)->kind == GD_FAILED)
            status = gd_failure();
    return gd_transaction_end(&updates, status);
}

/* Sums that were loaded before the first batch may be on another device than the net. */
static gd_status move_sums(gd_metric *m, gd_device *device) {
    GD_EAGER;
    for (int i = 0; i < m->n_totals; i++) {
        gd_tensor *sum = m->totals[i].sum;
        if (sum->device == device) continue;
        gd_tensor *moved = gd_to_device(sum, device);
        if (moved->kind == GD_FAILED) return gd_failure();
        m->totals[i].sum = gd_retain(moved);
        gd_release(sum);
        m->replaced++;
    }
    return GD_OK;
}

static gd_status run_update(gd_metric *m, gd_tensor *output, gd_tensor *target, gd_tensor *weight) {
    GD_TRY(move_sums(m, output->device));
    GD_TRY(gd_trace_record_value(&m->object, &m->replaced));
    gd_device *device = gd_this_thread.device;
    gd_this_thread.device = output->device;
    m->updating = true;
    m->added = GD_OK;
    rules_of(m)->update(m, output, target, weight);
    m->updating = false;
    gd_this_thread.device = device;
    const gd_status added = m->added;
    m->added = GD_OK;
    GD_TRY(added);
    if (gd_failed()) return gd_failure();
    return assign_all(m);
}

static gd_status update_metric(gd_metric *m, gd_tensor *output, gd_tensor *target,
                               gd_tensor *weight) {
    if (m && m->updating)
        return gd_fail(GD_E_STATE, "gd_metric_update is called inside the metric's update");
    GD_TRY(check_update(m, output, target, weight));
    gd_attempt attempt;
    gd_attempt_begin(&attempt);
    gd_scope *scope = gd_scope_open();
    int grad = gd_no_grad_begin();
    gd_status status = run_update(m, output, target, weight);
    gd_grad_mode_end(&grad);
    for (int i = 0; i < m->n_totals; i++) m->totals[i].next = NULL;
    gd_scope_close(&scope);
    status = gd_attempt_end(&attempt, status);
    if (status != GD_OK) gd_error_prefix("metric %s: ", m->label);
    return status;
}

gd_status gd_metric_update_at(const char *site, gd_metric *m, gd_tensor *output, gd_tensor *target,
                              const gd_metric_update_options *options) {
    GD_LIVE_AT(site, m);
    options = options ? options : GD_METRIC_UPDATE_OPTIONS_();
    if (gd_failed()) return gd_error_status();
    GD_CALLED_FROM(site);
    return gd_report(site, update_metric(m, output, target, options->weight));
}

/* --- values ----------------------------------------------------------------------------------- */

static gd_status compute_value(gd_metric *m, gd_tensor **value) {
    if (!m) return gd_fail(GD_E_ARGUMENT, "gd_metric_value: the metric is NULL");
    gd_attempt attempt;
    gd_attempt_begin(&attempt);
    gd_scope *scope = gd_scope_open();
    int grad = gd_no_grad_begin();
    gd_status status = gd_trace_record_value(&m->object, &m->replaced);
    *value = status == GD_OK ? rules_of(m)->value(m) : NULL;
    if (*value && (*value)->kind != GD_FAILED && (*value)->dtype != GD_F64)
        *value = gd_cast(*value, GD_F64);
    if (status == GD_OK && (!*value || (*value)->kind == GD_FAILED))
        status = gd_failed() ? gd_failure() : gd_fail(GD_E_ARGUMENT, "it returned no value");
    if (status == GD_OK) gd_keep(*value);
    gd_grad_mode_end(&grad);
    gd_scope_close(&scope);
    status = gd_attempt_end(&attempt, status);
    if (status != GD_OK) gd_error_prefix("metric %s: ", m->label);
    return status;
}

gd_tensor *gd_metric_value_at(const char *site, gd_metric *m) {
    GD_LIVE_AT(site, m);
    GD_CALLED_FROM(site);
    gd_tensor *value;
    const gd_status status = compute_value(m, &value);
    return status == GD_OK ? value : gd_tensor_fail(status);
}

static gd_status read_number(gd_metric *m, double *number) {
    gd_tensor *value;
    char shape[128];
    GD_SCOPE;
    GD_TRY(compute_value(m, &value));
    if (value->kind == GD_VALUE && value->rank == 0)
        return gd_copy_out(value, number, sizeof *number);
    if (value->kind == GD_VALUE)
        return gd_fail(GD_E_SHAPE,
                       "metric %s: the value is %s, not a number; read it with gd_metric_value",
                       m->label, gd_describe(value, shape, sizeof shape));
    return gd_fail(GD_E_STATE,
                   "metric %s: a traced function has no numbers; gd_metric_value returns a "
                   "symbol",
                   m->label);
}

double gd_metric_number_at(const char *site, gd_metric *m) {
    GD_LIVE_AT(site, m);
    GD_CALLED_FROM(site);
    double number = NAN;
    return gd_report(site, read_number(m, &number)) == GD_OK ? number : NAN;
}

/* --- resets ----------------------------------------------------------------------------------- */

/* Records in the trace that the function resets a metric that has no sums yet. */
static gd_status mark_reset(gd_metric *m) {
    if (!m->reset_mark) {
        gd_tensor *mark = gd_metric_zeros(NULL, 0, NULL);
        if (mark->kind == GD_FAILED) return gd_failure();
        m->reset_mark = gd_retain(mark);
    }
    GD_TRY(gd_trace_record_value(&m->object, &m->replaced));
    return gd_assign(m->reset_mark, gd_scalar_of(0, GD_F64))->kind == GD_FAILED ? gd_failure()
                                                                                : GD_OK;
}

static gd_status reset_metric(gd_metric *m) {
    if (!m) return gd_fail(GD_E_ARGUMENT, "gd_metric_reset: the metric is NULL");
    if (m->updating)
        return gd_fail(GD_E_STATE, "gd_metric_reset is called inside the metric's update");
    gd_attempt attempt;
    gd_attempt_begin(&attempt);
    gd_scope *scope = gd_scope_open();
    int grad = gd_no_grad_begin();
    gd_status status = m->n_totals == 0 && gd_graph_traced() ? mark_reset(m) : GD_OK;
    for (int i = 0; i < m->n_totals; i++) {
        const gd_tensor *sum = m->totals[i].sum;
        m->totals[i].next = gd_metric_zeros(sum->device, sum->rank, sum->dims);
        if (m->totals[i].next->kind == GD_FAILED) status = gd_failure();
    }
    if (status == GD_OK) status = gd_trace_record_value(&m->object, &m->replaced);
    if (status == GD_OK) status = assign_all(m);
    gd_grad_mode_end(&grad);
    for (int i = 0; i < m->n_totals; i++) m->totals[i].next = NULL;
    gd_scope_close(&scope);
    status = gd_attempt_end(&attempt, status);
    if (status != GD_OK) gd_error_prefix("metric %s: ", m->label);
    return status;
}

gd_status gd_metric_reset_at(const char *site, gd_metric *m) {
    GD_LIVE_AT(site, m);
    if (gd_failed()) return gd_error_status();
    GD_CALLED_FROM(site);
    return gd_report(site, reset_metric(m));
}
