/* row.c - saves a call as one node, by a row.
 *
 * Order: whether a row fits a call; the node's inputs; its attributes; the node.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/copy.h"
#include "core/integer.h"
#include "core/number.h"
#include "graph/build/options.h"
#include "graph/lower/program.h"
#include "onnx/save/save.h"
#include "dispatch/call.h"

/* --- whether a row fits ----------------------------------------------------------------------- */

/* Whether an option has the value that a text describes. Fails only if memory runs out. */
static gd_status option_is(const gd_op *op, const void *attrs, const char *name, const char *text,
                           bool *is) {
    const gd_op_attr *a = gd_onnx_find_option(op, name);
    *is = false;
    if (!a) return GD_OK;
    gd_scope *scope = gd_scope_open();
    gd_attrs *expected = gd_attrs_new(op);
    const gd_status status = expected ? gd_attrs_put_text(expected, name, text) : GD_E_MEMORY;
    bool same = status == GD_OK;
    if (same) {
        const void *x = (const char *)attrs + a->offset,
                   *y = (const char *)gd_attrs_data(expected) + a->offset;
        same = gd_same_option(a, x, y);
        if (a->type == GD_ATTR_FLOAT) { /* any NaN means "not given" */
            const double p = *(const double *)x, q = *(const double *)y;
            same = p == q || (isnan(p) && isnan(q));
        }
    }
    gd_scope_close(&scope);
    *is = same;
    return status == GD_E_MEMORY ? status : GD_OK;
}

static bool input_fits(const gd_onnx_call *c, const gd_operator_condition *when) {
    const int i = gd_onnx_input_index(c->op, when->name);
    if (i < 0 || i >= c->n_in || !c->in[i].present) return false;
    const gd_slot *x = &c->in[i];
    switch (when->kind) {
    case GD_OPERATOR_RANK_IS: return x->rank == atoi(when->value);
    case GD_OPERATOR_RANK_ABOVE: return x->rank > atoi(when->value);
    case GD_OPERATOR_IS_INT: return gd_dtype_is_int((gd_dtype)x->dtype);
    case GD_OPERATOR_IS_DTYPE: return strcmp(gd_dtype_name((gd_dtype)x->dtype), when->value) == 0;
    case GD_OPERATOR_SAME_RANK: {
        const int other = gd_onnx_input_index(c->op, when->value);
        return other >= 0 && other < c->n_in && c->in[other].rank == x->rank;
    }
    default: return gd_dtype_is_float((gd_dtype)x->dtype);
    }
}

/* Whether no node reads the hidden outputs, which ONNX does not have. */
static bool hides_outputs(const gd_onnx_call *c) {
    for (int k = 0; k < c->op->n_outputs && k < c->n_out; k++)
        if (c->op->outputs[k].hidden && (c->used >> k & 1)) return false;
    return true;
}

/* The shape of a fill for an absent input: the channels of x, or the normalized axes of layer_norm.
 * False if it is not known. */
static bool fill_shape(const gd_onnx_call *c, gd_shape *dims) {
    const gd_slot *x = &c->in[0];
    if (c->n_in < 1 || !x->present) return false;
    *dims = (gd_shape){.rank = 1, .form = 1, .at = {x->rank > 1 ? x->dims[1] : 1}};
    const gd_op_attr *normalized = gd_onnx_find_option(c->op, "normalized_dims");
    if (normalized) {
        int64_t first[GD_MAX_RANK]; /* axis, negative */
        gd_onnx_convert_list(c, "trailing_axes", normalized, first);
        dims->rank = (int)-first[0];
        if (dims->rank > x->rank) return false;
        for (int i = 0; i < dims->rank; i++) dims->at[i] = x->dims[x->rank - dims->rank + i];
    }
    for (int i = 0; i < dims->rank; i++)
        if (dims->at[i] == GD_UNKNOWN) return false;
    return true;
}

gd_status gd_onnx_row_fits(const gd_onnx_call *c, const gd_onnx_row *row, bool *fits) {
    gd_operator_condition when;
    gd_operator_input input;
    gd_shape dims;
    *fits = false;
    if (row->body || !hides_outputs(c) || gd_onnx_draws_from_key(c)) return GD_OK;
    /* ONNX has no arithmetic on bools */
    if ((c->op->flags & GD_OP_ELEMENTWISE) && !(c->op->flags & GD_OP_PREDICATE) && !row->cast &&
        c->out[0].dtype == GD_BOOL && !gd_op_copies(c->op))
        return GD_OK;
    for (const char *text = row->inputs; gd_operator_next_input(&text, &input);) {
        const int i = input.has_fill ? gd_onnx_input_index(c->op, input.ours) : -1;
        if (i >= 0 && (i >= c->n_in || !c->in[i].present) && !fill_shape(c, &dims)) return GD_OK;
    }
    for (const char *text = row->when; gd_operator_next_condition(&text, &when);) {
        bool holds = when.kind == GD_OPERATOR_SAVING;
        if (when.kind == GD_OPERATOR_OPTION)
            GD_TRY(option_is(c->op, c->attrs, when.name, when.value, &holds));
        else if (!holds) holds = input_fits(c, &when);
        if (!holds) return GD_OK;
    }
    *fits = !row->can_save || row->can_save(c);
    return GD_OK;
}

/* --- inputs ----------------------------------------------------------------------------------- */

/* With `to` GD_DTYPE_NONE there is no cast. */
static const char *cast_input(gd_onnx_saver *s, const gd_onnx_call *c, const char *name,
                              gd_dtype from, gd_dtype to) {
    return from == to || to == GD_DTYPE_NONE ? name : gd_onnx_put_cast(s, c->label, name, to, NULL);
}

gd_dtype gd_onnx_promoted_dtype(const gd_onnx_call *c) {
    gd_tensor tensors[8], *at[8];
    int n = 0;
    for (int i = 0; i < c->n_in && n < 8; i++) {
        if (!c->in[i].present) continue;
        tensors[n] = (gd_tensor){.kind = GD_META, .dtype = c->in[i].dtype, .rank = c->in[i].rank};
        at[n] = &tensors[n];
        n++;
    }
    return n ? gd_result_dtype(at, n) : GD_DTYPE_NONE;
}

static gd_dtype without_bool(gd_dtype dtype) { return dtype == GD_BOOL ? GD_I32 : dtype; }

static gd_dtype cast_target(const gd_onnx_call *c, const gd_onnx_row *row, int i) {
    const char *letters = row->cast;
    if (!letters && (c->op->flags & GD_OP_ELEMENTWISE))
        letters = c->op->flags & GD_OP_PREDICATE ? "o" : "y";
    if (!letters) return GD_DTYPE_NONE;
    const int last = (int)strlen(letters) - 1;
    switch (letters[i < last ? i : last]) {
    case 'y': return (gd_dtype)c->out[0].dtype;
    case 'b': return GD_BOOL;
    case 'i': return c->in[i].dtype == GD_I32 || c->in[i].dtype == GD_I64 ? GD_DTYPE_NONE : GD_I64;
    case 'p': return gd_onnx_promoted_dtype(c);
    case 'o': return without_bool(gd_onnx_promoted_dtype(c)); /* ONNX does not order bools */
    case 'w': return c->in[i].dtype == GD_BF16 ? GD_F32 : GD_DTYPE_NONE;
    default: return GD_DTYPE_NONE;
    }
}

/* Adds a tensor of ones or zeros for an absent input. */
static gd_status fill_input(gd_onnx_saver *s, const gd_onnx_call *c, double value,
                            const char **name) {
    const gd_slot *x = &c->in[0];
    gd_shape dims;
    if (!fill_shape(c, &dims))
        return gd_fail(GD_E_STATE, "%s: the number of its channels is unknown", c->label);
    *name = gd_onnx_unique_name(s, c->label, value ? "/ones" : "/zeros");
    if (!*name) return GD_E_MEMORY;
    gd_block device = gd_device_begin(gd_device_get("cpu"));
    gd_tensor *t = gd_empty(dims, (gd_dtype)x->dtype);
    gd_device_end(&device);
    if (gd_tensor_is_error(t)) return gd_failure();
    const int64_t n = gd_numel(t->rank, t->dims);
    char *data = gd_data(t);
    for (int64_t i = 0; i < n; i++)
        gd_store_f64((gd_dtype)t->dtype, data + (size_t)i * gd_dtype_bytes(t->dtype), value);
    return gd_onnx_add_tensor(s, *name, t);
}

/* Adds an option as a tensor of rank 0: i64 for an integer option, else the output's dtype. *name
 * is NULL if the option is not given. */
static gd_status number_input(gd_onnx_saver *s, const gd_onnx_call *c, const gd_op_attr *a,
                              const char **name) {
    *name = NULL;
    if (a->type == GD_ATTR_FLOAT || a->type == GD_ATTR_NUMBER) {
        const gd_number number = gd_attr_number(a, c->attrs);
        const double value = number.value;
        const double by_default = gd_attr_number(a, c->op->defaults).value;
        if (isnan(value) || (isinf(value) && value == by_default)) return GD_OK; /* no limit */
        *name = gd_onnx_add_number(s, c->label, (gd_dtype)c->out[0].dtype, number);
    } else {
        int64_t value;
        if (gd_onnx_option_numbers(a, c->attrs, &value) < 1) return GD_OK;
        *name = gd_onnx_add_constant(s, c->label, GD_I64, 0, NULL, &value);
    }
    return *name ? GD_OK : GD_E_MEMORY;
}

/* The name of an input of the node; NULL: absent. */
static gd_status node_input(gd_onnx_saver *s, const gd_onnx_call *c, const gd_onnx_row *row,
                            const gd_operator_input *input, const char **name) {
    *name = NULL;
    if (input->kind == GD_OPERATOR_TENSOR) {
        const int i = gd_onnx_input_index(c->op, input->ours);
        if (i >= 0 && i < c->n_in && c->in_names[i]) {
            *name =
                cast_input(s, c, c->in_names[i], (gd_dtype)c->in[i].dtype, cast_target(c, row, i));
            return *name ? GD_OK : GD_E_MEMORY;
        }
        return input->has_fill ? fill_input(s, c, input->fill, name) : GD_OK;
    }
    const gd_op_attr *a = gd_onnx_find_option(c->op, input->ours);
    if (!a) return gd_fail(GD_E_STATE, "%s has no option '%s'", c->op->name, input->ours);
    if (input->kind == GD_OPERATOR_NUMBER) return number_input(s, c, a, name);
    int64_t numbers[GD_ONNX_MAX_NUMBERS];
    const int count = gd_onnx_convert_list(c, input->conversion, a, numbers);
    if (count < 0) return GD_OK;
    *name = gd_onnx_add_constant(s, c->label, GD_I64, 1, &(int64_t){count}, numbers);
    return *name ? GD_OK : GD_E_MEMORY;
}

enum { MAX_INPUTS = GD_MAX_VARIADIC + 16, MAX_WIDE = 4 };

/* The names of all inputs of the node, without absent ones at the end. */
static gd_status node_inputs(gd_onnx_saver *s, const gd_onnx_call *c, const gd_onnx_row *row,
                             const char **names, int *count) {
    int n = 0;
    gd_operator_input input;
    if (row->inputs) {
        for (const char *text = row->inputs;
             gd_operator_next_input(&text, &input) && n < MAX_INPUTS;)
            GD_TRY(node_input(s, c, row, &input, &names[n++]));
    } else {
        for (; n < c->n_in && n < MAX_INPUTS; n++) {
            names[n] = c->in_names[n];
            if (!names[n]) continue;
            names[n] = cast_input(s, c, names[n], (gd_dtype)c->in[n].dtype, cast_target(c, row, n));
            if (!names[n]) return GD_E_MEMORY;
        }
    }
    while (n > 0 && !names[n - 1]) n--;
    *count = n;
    return GD_OK;
}

/* --- attributes ------------------------------------------------------------------------------- */

/* Translates a word of the op to ONNX's, by renames ",ours:onnx,ours:onnx". */
static const char *rename_word(const char *renames, const char *word,
                               char renamed[GD_OPERATOR_WORD]) {
    const size_t length = strlen(word);
    for (const char *at = renames; at && *at; at = strchr(at + 1, ','))
        if (strncmp(at + 1, word, length) == 0 && at[length + 1] == ':') {
            const char *to = at + length + 2;
            snprintf(renamed, GD_OPERATOR_WORD, "%.*s", (int)strcspn(to, ","), to);
            return renamed;
        }
    return word;
}

static void put_option(gd_pb *node, const gd_onnx_call *c, const gd_operator_attribute *a,
                       const gd_op_attr *option) {
    const char *field = (const char *)c->attrs + option->offset;
    char word[GD_OPERATOR_WORD], renamed[GD_OPERATOR_WORD];
    int64_t numbers[2 * GD_ONNX_MAX_NUMBERS];
    int count;
    switch (option->type) {
    case GD_ATTR_FLOAT:
    case GD_ATTR_NUMBER: /* its first field is a double */
        if (!isnan(*(const double *)field))
            gd_onnx_put_float(node, a->theirs, *(const double *)field);
        break;
    case GD_ATTR_BOOL: gd_onnx_put_int(node, a->theirs, *(const bool *)field); break;
    case GD_ATTR_DTYPE:
        if (*(const gd_dtype *)field)
            gd_onnx_put_int(node, a->theirs, gd_onnx_type_of(*(const gd_dtype *)field));
        break;
    case GD_ATTR_WORD:
        gd_onnx_word_text(option, *(const gd_word *)field, word);
        gd_onnx_put_string(node, a->theirs, rename_word(a->renames, word, renamed));
        break;
    case GD_ATTR_STRING:
        if (*(const char *const *)field)
            gd_onnx_put_string(node, a->theirs, *(const char *const *)field);
        break;
    default:
        count = gd_onnx_convert_list(c, a->conversion, option, numbers);
        if (count < 0 && a->fallback[0])
            count =
                gd_onnx_option_numbers(gd_onnx_find_option(c->op, a->fallback), c->attrs, numbers);
        if (count < 0) break;
        if (a->twice) memcpy(numbers + count, numbers, sizeof *numbers * (size_t)count), count *= 2;
        if (option->type == GD_ATTR_INT || strcmp(a->conversion, "trailing_axes") == 0)
            gd_onnx_put_int(node, a->theirs, numbers[0]);
        else gd_onnx_put_ints(node, a->theirs, count, numbers);
    }
}

static void put_fixed(gd_pb *node, const gd_operator_attribute *a) {
    if (strcmp(a->fixed, a->their_default) == 0) return;
    if (strchr(a->fixed, '.')) gd_onnx_put_float(node, a->theirs, gd_double_parse(a->fixed, NULL));
    else if (a->fixed[0] >= '0' && a->fixed[0] <= '9')
        gd_onnx_put_int(node, a->theirs, atoi(a->fixed));
    else gd_onnx_put_string(node, a->theirs, a->fixed);
}

/* --- the node --------------------------------------------------------------------------------- */

static void put_outputs(gd_pb *node, const gd_onnx_call *c) {
    for (int k = 0; k < c->n_out; k++) {
        const gd_op_param *param = &c->op->outputs[k < c->op->n_outputs ? k : c->op->n_outputs - 1];
        if (!param->hidden) gd_pb_put_string(node, "output", c->out_names[k]);
    }
}

/* Computes in f32, and casts the first output back to bf16. */
static gd_status save_wide(gd_onnx_saver *s, const gd_onnx_call *c, const gd_onnx_row *row) {
    gd_slot out[MAX_WIDE];
    const char *names[MAX_WIDE];
    gd_onnx_call wide = *c;
    if (c->n_out > MAX_WIDE)
        return gd_fail(GD_E_UNSUPPORTED, "%s has %d results; at most %d are supported", c->label,
                       c->n_out, MAX_WIDE);
    memcpy(out, c->out, (size_t)c->n_out * sizeof *out);
    memcpy(names, c->out_names, (size_t)c->n_out * sizeof *names);
    out[0].dtype = GD_F32;
    names[0] = gd_onnx_unique_name(s, c->label, "/wide");
    if (!names[0]) return GD_E_MEMORY;
    wide.out = out;
    wide.out_names = names;
    wide.label = names[0];
    GD_TRY(gd_onnx_save_row(s, &wide, row));
    return gd_onnx_put_cast(s, c->label, names[0], GD_BF16, c->out_names[0]) ? GD_OK : GD_E_MEMORY;
}

gd_status gd_onnx_save_row(gd_onnx_saver *s, const gd_onnx_call *c, const gd_onnx_row *row) {
    const char *inputs[MAX_INPUTS];
    int count = 0;
    if (row->cast && row->cast[0] == 'w' && c->out[0].dtype == GD_BF16) return save_wide(s, c, row);
    GD_TRY(node_inputs(s, c, row, inputs, &count));
    gd_pb *node = gd_onnx_add_node(s, row->name ? row->name : c->op->onnx.name, "", c->label);
    for (int i = 0; i < count; i++) gd_pb_put_string(node, "input", inputs[i] ? inputs[i] : "");
    put_outputs(node, c);
    gd_operator_attribute a;
    if (!row->attributes && !row->inputs) { /* an implied row: options have ONNX's names */
        for (int i = 0; i < c->op->n_attrs && !row->when; i++) {
            a = (gd_operator_attribute){.twice = false};
            snprintf(a.theirs, sizeof a.theirs, "%s", c->op->attrs[i].name);
            put_option(node, c, &a, &c->op->attrs[i]);
        }
        return GD_OK;
    }
    for (const char *text = row->attributes; gd_operator_next_attribute(&text, &a);) {
        const gd_op_attr *option = a.ours[0] ? gd_onnx_find_option(c->op, a.ours) : NULL;
        if (option) put_option(node, c, &a, option);
        else if (a.fixed[0]) put_fixed(node, &a);
    }
    return GD_OK;
}
