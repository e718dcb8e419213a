/* row.c - loads a node as one call of an op, by a row.
 *
 * Order: whether attributes and outputs of the node fit the row; inputs; conditions; options; the
 * call. If the node does not fit, the reason is recorded and the caller tries another row.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "gradus/ops.h"
#include "onnx/load/load.h"
#include "dispatch/call.h"

typedef struct row_load {
    gd_onnx_loader *l;
    const gd_pb *node;
    const gd_onnx_row *row;
    const gd_op *op;
    gd_attrs *attrs;
    gd_tensor *in[GD_MAX_VARIADIC + 16];
    int n_in;
    gd_tensor *padded; /* replaces the first input, with the pads applied to it; or NULL */
} row_load;

/* --- attributes and outputs ------------------------------------------------------------------- */

static bool is_padding(const char *attribute) {
    return strcmp(attribute, "pads") == 0 || strcmp(attribute, "auto_pad") == 0;
}

/* Records why the row does not fit. */
static bool reject_row(bool *fits, const char *why, const char *what) {
    gd_fail(GD_E_UNSUPPORTED, "%s '%s' is not supported", why, what);
    return *fits = false;
}

/* Whether the row names all attributes of the node: any other attribute may change its meaning. */
static bool names_all_attributes(const row_load *x, bool *fits) {
    for (size_t i = 0; i < gd_pb_count(x->node, "attribute"); i++) {
        const char *name = gd_pb_string(gd_pb_message_at(x->node, "attribute", i), "name");
        bool named = false;
        gd_operator_attribute a;
        gd_operator_input input;
        for (const char *text = x->row->attributes;
             !named && gd_operator_next_attribute(&text, &a);)
            named = strcmp(a.theirs, name) == 0;
        for (const char *text = x->row->inputs; !named && gd_operator_next_input(&text, &input);)
            named = strcmp(input.theirs, name) == 0;
        if (!x->row->attributes && !x->row->when)
            named = named || gd_onnx_find_option(x->op, name) != NULL;
        if (!named) return reject_row(fits, "its attribute", name);
    }
    return true;
}

static bool fixed_values_fit(const row_load *x, bool *fits) {
    gd_operator_attribute a;
    for (const char *text = x->row->attributes; gd_operator_next_attribute(&text, &a);)
        if (a.fixed[0] && !gd_onnx_has_fixed_value(x->padded && is_padding(a.theirs)
                                                       ? NULL
                                                       : gd_onnx_find_attribute(x->node, a.theirs),
                                                   &a))
            return reject_row(fits, "the value of its attribute", a.theirs);
    return true;
}

/* Whether the op has all outputs of the node. */
static bool outputs_fit(const row_load *x, bool *fits) {
    int visible = 0;
    for (int k = 0; k < x->op->n_outputs; k++) {
        if (x->op->outputs[k].variadic) return true;
        visible += !x->op->outputs[k].hidden;
    }
    for (size_t k = (size_t)visible; k < gd_pb_count(x->node, "output"); k++)
        if (*gd_pb_string_at(x->node, "output", k))
            return reject_row(fits, "its output", gd_pb_string_at(x->node, "output", k));
    return true;
}

/* --- inputs ----------------------------------------------------------------------------------- */

static gd_status read_input(row_load *x, const gd_operator_input *input, size_t i) {
    gd_status status;
    if (input->kind == GD_OPERATOR_TENSOR) {
        gd_tensor *t = gd_onnx_get_input(x->l, x->node, i, &status);
        const int k = gd_onnx_input_index(x->op, input->ours);
        if (k < 0) return gd_fail(GD_E_STATE, "%s has no input '%s'", x->op->name, input->ours);
        x->in[k] = t;
        return status;
    }
    const gd_op_attr *option = gd_onnx_find_option(x->op, input->ours);
    if (!option) return gd_fail(GD_E_STATE, "%s has no option '%s'", x->op->name, input->ours);
    if (option->type == GD_ATTR_FLOAT || option->type == GD_ATTR_NUMBER)
        return *gd_pb_string_at(x->node, "input", i)
                   ? gd_onnx_set_number(x->l, x->node, i, x->attrs, input->ours)
                   : GD_OK;
    int64_t numbers[GD_ONNX_MAX_NUMBERS];
    int count;
    GD_TRY(gd_onnx_get_numbers(x->l, x->node, i, input->theirs, &count, numbers));
    if (count <= 0 && strcmp(input->conversion, "all") == 0) {
        int64_t none;
        GD_TRY(gd_onnx_int_attribute(x->node, "noop_with_empty_axes", 0, &none));
        count = none ? 0 : -1; /* an option that is not set means all axes */
    }
    return count < 0 ? GD_OK : gd_onnx_set_numbers(x->attrs, option, input->theirs, count, numbers);
}

static gd_status read_inputs(row_load *x, bool *fits) {
    const size_t given = gd_onnx_input_count(x->node);
    const gd_op_param *params = x->op->inputs;
    if (x->row->inputs) {
        gd_operator_input input;
        size_t i = 0;
        for (const char *text = x->row->inputs; gd_operator_next_input(&text, &input); i++)
            GD_TRY(read_input(x, &input, i));
        for (; i < given; i++)
            if (*gd_pb_string_at(x->node, "input", i)) {
                reject_row(fits, "its input", gd_pb_string_at(x->node, "input", i));
                return GD_OK;
            }
        x->n_in = x->op->n_inputs;
    } else {
        const bool variadic = x->op->n_inputs > 0 && params[x->op->n_inputs - 1].variadic;
        if (given > (variadic ? GD_MAX_VARIADIC : (size_t)x->op->n_inputs)) {
            reject_row(fits, "the number of inputs of", x->op->name);
            return GD_OK;
        }
        gd_status status = GD_OK;
        for (size_t i = 0; i < given && status == GD_OK; i++)
            x->in[i] = gd_onnx_get_input(x->l, x->node, i, &status);
        GD_TRY(status);
        x->n_in = variadic ? (int)given : x->op->n_inputs;
    }
    if (x->padded) x->in[0] = x->padded;
    for (int i = 0; i < x->op->n_inputs && i < x->n_in; i++)
        if (!x->in[i] && !params[i].optional && !params[i].variadic)
            return gd_fail(GD_E_FORMAT, "its input for '%s' is missing", params[i].name);
    return GD_OK;
}

/* --- conditions and options ------------------------------------------------------------------- */

static bool input_fits(const row_load *x, const gd_tensor *t, const gd_operator_condition *when) {
    const int other =
        when->kind == GD_OPERATOR_SAME_RANK ? gd_onnx_input_index(x->op, when->value) : -1;
    switch (when->kind) {
    case GD_OPERATOR_RANK_IS: return t->rank == atoi(when->value);
    case GD_OPERATOR_RANK_ABOVE: return t->rank > atoi(when->value);
    case GD_OPERATOR_IS_INT: return gd_dtype_is_int((gd_dtype)t->dtype);
    case GD_OPERATOR_IS_DTYPE: return strcmp(gd_dtype_name((gd_dtype)t->dtype), when->value) == 0;
    case GD_OPERATOR_SAME_RANK: return other >= 0 && x->in[other] && x->in[other]->rank == t->rank;
    default: return gd_dtype_is_float((gd_dtype)t->dtype);
    }
}

/* A condition on an option sets the option; one on an input must hold. */
static gd_status apply_conditions(row_load *x, bool *fits) {
    gd_operator_condition when;
    for (const char *text = x->row->when; gd_operator_next_condition(&text, &when);) {
        if (when.kind == GD_OPERATOR_OPTION) {
            GD_TRY(gd_attrs_put_text(x->attrs, when.name, when.value));
            continue;
        }
        const int i = gd_onnx_input_index(x->op, when.name);
        char shape[160];
        if (i >= 0 && i < x->n_in && x->in[i] && input_fits(x, x->in[i], &when)) continue;
        gd_fail(GD_E_UNSUPPORTED, "%s as its '%s' is not supported",
                i >= 0 && x->in[i] ? gd_describe(x->in[i], shape, sizeof shape) : "nothing",
                when.name);
        *fits = false;
        return GD_OK;
    }
    return GD_OK;
}

static gd_status read_attributes(row_load *x) {
    gd_operator_attribute a;
    for (const char *text = x->row->attributes; gd_operator_next_attribute(&text, &a);) {
        const gd_op_attr *option = a.ours[0] ? gd_onnx_find_option(x->op, a.ours) : NULL;
        const gd_pb *given = gd_onnx_find_attribute(x->node, a.theirs);
        if (!option || (x->padded && is_padding(a.theirs))) continue;
        if (given) GD_TRY(gd_onnx_set_option(x->attrs, &a, option, given));
        else if (a.their_default[0])
            GD_TRY(gd_attrs_put_text(x->attrs, option->name, a.their_default));
    }
    if (x->row->attributes || x->row->inputs || x->row->when) return GD_OK;
    for (int i = 0; i < x->op->n_attrs; i++) { /* an implied row */
        const gd_pb *given = gd_onnx_find_attribute(x->node, x->op->attrs[i].name);
        a = (gd_operator_attribute){.twice = false};
        snprintf(a.theirs, sizeof a.theirs, "%s", x->op->attrs[i].name);
        if (given) GD_TRY(gd_onnx_set_option(x->attrs, &a, &x->op->attrs[i], given));
    }
    return GD_OK;
}

/* A reduction in ONNX keeps the dtype of its input; the op returns i64 for small integers unless
 * its option dtype is set. */
static gd_status keep_input_dtype(row_load *x) {
    const gd_op_attr *option = gd_onnx_find_option(x->op, "dtype");
    if (!option || !x->row->cast || x->row->cast[0] != 'y' || !x->in[0] ||
        gd_dtype_is_float((gd_dtype)x->in[0]->dtype))
        return GD_OK;
    return gd_attrs_put_text(x->attrs, option->name, gd_dtype_name((gd_dtype)x->in[0]->dtype));
}

gd_status gd_onnx_read_row_options(const gd_pb *node, const char *op, gd_attrs *attrs, bool pads) {
    row_load x = {.node = node, .op = gd_op_find(op), .attrs = attrs};
    gd_onnx_row row;
    for (int at = 0; gd_onnx_next_row(x.op, &at, &row);) {
        if (!row.attributes) continue;
        x.row = &row;
        if (!pads) x.padded = &gd_error_tensor; /* any tensor: it is not read */
        return read_attributes(&x);
    }
    return GD_OK;
}

/* --- the call --------------------------------------------------------------------------------- */

static gd_status call_row_op(row_load *x) {
    gd_tensors out = gd_op_call(x->op, (gd_tensors){x->in, x->n_in}, x->attrs);
    if (out.count < 1) return gd_failure();
    for (size_t k = 0; k < gd_pb_count(x->node, "output"); k++) {
        if (k < (size_t)out.count) GD_TRY(gd_onnx_set_output(x->l, x->node, k, out.at[k]));
        else if (*gd_pb_string_at(x->node, "output", k))
            return gd_fail(GD_E_UNSUPPORTED, "it has %zu outputs; %lld are supported",
                           gd_pb_count(x->node, "output"), (long long)out.count);
    }
    return GD_OK;
}

gd_status gd_onnx_load_row(gd_onnx_loader *l, const gd_pb *node, const gd_onnx_row *row,
                           gd_tensor *padded, bool *fits) {
    row_load *x = gd_calloc(1, sizeof *x);
    if (!x) return gd_no_memory(NULL, "to load a graph");
    *x = (row_load){.l = l, .node = node, .row = row, .op = gd_op_find(row->op), .padded = padded};
    x->attrs = gd_attrs_new(x->op);
    *fits = true;
    gd_status status = x->attrs ? GD_OK : GD_E_MEMORY;
    if (status == GD_OK && names_all_attributes(x, fits) && fixed_values_fit(x, fits) &&
        outputs_fit(x, fits)) {
        status = read_inputs(x, fits);
        if (status == GD_OK && *fits) status = apply_conditions(x, fits);
        if (status == GD_OK && *fits) status = read_attributes(x);
        if (status == GD_OK && *fits) status = keep_input_dtype(x);
        if (status == GD_OK && *fits) status = call_row_op(x);
    }
    gd_free(x);
    return status;
}
