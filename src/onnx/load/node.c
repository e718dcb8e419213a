/* node.c - one node of an ONNX file as a call of an op, by a row of the table. */
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/copy.h"
#include "core/number.h"
#include "gradus/ops.h"
#include "onnx/onnx.h"
#include "ops/call.h"

/* --- attributes ------------------------------------------------------------------------------- */

const gd_pb *gd_onnx_attribute_of(const gd_pb *node, const char *name) {
    for (size_t i = 0; i < gd_pb_count(node, "attribute"); i++) {
        const gd_pb *a = gd_pb_message_at(node, "attribute", i);
        if (strcmp(gd_pb_string(a, "name"), name) == 0) return a;
    }
    return NULL;
}

bool gd_onnx_word_is(const gd_pb *node, const char *name, const char *otherwise, const char *word) {
    const gd_pb_list *s = gd_pb_get(gd_onnx_attribute_of(node, name), "s");
    if (!s) return strcmp(otherwise, word) == 0;
    return s->bytes[0].length == strlen(word) && memcmp(s->bytes[0].data, word, strlen(word)) == 0;
}

gd_tensor *gd_onnx_number_like(const gd_tensor *x, double value) {
    return gd_scalar_of(value, (gd_dtype)x->dtype);
}

static gd_status wrong_attribute(const char *name, const char *wanted) {
    return gd_fail(GD_E_FORMAT, "its attribute '%.60s' must be %s", name, wanted);
}

gd_status gd_onnx_int_attribute(const gd_pb *node, const char *name, int64_t otherwise,
                                int64_t *value) {
    const gd_pb *a = gd_onnx_attribute_of(node, name);
    *value = a ? gd_pb_int(a, "i", 0) : otherwise;
    const bool empty = a && !gd_pb_count(a, "i") && gd_pb_int(a, "type", 2) != 2;
    return empty ? wrong_attribute(name, "a whole number") : GD_OK;
}

gd_status gd_onnx_float_attribute(const gd_pb *node, const char *name, double otherwise,
                                  double *value) {
    const gd_pb *a = gd_onnx_attribute_of(node, name);
    *value = a ? gd_float_shortest((float)gd_pb_float(a, "f", 0)) : otherwise;
    const bool empty = a && !gd_pb_count(a, "f") && gd_pb_int(a, "type", 1) != 1;
    return empty ? wrong_attribute(name, "a number") : GD_OK;
}

/* A string attribute; false: it is none, or longer than words are. */
static bool attribute_text(const gd_pb *a, char *text, size_t size) {
    const gd_pb_list *s = gd_pb_get(a, "s");
    const size_t length = s ? s->bytes[0].length : 0;
    if (!s || length >= size || memchr(s->bytes[0].data, 0, length)) return false;
    memcpy(text, s->bytes[0].data, length);
    text[length] = '\0';
    return true;
}

/* A number from a float, or from a tensor of rank 0 that holds a double. */
static gd_status attribute_number(const gd_pb *a, const char *name, double *value) {
    const gd_pb *t = gd_pb_message(a, "t");
    if (t && gd_pb_count(t, "double_data") == 1) *value = gd_pb_float(t, "double_data", 0);
    else if (gd_pb_count(a, "i")) *value = (double)gd_pb_int(a, "i", 0);
    else if (gd_pb_count(a, "f") || gd_pb_int(a, "type", 0) == 1)
        *value = gd_float_shortest((float)gd_pb_float(a, "f", 0));
    else return wrong_attribute(name, "a number");
    return GD_OK;
}

/* Our name of one of ONNX's words, from ",ours:onnx,ours:onnx". */
static const char *own_word(const char *words, const char *word, char *own) {
    for (const char *at = words; at && *at; at = strchr(at + 1, ',')) {
        const char *colon = strchr(at, ':');
        const size_t length = colon ? strcspn(colon + 1, ",") : 0;
        if (colon && strlen(word) == length && strncmp(colon + 1, word, length) == 0) {
            snprintf(own, GD_ONNX_WORD, "%.*s", (int)(colon - at - 1), at + 1);
            return own;
        }
    }
    return word;
}

/* A list twice as long as ours must have two equal halves. */
static gd_status halve(const char *name, int *count, const int64_t *numbers) {
    const int half = *count / 2;
    if (*count % 2 || memcmp(numbers, numbers + half, sizeof *numbers * (size_t)half) != 0)
        return gd_fail(
            GD_E_UNSUPPORTED,
            "its attribute '%s' must be the same at the beginning and the end of each axis", name);
    *count = half;
    return GD_OK;
}

static gd_status set_numbers(gd_attrs *attrs, const gd_op_attr *option, const char *name, int count,
                             const int64_t *numbers) {
    if (option->type == GD_ATTR_INT && count == 1)
        return gd_attrs_put_int(attrs, option->name, numbers[0]);
    if (option->type == GD_ATTR_INTS && count == option->count)
        return gd_attrs_put_ints(attrs, option->name, count, numbers);
    if (option->type == GD_ATTR_SHAPE && count <= GD_MAX_RANK)
        return gd_attrs_put_ints(attrs, option->name, count, numbers);
    return gd_fail(GD_E_FORMAT, "'%s' has %d numbers, which %s does not take", name, count,
                   option->name);
}

static gd_status set_option(gd_attrs *attrs, const gd_onnx_attribute *row, const gd_op_attr *option,
                            const gd_pb *a) {
    char text[256], own[GD_ONNX_WORD];
    double number = 0;
    if (attribute_text(a, text, sizeof text) && strcmp(text, "none") == 0 &&
        option->type != GD_ATTR_WORD)
        return gd_attrs_put_text(attrs, option->name, text);
    switch (option->type) {
    case GD_ATTR_FLOAT:
    case GD_ATTR_NUMBER:
        if (option->type == GD_ATTR_NUMBER && gd_pb_count(a, "i"))
            return gd_attrs_put_int(attrs, option->name, gd_pb_int(a, "i", 0));
        GD_TRY(attribute_number(a, row->onnx, &number));
        return gd_attrs_put_float(attrs, option->name, number);
    case GD_ATTR_BOOL: return gd_attrs_put_int(attrs, option->name, gd_pb_int(a, "i", 0) != 0);
    case GD_ATTR_DTYPE: {
        if (attribute_text(a, text, sizeof text))
            return gd_attrs_put_text(attrs, option->name, text);
        const gd_dtype dtype = gd_onnx_dtype(gd_pb_int(a, "i", 0));
        if (dtype == GD_DTYPE_NONE)
            return gd_fail(GD_E_UNSUPPORTED,
                           "its attribute '%s' says %s, which no dtype here holds", row->onnx,
                           gd_onnx_type_name(gd_pb_int(a, "i", 0)));
        return gd_attrs_put_text(attrs, option->name, gd_dtype_name(dtype));
    }
    case GD_ATTR_WORD:
        if (!attribute_text(a, text, sizeof text)) return wrong_attribute(row->onnx, "a word");
        return gd_attrs_put_text(attrs, option->name, own_word(row->words, text, own));
    case GD_ATTR_STRING:
        if (!attribute_text(a, text, sizeof text)) return wrong_attribute(row->onnx, "a string");
        return gd_attrs_put_text(attrs, option->name, text);
    default: {
        const gd_pb_list *list = gd_pb_get(a, "ints");
        if (!list) list = gd_pb_get(a, "i");
        int64_t numbers[GD_ONNX_MOST_NUMBERS], zero = 0;
        if (list && list->count > GD_ONNX_MOST_NUMBERS)
            return wrong_attribute(row->onnx, "a shorter list");
        int count = list ? (int)list->count : gd_pb_int(a, "type", 0) == 2 ? 1 : 0;
        memcpy(numbers, list ? list->ints : &zero, sizeof *numbers * (size_t)count);
        if (row->twice) GD_TRY(halve(row->onnx, &count, numbers));
        return set_numbers(attrs, option, row->onnx, count, numbers);
    }
    }
}

/* An attribute that must have one value. Refusing it is not a failure yet: another row may fit. */
static bool is_fixed(const gd_pb *a, const gd_onnx_attribute *row) {
    char text[64];
    if (!a) return strcmp(row->fixed, row->otherwise) == 0;
    if (attribute_text(a, text, sizeof text)) return strcmp(text, row->fixed) == 0;
    const double wanted = gd_double_parse(row->fixed, NULL);
    const gd_pb_list *list = gd_pb_get(a, "ints");
    for (size_t i = 0; list && i < list->count; i++)
        if ((double)list->ints[i] != wanted) return false;
    if (list) return true;
    const double have = gd_pb_count(a, "f") ? gd_pb_float(a, "f", 0) : (double)gd_pb_int(a, "i", 0);
    return fabs(have - wanted) <= 1e-6;
}

/* --- rows ------------------------------------------------------------------------------------- */

typedef struct loading {
    gd_onnx_loader *l;
    const gd_pb *node;
    const gd_onnx_row *row;
    const gd_op *op;
    gd_attrs *attrs;
    gd_tensor *in[GD_MAX_VARIADIC + 16];
    int n_in;
    gd_tensor *padded; /* instead of the first input, and its borders are done; NULL: no */
} loading;

static bool is_border(const char *attribute) {
    return strcmp(attribute, "pads") == 0 || strcmp(attribute, "auto_pad") == 0;
}

static bool refuse(bool *fits, const char *why, const char *what) {
    gd_fail(GD_E_UNSUPPORTED, "%s '%s' is not what this library can do", why, what);
    return *fits = false;
}

/* Attributes that the row does not name may say anything. */
static bool all_named(const loading *x, bool *fits) {
    for (size_t i = 0; i < gd_pb_count(x->node, "attribute"); i++) {
        const char *name = gd_pb_string(gd_pb_message_at(x->node, "attribute", i), "name");
        bool named = false;
        gd_onnx_attribute a;
        gd_onnx_input input;
        for (const char *text = x->row->attributes; !named && gd_onnx_next_attribute(&text, &a);)
            named = strcmp(a.onnx, name) == 0;
        for (const char *text = x->row->inputs; !named && gd_onnx_next_input(&text, &input);)
            named = strcmp(input.onnx, name) == 0;
        if (!x->row->attributes && !x->row->when)
            named = named || gd_onnx_option(x->op, name) != NULL;
        if (!named) return refuse(fits, "its attribute", name);
    }
    return true;
}

static bool fixed_fit(const loading *x, bool *fits) {
    gd_onnx_attribute a;
    for (const char *text = x->row->attributes; gd_onnx_next_attribute(&text, &a);)
        if (a.fixed[0] &&
            !is_fixed(x->padded && is_border(a.onnx) ? NULL : gd_onnx_attribute_of(x->node, a.onnx),
                      &a))
            return refuse(fits, "the value of its attribute", a.onnx);
    return true;
}

/* Results of the node that somebody may read are ours, too. */
static bool outputs_fit(const loading *x, bool *fits) {
    int visible = 0;
    for (int k = 0; k < x->op->n_outputs; k++) {
        if (x->op->outputs[k].variadic) return true;
        visible += !x->op->outputs[k].hidden;
    }
    for (size_t k = (size_t)visible; k < gd_pb_count(x->node, "output"); k++)
        if (*gd_pb_string_at(x->node, "output", k))
            return refuse(fits, "its output", gd_pb_string_at(x->node, "output", k));
    return true;
}

static gd_status one_input(loading *x, const gd_onnx_input *input, size_t i) {
    gd_status status;
    if (input->kind == GD_ONNX_TENSOR) {
        gd_tensor *t = gd_onnx_get_input(x->l, x->node, i, &status);
        const int k = gd_onnx_input_index(x->op, input->ours);
        if (k < 0) return gd_fail(GD_E_STATE, "%s has no input '%s'", x->op->name, input->ours);
        x->in[k] = t;
        return status;
    }
    const gd_op_attr *option = gd_onnx_option(x->op, input->ours);
    if (!option) return gd_fail(GD_E_STATE, "%s has no option '%s'", x->op->name, input->ours);
    if (option->type == GD_ATTR_FLOAT || option->type == GD_ATTR_NUMBER)
        return *gd_pb_string_at(x->node, "input", i)
                   ? gd_onnx_set_number(x->l, x->node, i, x->attrs, input->ours)
                   : GD_OK;
    int64_t numbers[GD_ONNX_MOST_NUMBERS];
    int count;
    GD_TRY(gd_onnx_get_numbers(x->l, x->node, i, input->onnx, &count, numbers));
    if (count <= 0 && strcmp(input->how, "all") == 0) {
        int64_t none;
        GD_TRY(gd_onnx_int_attribute(x->node, "noop_with_empty_axes", 0, &none));
        count = none ? 0 : -1; /* ours, not set, are all */
    }
    return count < 0 ? GD_OK : set_numbers(x->attrs, option, input->onnx, count, numbers);
}

static gd_status read_inputs(loading *x, bool *fits) {
    const size_t given = gd_onnx_input_count(x->node);
    const gd_op_param *params = x->op->inputs;
    if (x->row->inputs) {
        gd_onnx_input input;
        size_t i = 0;
        for (const char *text = x->row->inputs; gd_onnx_next_input(&text, &input); i++)
            GD_TRY(one_input(x, &input, i));
        for (; i < given; i++)
            if (*gd_pb_string_at(x->node, "input", i)) {
                refuse(fits, "its input", gd_pb_string_at(x->node, "input", i));
                return GD_OK;
            }
        x->n_in = x->op->n_inputs;
    } else {
        const bool variadic = x->op->n_inputs > 0 && params[x->op->n_inputs - 1].variadic;
        if (given > (variadic ? GD_MAX_VARIADIC : (size_t)x->op->n_inputs)) {
            refuse(fits, "the number of inputs of", x->op->name);
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

static bool input_fits(const loading *x, const gd_tensor *t, const gd_onnx_condition *when) {
    const int other =
        when->kind == GD_ONNX_SAME_RANK ? gd_onnx_input_index(x->op, when->value) : -1;
    switch (when->kind) {
    case GD_ONNX_RANK_IS: return t->rank == atoi(when->value);
    case GD_ONNX_RANK_ABOVE: return t->rank > atoi(when->value);
    case GD_ONNX_IS_INT: return gd_dtype_is_int((gd_dtype)t->dtype);
    case GD_ONNX_IS_DTYPE: return strcmp(gd_dtype_name((gd_dtype)t->dtype), when->value) == 0;
    case GD_ONNX_SAME_RANK: return other >= 0 && x->in[other] && x->in[other]->rank == t->rank;
    default: return gd_dtype_is_float((gd_dtype)t->dtype);
    }
}

/* Conditions on options are what they are set to; those on inputs must hold. */
static gd_status apply_conditions(loading *x, bool *fits) {
    gd_onnx_condition when;
    for (const char *text = x->row->when; gd_onnx_next_condition(&text, &when);) {
        if (when.kind == GD_ONNX_OPTION) {
            GD_TRY(gd_attrs_put_text(x->attrs, when.name, when.value));
            continue;
        }
        const int i = gd_onnx_input_index(x->op, when.name);
        char shape[160];
        if (i >= 0 && i < x->n_in && x->in[i] && input_fits(x, x->in[i], &when)) continue;
        gd_fail(GD_E_UNSUPPORTED, "with %s for '%s' it is not what this library can do",
                i >= 0 && x->in[i] ? gd_describe(x->in[i], shape, sizeof shape) : "nothing",
                when.name);
        *fits = false;
        return GD_OK;
    }
    return GD_OK;
}

static gd_status read_attributes(loading *x) {
    gd_onnx_attribute a;
    for (const char *text = x->row->attributes; gd_onnx_next_attribute(&text, &a);) {
        const gd_op_attr *option = a.ours[0] ? gd_onnx_option(x->op, a.ours) : NULL;
        const gd_pb *given = gd_onnx_attribute_of(x->node, a.onnx);
        if (!option || (x->padded && is_border(a.onnx))) continue;
        if (given) GD_TRY(set_option(x->attrs, &a, option, given));
        else if (a.otherwise[0]) GD_TRY(gd_attrs_put_text(x->attrs, option->name, a.otherwise));
    }
    if (x->row->attributes || x->row->inputs || x->row->when) return GD_OK;
    for (int i = 0; i < x->op->n_attrs; i++) { /* a record by itself */
        const gd_pb *given = gd_onnx_attribute_of(x->node, x->op->attrs[i].name);
        a = (gd_onnx_attribute){.twice = false};
        snprintf(a.onnx, sizeof a.onnx, "%s", x->op->attrs[i].name);
        if (given) GD_TRY(set_option(x->attrs, &a, &x->op->attrs[i], given));
    }
    return GD_OK;
}

/* ONNX's sums have the type of what they add; ours of small integers are i64 unless told. */
static gd_status keep_dtype(loading *x) {
    const gd_op_attr *option = gd_onnx_option(x->op, "dtype");
    if (!option || !x->row->cast || x->row->cast[0] != 'y' || !x->in[0] ||
        gd_dtype_is_float((gd_dtype)x->in[0]->dtype))
        return GD_OK;
    return gd_attrs_put_text(x->attrs, option->name, gd_dtype_name((gd_dtype)x->in[0]->dtype));
}

gd_status gd_onnx_row_options(const gd_pb *node, const char *op, gd_attrs *attrs, bool borders) {
    for (int i = 0; i < gd_onnx_row_count; i++) {
        const gd_onnx_row *row = &gd_onnx_rows[i];
        if (!row->op || strcmp(row->op, op) != 0 || !row->attributes) continue;
        loading x = {.node = node, .row = row, .op = gd_op_find(op), .attrs = attrs};
        if (!borders) x.padded = &gd_error_tensor; /* any: they are done */
        return read_attributes(&x);
    }
    return GD_OK;
}

static gd_status call(loading *x) {
    gd_tensors out = gd_op_call(x->op, (gd_tensors){x->in, x->n_in}, x->attrs);
    if (out.count < 1) return gd_failure();
    for (size_t k = 0; k < gd_pb_count(x->node, "output"); k++) {
        if (k < (size_t)out.count) GD_TRY(gd_onnx_set_output(x->l, x->node, k, out.at[k]));
        else if (*gd_pb_string_at(x->node, "output", k))
            return gd_fail(GD_E_UNSUPPORTED, "it has %zu outputs; %lld are possible here",
                           gd_pb_count(x->node, "output"), (long long)out.count);
    }
    return GD_OK;
}

gd_status gd_onnx_load_row(gd_onnx_loader *l, const gd_pb *node, const gd_onnx_row *row,
                           gd_tensor *padded, bool *fits) {
    loading *x = gd_calloc(1, sizeof *x);
    if (!x) return gd_fail(GD_E_MEMORY, "no memory to load a graph");
    *x = (loading){.l = l, .node = node, .row = row, .op = gd_op_find(row->op), .padded = padded};
    x->attrs = gd_attrs_new(x->op);
    *fits = true;
    gd_status status = x->attrs ? GD_OK : GD_E_MEMORY;
    if (status == GD_OK && all_named(x, fits) && fixed_fit(x, fits) && outputs_fit(x, fits)) {
        status = read_inputs(x, fits);
        if (status == GD_OK && *fits) status = apply_conditions(x, fits);
        if (status == GD_OK && *fits) status = read_attributes(x);
        if (status == GD_OK && *fits) status = keep_dtype(x);
        if (status == GD_OK && *fits) status = call(x);
    }
    gd_free(x);
    return status;
}

/* --- nodes of our own domain ------------------------------------------------------------------ */

gd_status gd_onnx_load_own(gd_onnx_loader *l, const gd_pb *node) {
    const char *name = gd_pb_string(node, "op_type");
    const gd_op *op = gd_op_find(name);
    const size_t n_in = gd_onnx_input_count(node), n_out = gd_pb_count(node, "output");
    if (!op || op->base || (op->flags & GD_OP_CALLS)) /* a file calls nothing of the program */
        return gd_fail(GD_E_UNSUPPORTED, "there is no op '%.60s' in this library", name);
    if (n_in > GD_MAX_VARIADIC || n_out > GD_MAX_VARIADIC)
        return gd_fail(GD_E_FORMAT, "it has too many inputs or outputs");
    gd_attrs *attrs = gd_attrs_new(op);
    if (!attrs) return GD_E_MEMORY;
    for (size_t i = 0; i < gd_pb_count(node, "attribute"); i++) {
        const gd_pb *a = gd_pb_message_at(node, "attribute", i);
        gd_onnx_attribute row = {.twice = false};
        const gd_op_attr *option = gd_onnx_option(op, gd_pb_string(a, "name"));
        if (!option)
            return gd_fail(GD_E_UNSUPPORTED, "%s has no option '%.60s'", op->name,
                           gd_pb_string(a, "name"));
        snprintf(row.onnx, sizeof row.onnx, "%s", option->name);
        GD_TRY(set_option(attrs, &row, option, a));
    }
    for (int i = 0; i < op->n_attrs; i++)
        if (op->attrs[i].required && !gd_onnx_attribute_of(node, op->attrs[i].name))
            return gd_fail(GD_E_FORMAT, "it needs the attribute '%s'", op->attrs[i].name);
    gd_tensor *in[GD_MAX_VARIADIC] = {NULL}, *out[GD_MAX_VARIADIC] = {NULL};
    gd_status status = GD_OK;
    for (size_t i = 0; i < n_in && status == GD_OK; i++)
        in[i] = gd_onnx_get_input(l, node, i, &status);
    GD_TRY(status);
    const bool variadic = op->n_outputs > 0 && op->outputs[op->n_outputs - 1].variadic;
    gd_tensors list = {NULL, 0};
    if (variadic) { /* all others with the hidden outputs, which another node may read */
        list = gd_op_call(op, (gd_tensors){in, (int64_t)n_in}, attrs);
        if (list.count < 1) return gd_failure();
    } else {
        if (n_out > (size_t)op->n_outputs)
            return gd_fail(GD_E_FORMAT, "it has %zu outputs; %s has %d", n_out, op->name,
                           op->n_outputs);
        GD_TRY(gd_dispatch(op, NULL, in, n_in < (size_t)op->n_inputs ? op->n_inputs : (int)n_in,
                           op->n_attrs ? gd_attrs_data(attrs) : NULL, out, op->n_outputs));
    }
    for (size_t k = 0; k < n_out; k++) {
        if (variadic && k >= (size_t)list.count)
            return gd_fail(GD_E_FORMAT, "it has %zu outputs; %lld are there", n_out,
                           (long long)list.count);
        gd_tensor *t = variadic ? list.at[k] : out[k];
        if (t) GD_TRY(gd_onnx_set_output(l, node, k, t));
    }
    return GD_OK;
}
