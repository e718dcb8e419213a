/* layer.c - layers from records: constructors, inferred sizes, parameters, options by name. */
#include "nn/layer.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/alloc.h"
#include "core/copy.h"
#include "core/freed.h"
#include "core/integer.h"
#include "gradus/graph.h"
#include "gradus/ops.h"
#include "graph/build/graph.h"
#include "dispatch/call.h"
#include "dispatch/intern.h"

/* --- construction ----------------------------------------------------------------------------- */

gd_status gd_layer_set_op(gd_module *m, const char *name) {
    m->op = gd_op_find(name);
    if (!m->op) return gd_fail(GD_E_STATE, "there is no op '%s'", name);
    gd_free(m->op_options);
    m->op_options = NULL;
    if (m->op->attrs_size == 0) return GD_OK;
    m->op_options = gd_calloc(1, m->op->attrs_size);
    if (!m->op_options) return gd_no_memory(NULL, "for a layer");
    memcpy(m->op_options, m->op->defaults, m->op->attrs_size);
    for (int i = 0; i < m->op->n_attrs; i++) {
        const gd_op_attr *to = &m->op->attrs[i], *from = NULL;
        const void *value = gd_factory_option(m->factory, m->options, to->name, &from);
        if (value && from->type == to->type && from->count == to->count)
            memcpy((char *)m->op_options + to->offset, value, gd_attr_size(to));
    }
    return GD_OK;
}

void gd_layer_reset_op_option(gd_module *m, const char *name) {
    for (int i = 0; i < m->op->n_attrs; i++) {
        const gd_op_attr *a = &m->op->attrs[i];
        if (strcmp(a->name, name) == 0)
            memcpy((char *)m->op_options + a->offset, (const char *)m->op->defaults + a->offset,
                   gd_attr_size(a));
    }
}

static bool is_complete(const gd_module *m) {
    for (int i = 0; i < m->factory->n_finds; i++) {
        const int64_t *size =
            gd_factory_option(m->factory, m->options, m->factory->finds[i].option, NULL);
        if (*size == GD_ANY) return false;
    }
    return true;
}

static gd_status make_parameters(gd_module *m) {
    const gd_layer_rules *rules = m->factory->rules;
    GD_EAGER; /* parameters are eager, also in a trace */
    gd_device *device = gd_this_thread.device;
    if (m->device) gd_this_thread.device = m->device;
    gd_scope *scope = gd_scope_open();
    const int before = m->count;
    gd_status status = rules->build ? rules->build(m) : GD_OK;
    if (status == GD_OK) gd_module_own_parts(m, before);
    gd_scope_close(&scope);
    gd_this_thread.device = device;
    m->built = status == GD_OK;
    return status;
}

static gd_status build_layer(gd_module *m) {
    const gd_layer_rules *rules = m->factory->rules;
    if (!rules->forward && !m->factory->of)
        return gd_fail(GD_E_STATE,
                       "the layer '%s' has no forward function, and its record names no op",
                       m->type);
    if (rules->check) GD_TRY(rules->check(m));
    if (m->factory->of && !m->op) GD_TRY(gd_layer_set_op(m, m->factory->of));
    m->built = false;
    return is_complete(m) ? make_parameters(m) : GD_OK;
}

/* Takes ownership of `options`, also on failure. */
static gd_module *make_layer(const char *site, const gd_factory *factory, void *options) {
    GD_CALLED_FROM(site);
    gd_attempt attempt;
    gd_attempt_begin(&attempt);
    gd_scope *scope = gd_scope_open();
    gd_module *m = gd_module_bare(factory->record.name);
    gd_status status = m ? GD_OK : gd_failure();
    if (m) {
        m->factory = factory;
        m->options = options;
        status = build_layer(m);
        if (status == GD_OK) gd_keep(m);
    } else gd_free(options);
    gd_scope_close(&scope);
    status = gd_attempt_end(&attempt, status);
    if (status == GD_OK) return m;
    gd_report(site, status);
    return NULL;
}

gd_module *gd_layer_make(const char *site, const gd_factory *factory, const void *given) {
    void *options;
    const gd_status status = gd_factory_take_options(factory, given, &options);
    if (status == GD_OK) return make_layer(site, factory, options);
    gd_error_prefix("%s: ", factory->record.name);
    gd_report(site, status);
    return NULL;
}

gd_module *gd_layer_new_at(const char *site, const char *name, const char *text) {
    const gd_factory *factory;
    void *options;
    gd_status status = gd_factory_read("layer", name, text, &factory, &options);
    if (status == GD_OK) return make_layer(site, factory, options);
    gd_report(site, status);
    return NULL;
}

const void *gd_layer_options(const gd_module *m, const char *name) {
    GD_LIVE(m);
    const bool same = m && m->factory && strcmp(m->factory->record.name, name) == 0;
    return same ? m->options : NULL;
}

static gd_status set_number(gd_module *m, const char *option, double value) {
    const gd_op_attr *a = NULL;
    if (!m || !m->factory)
        return gd_fail(GD_E_ARGUMENT, "gd_layer_set_number: %s is no layer", m ? m->type : "NULL");
    double *at = gd_factory_option(m->factory, m->options, option, &a);
    if (!at || a->type != GD_ATTR_FLOAT)
        return gd_fail(GD_E_ARGUMENT, "gd_layer_set_number: %s has no option '%s' that is a number",
                       m->type, option);
    const double before = *at;
    *at = value;
    const gd_layer_rules *rules = m->factory->rules;
    const gd_status status = rules->check ? rules->check(m) : GD_OK;
    if (status != GD_OK) {
        *at = before;
        return status;
    }
    for (int i = 0; m->op && i < m->op->n_attrs; i++)
        if (strcmp(m->op->attrs[i].name, option) == 0 && m->op->attrs[i].type == GD_ATTR_FLOAT)
            *(double *)((char *)m->op_options + m->op->attrs[i].offset) = value;
    m->revision++;
    return GD_OK;
}

gd_status gd_layer_set_number_at(const char *site, gd_module *m, const char *option, double value) {
    GD_LIVE_AT(site, m);
    if (!m && gd_failed()) return gd_error_status();
    return gd_report(site, set_number(m, option, value));
}

/* --- inferred sizes --------------------------------------------------------------------------- */

static gd_status find_size(gd_module *m, const gd_record_find *f, gd_tensors in) {
    int64_t *size = gd_factory_option(m->factory, m->options, f->option, NULL);
    if (*size != GD_ANY) return GD_OK;
    const gd_tensor *x = gd_layer_input(in, f->input);
    const char *input = m->factory->record.inputs[f->input].name;
    const gd_word *format = gd_factory_option(m->factory, m->options, "data_format", NULL);
    const int record_axis = format && *format == GD_CHANNELS_LAST && f->axis == 1 ? -1 : f->axis;
    const int axis = x ? (record_axis < 0 ? x->rank + record_axis : record_axis) : -1;
    char text[160];
    if (!x || axis < 0 || axis >= x->rank)
        return gd_fail(GD_E_SHAPE, "%s is GD_ANY, to be inferred from size %d of '%s', which is %s",
                       f->option, f->axis, input, x ? gd_describe(x, text, sizeof text) : "absent");
    if (x->dims[axis] < 1)
        return gd_fail(
            GD_E_SHAPE,
            "%s is GD_ANY, and size %d of '%s' is %s; give it to the placeholder, or to the layer",
            f->option, f->axis, input, x->dims[axis] < 0 ? "not known before a run" : "0");
    *size = x->dims[axis];
    return GD_OK;
}

gd_status gd_layer_build_for(gd_module *m, gd_tensors in) {
    const gd_layer_rules *rules = m->factory->rules;
    if (m->dtype == GD_DTYPE_NONE && in.count > 0 && in.at[0] && gd_is_float(in.at[0]->dtype))
        m->dtype = (gd_dtype)in.at[0]->dtype;
    if (!m->device && in.count > 0 && in.at[0] && in.at[0]->kind == GD_VALUE)
        m->device = in.at[0]->device;
    for (int i = 0; i < m->factory->n_finds; i++) GD_TRY(find_size(m, &m->factory->finds[i], in));
    if (rules->check) GD_TRY(rules->check(m));
    for (int i = 0; m->op && i < m->factory->n_finds;
         i++) { /* an option of the op may have the same name */
        const gd_op_attr *a = NULL;
        for (int k = 0; k < m->op->n_attrs; k++)
            if (strcmp(m->op->attrs[k].name, m->factory->finds[i].option) == 0)
                a = &m->op->attrs[k];
        if (a)
            memcpy((char *)m->op_options + a->offset,
                   gd_factory_option(m->factory, m->options, a->name, NULL), gd_attr_size(a));
    }
    const int before = m->count, revision = m->revision;
    const gd_status status = make_parameters(m);
    m->revision = revision; /* the trace that builds it stays valid */
    if (status == GD_OK) return GD_OK;
    while (m->count > before) gd_module_remove_last(m);
    return status;
}

/* --- variants --------------------------------------------------------------------------------- */

void gd_layer_read_options(const gd_module *m, void *options, size_t size) {
    const gd_op *from = &m->factory->record, *to = &m->factory->last_variant->record;
    if (from->attrs_size == size) {
        memcpy(options, m->options, size);
        return;
    }
    memset(options, 0, size);
    for (int i = 0; i < to->n_attrs; i++) /* one text: the same options in the same order */
        memcpy((char *)options + to->attrs[i].offset,
               (const char *)m->options + from->attrs[i].offset, gd_attr_size(&from->attrs[i]));
}

/* --- checks ----------------------------------------------------------------------------------- */

gd_status gd_layer_at_least(const gd_module *m, const char *option, int64_t value, int64_t least) {
    if (value >= least) return GD_OK;
    return gd_fail(GD_E_ARGUMENT, "%s: %s is %lld; it must be at least %lld", m->type, option,
                   (long long)value, (long long)least);
}

gd_status gd_layer_all_at_least(const gd_module *m, const char *option, int count,
                                const int64_t *values, int64_t least) {
    for (int i = 0; i < count; i++) {
        if (values[i] == GD_UNSET)
            return gd_fail(GD_E_ARGUMENT, "%s: %s is not given", m->type, option);
        GD_TRY(gd_layer_at_least(m, option, values[i], least));
    }
    return GD_OK;
}

gd_status gd_layer_size(const gd_module *m, const char *option, int64_t value) {
    if (value == GD_ANY || value >= 1) return GD_OK;
    return gd_fail(
        GD_E_ARGUMENT,
        "%s: %s is %lld; it must be at least 1, or GD_ANY to be inferred from the first input",
        m->type, option, (long long)value);
}

gd_status gd_layer_within(const gd_module *m, const char *option, double value, double low,
                          double high, bool closed) {
    if (value >= low && (closed ? value <= high : value < high)) return GD_OK;
    if (isinf(high))
        return gd_fail(GD_E_ARGUMENT, "%s: %s is %g; it must be at least %g", m->type, option,
                       value, low);
    return gd_fail(GD_E_ARGUMENT, "%s: %s is %g; it must be in [%g, %g%c", m->type, option, value,
                   low, high, closed ? ']' : ')');
}

/* --- building --------------------------------------------------------------------------------- */

static gd_dtype float_dtype(const gd_module *m) {
    return m->dtype == GD_DTYPE_NONE ? GD_F32 : m->dtype;
}

gd_status gd_layer_uniform(gd_module *m, const char *name, gd_shape dims, double bound) {
    return gd_module_put_parameter(
        m, name, gd_uniform(dims, .low = -bound, .high = bound, .dtype = float_dtype(m)), NULL);
}

gd_status gd_layer_normal(gd_module *m, const char *name, gd_shape dims, double std) {
    return gd_module_put_parameter(m, name, gd_normal(dims, .std = std, .dtype = float_dtype(m)),
                                   NULL);
}

gd_status gd_layer_fill(gd_module *m, const char *name, gd_shape dims, double value) {
    return gd_module_put_parameter(m, name, gd_full(dims, value, .dtype = float_dtype(m)), NULL);
}

gd_status gd_layer_absent(gd_module *m, const char *name) {
    return gd_module_put(m, GD_A_PARAMETER, name, NULL, NULL);
}

gd_status gd_layer_buffer(gd_module *m, const char *name, gd_shape dims, gd_dtype dtype,
                          double value) {
    gd_tensor *t = gd_full(dims, value, .dtype = dtype == GD_DTYPE_NONE ? float_dtype(m) : dtype);
    return t->kind == GD_FAILED ? gd_failure() : gd_module_put(m, GD_A_BUFFER, name, t, NULL);
}

gd_status gd_layer_child(gd_module *m, const char *name, gd_module *child) {
    return child ? gd_module_put(m, GD_A_CHILD, name, child, NULL) : gd_failure();
}

/* --- forward ---------------------------------------------------------------------------------- */

bool gd_layer_is_training(gd_module *m) {
    if (gd_trace_record_mode(&m->object, &m->training) != GD_OK) gd_report(NULL, gd_failure());
    return m->training;
}

gd_tensors gd_layer_fail(gd_status status) {
    gd_report(NULL, status);
    return gd_list_of_errors(1);
}

gd_tensor *gd_layer_scalar(const gd_tensor *x, double value) {
    return gd_scalar_of(value, x->dtype == GD_F64 ? GD_F64 : GD_F32);
}

gd_tensor *gd_layer_write(gd_tensor *buffer, gd_tensor *value) {
    GD_NO_GRAD;
    return gd_assign(buffer, value);
}

/* Only a graph skips nodes that are not fetched. */
gd_block gd_layer_after_begin(gd_tensor *write) {
    return write && write->kind == GD_SYMBOL ? gd_after_begin(gd_list(write)) : (gd_block){NULL};
}
void gd_layer_after_end(gd_block *block) {
    if (block->before) gd_after_end(block);
}

gd_tensors gd_layer_call_op(gd_module *m, gd_tensors in) {
    gd_tensor *operands[GD_RECORD_MAX];
    const gd_op *record = &m->factory->record;
    const bool list = record->n_inputs > 0 && record->inputs[record->n_inputs - 1].variadic;
    if (list) return gd_call_with(m->op, NULL, in, m->op_options);
    int n = 0;
    while (n < record->n_inputs) {
        operands[n] = gd_layer_input(in, n);
        n++;
    }
    for (int i = 0; i < m->count && n < m->op->n_inputs; i++)
        operands[n++] = gd_layer_tensor_at(m, i);
    while (n > record->n_inputs && !operands[n - 1]) n--;
    while (n < m->op->n_inputs) operands[n++] = NULL;
    return gd_call_with(m->op, NULL, (gd_tensors){operands, n}, m->op_options);
}

gd_tensor *gd_layer_channels_first(gd_tensor *x, gd_word data_format) {
    return data_format == GD_CHANNELS_LAST ? gd_movedim(x, gd_dims(-1), gd_dims(1)) : x;
}

gd_tensor *gd_layer_channels_restored(gd_tensor *y, gd_word data_format) {
    return data_format == GD_CHANNELS_LAST ? gd_movedim(y, gd_dims(1), gd_dims(-1)) : y;
}

/* --- user-defined layers ---------------------------------------------------------------------- */

gd_status gd_layer_define_at(const char *site, const char *record, gd_layer_functions functions) {
    const gd_layer_rules rules = {.build = functions.build, .forward = functions.forward};
    const gd_status status = gd_factory_define("layer", record, &rules, sizeof rules);
    if (status != GD_OK) gd_error_prefix("gd_layer_define: ");
    return gd_report(site, status);
}

static const void *find_option(gd_module *m, const char *name, const gd_op_attr **attr) {
    return m && m->factory && name ? gd_factory_option(m->factory, m->options, name, attr) : NULL;
}

int64_t gd_layer_int(gd_module *m, const char *name) {
    GD_LIVE(m);
    const gd_op_attr *a;
    const void *field = find_option(m, name, &a);
    return !field                    ? 0
           : a->type == GD_ATTR_INTS ? *(const int64_t *)field
                                     : gd_number_i64(gd_attr_number(a, m->options));
}

double gd_layer_float(gd_module *m, const char *name) {
    GD_LIVE(m);
    const gd_op_attr *a;
    return find_option(m, name, &a) ? gd_attr_number(a, m->options).value : 0;
}

const char *gd_layer_string(gd_module *m, const char *name) {
    GD_LIVE(m);
    const gd_op_attr *a;
    const void *field = find_option(m, name, &a);
    return field && a->type == GD_ATTR_STRING ? *(const char *const *)field : NULL;
}

gd_shape gd_layer_dims(gd_module *m, const char *name) {
    GD_LIVE(m);
    const gd_op_attr *a;
    const void *field = find_option(m, name, &a);
    if (field && a->type == GD_ATTR_SHAPE) return *(const gd_shape *)field;
    return gd_shape_of(field && a->type == GD_ATTR_INTS ? a->count : 0, field);
}

gd_tensor *gd_layer_tensor(gd_module *m, const char *name) {
    GD_LIVE(m);
    const gd_entry *e = m && name ? gd_module_entry(m, name) : NULL;
    return e && e->kind != GD_A_CHILD ? (gd_tensor *)e->object : NULL;
}
