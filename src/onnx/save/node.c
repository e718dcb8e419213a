/* node.c - one call of an op as nodes of an ONNX file. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/copy.h"
#include "core/integer.h"
#include "core/number.h"
#include "graph/lower/program.h"
#include "onnx/save/save.h"
#include "ops/call.h"

/* --- attributes ------------------------------------------------------------------------------- */

enum { FLOAT = 1, INT = 2, STRING = 3, TENSOR = 4, GRAPH = 5, INTS = 7, STRINGS = 8 };

static gd_pb *put_attribute(gd_pb *node, const char *name, int type) {
    gd_pb *a = gd_pb_put_message(node, "attribute");
    gd_pb_put_string(a, "name", name);
    gd_pb_put_int(a, "type", type);
    return a;
}

void gd_onnx_put_int(gd_pb *node, const char *name, int64_t value) {
    gd_pb_put_int(put_attribute(node, name, INT), "i", value);
}

void gd_onnx_put_float(gd_pb *node, const char *name, double value) {
    gd_pb_put_float(put_attribute(node, name, FLOAT), "f", value);
}

void gd_onnx_put_ints(gd_pb *node, const char *name, int count, const int64_t *values) {
    gd_pb *a = put_attribute(node, name, INTS);
    for (int i = 0; i < count; i++) gd_pb_put_int(a, "ints", values[i]);
}

void gd_onnx_put_string(gd_pb *node, const char *name, const char *value) {
    gd_pb_put_string(put_attribute(node, name, STRING), "s", value);
}

void gd_onnx_put_strings(gd_pb *node, const char *name, int count, const char *const *values) {
    gd_pb *a = put_attribute(node, name, STRINGS);
    for (int i = 0; i < count; i++) gd_pb_put_string(a, "strings", values[i]);
}

gd_pb *gd_onnx_put_graph(gd_pb *node, const char *name) {
    return gd_pb_put_message(put_attribute(node, name, GRAPH), "g");
}

/* A number that no float has exactly: a tensor of rank 0. */
static void put_double(gd_pb *node, const char *name, double value) {
    gd_pb *t = gd_pb_put_message(put_attribute(node, name, TENSOR), "t");
    gd_pb_put_int(t, "data_type", gd_onnx_type_of(GD_F64));
    gd_pb_put_float(t, "double_data", value);
}

/* --- lists ------------------------------------------------------------------------------------ */

static int whole_axis(int64_t axis, int rank) { return (int)(axis < 0 ? axis + rank : axis); }

/* Where a slice without start or stop begins and ends depends on its direction. */
static bool runs_back(const gd_onnx_call *c) {
    const gd_op_attr *step = gd_onnx_option(c->op, "step");
    int64_t value = 1;
    return step && gd_onnx_numbers(step, c->attrs, &value) == 1 && value < 0;
}

/* padding: (left, right) of the last axis, then of the one before it; pads: all lefts, all rights.
 */
static int sides_of(int rank, int count, int64_t *numbers) {
    int64_t pads[2 * GD_MAX_RANK] = {0};
    for (int k = 0; k + 1 < count && k / 2 < rank; k += 2) {
        pads[rank - 1 - k / 2] = numbers[k];
        pads[2 * rank - 1 - k / 2] = numbers[k + 1];
    }
    memcpy(numbers, pads, sizeof *pads * 2 * (size_t)rank);
    return 2 * rank;
}

int gd_onnx_list_to(const gd_onnx_call *c, const char *how, const gd_op_attr *attr,
                    int64_t *numbers) {
    int count = gd_onnx_numbers(attr, c->attrs, numbers);
    if (strcmp(how, "keep") == 0) {
        for (int i = 0; i < count; i++)
            if (numbers[i] < 0) numbers[i] = 1;
    } else if (strcmp(how, "first") == 0 && count < 0) {
        numbers[0] = runs_back(c) ? INT64_MAX : 0;
        count = 1;
    } else if (strcmp(how, "last") == 0 && count < 0) {
        numbers[0] = runs_back(c) ? INT64_MIN : INT64_MAX;
        count = 1;
    } else if (strcmp(how, "pieces") == 0) {
        int64_t axis = 0;
        gd_onnx_numbers(gd_onnx_option(c->op, "axis"), c->attrs, &axis);
        count = c->n_out < GD_ONNX_MOST_NUMBERS ? c->n_out : GD_ONNX_MOST_NUMBERS;
        for (int k = 0; k < count; k++)
            numbers[k] = c->out[k].dims[whole_axis(axis, c->out[k].rank)];
    } else if (strcmp(how, "sides") == 0) {
        count = sides_of(c->in[0].rank, count, numbers);
    } else if (strcmp(how, "same") ==
               0) { /* half of what the window is wider; what is odd is behind */
        int64_t dilation[GD_MAX_RANK];
        count = gd_onnx_numbers(gd_onnx_option(c->op, "dilation"), c->attrs, dilation);
        for (int i = 0; i < count; i++) {
            const int64_t wide = dilation[i] * (c->in[1].dims[2 + i] - 1);
            numbers[i] = wide / 2;
            numbers[count + i] = wide - wide / 2;
        }
        count *= 2;
    } else if (strcmp(how, "places") == 0) { /* axes, none of them counted from the end */
        for (int i = 0; i < count; i++) numbers[i] = whole_axis(numbers[i], c->in[0].rank);
    } else if (strcmp(how, "behind") == 0) { /* how many of the last axes */
        numbers[0] = -(int64_t)(count >= 0                        ? count
                                : c->n_in > 1 && c->in[1].present ? c->in[1].rank
                                                                  : 1);
        count = 1;
    }
    return count;
}

/* --- whether a row fits ----------------------------------------------------------------------- */

/* Whether it is, in *is. The status is that of the memory for it. */
static gd_status option_is(const gd_op *op, const void *attrs, const char *name, const char *text,
                           bool *is) {
    const gd_op_attr *a = gd_onnx_option(op, name);
    *is = false;
    if (!a) return GD_OK;
    gd_scope *scope = gd_scope_open();
    gd_attrs *wanted = gd_attrs_new(op);
    const gd_status status = wanted ? gd_attrs_put_text(wanted, name, text) : GD_E_MEMORY;
    bool same = status == GD_OK;
    if (same) {
        const char *mine = (const char *)attrs + a->offset,
                   *other = (const char *)gd_attrs_data(wanted) + a->offset;
        int64_t x[GD_MAX_RANK], y[GD_MAX_RANK];
        switch (a->type) {
        case GD_ATTR_NUMBER:
            same = gd_number_equal(*(const gd_number *)mine, *(const gd_number *)other);
            break;
        case GD_ATTR_FLOAT: {
            const double p = *(const double *)mine, q = *(const double *)other;
            same = p == q || (isnan(p) && isnan(q));
            break;
        }
        case GD_ATTR_BOOL: same = *(const bool *)mine == *(const bool *)other; break;
        case GD_ATTR_WORD: same = *(const gd_word *)mine == *(const gd_word *)other; break;
        case GD_ATTR_DTYPE: same = *(const gd_dtype *)mine == *(const gd_dtype *)other; break;
        default: {
            const int n = gd_onnx_numbers(a, attrs, x),
                      m = gd_onnx_numbers(a, gd_attrs_data(wanted), y);
            same = n == m && (n < 0 || memcmp(x, y, sizeof *x * (size_t)n) == 0);
        }
        }
    }
    gd_scope_close(&scope);
    *is = same;
    return status == GD_E_MEMORY ? status : GD_OK;
}

static bool input_is(const gd_onnx_call *c, const gd_onnx_condition *when) {
    const int i = gd_onnx_input_index(c->op, when->name);
    if (i < 0 || i >= c->n_in || !c->in[i].present) return false;
    const gd_slot *x = &c->in[i];
    switch (when->kind) {
    case GD_ONNX_RANK_IS: return x->rank == atoi(when->value);
    case GD_ONNX_RANK_ABOVE: return x->rank > atoi(when->value);
    case GD_ONNX_IS_INT: return gd_dtype_is_int((gd_dtype)x->dtype);
    case GD_ONNX_IS_DTYPE: return strcmp(gd_dtype_name((gd_dtype)x->dtype), when->value) == 0;
    case GD_ONNX_SAME_RANK: {
        const int other = gd_onnx_input_index(c->op, when->value);
        return other >= 0 && other < c->n_in && c->in[other].rank == x->rank;
    }
    default: return gd_dtype_is_float((gd_dtype)x->dtype);
    }
}

/* Nobody reads an output that ONNX does not have. */
static bool hidden_unused(const gd_onnx_call *c) {
    for (int k = 0; k < c->op->n_outputs && k < c->n_out; k++)
        if (c->op->outputs[k].hidden && (c->used >> k & 1)) return false;
    return true;
}

/* What stands for an input that is absent: one number for each channel of x, or, for layer_norm,
 * for each place in its last axes. False where that is not known. */
static bool fill_dims(const gd_onnx_call *c, gd_shape *dims) {
    const gd_slot *x = &c->in[0];
    *dims = (gd_shape){.rank = 1, .form = 1, .at = {x->rank > 1 ? x->dims[1] : 1}};
    const gd_op_attr *normalized = gd_onnx_option(c->op, "normalized_dims");
    if (normalized) {
        int64_t behind[GD_MAX_RANK];
        gd_onnx_list_to(c, "behind", normalized, behind);
        dims->rank = (int)-behind[0];
        for (int i = 0; i < dims->rank; i++) dims->at[i] = x->dims[x->rank - dims->rank + i];
    }
    for (int i = 0; i < dims->rank; i++)
        if (dims->at[i] == GD_UNKNOWN) return false;
    return true;
}

static gd_status row_fits(const gd_onnx_call *c, const gd_onnx_row *row, bool *fits) {
    gd_onnx_condition when;
    gd_onnx_input input;
    gd_shape dims;
    *fits = false;
    if (row->body || !hidden_unused(c)) return GD_OK;
    /* ONNX does no arithmetic with bools */
    if ((c->op->flags & GD_OP_ELEMENTWISE) && !(c->op->flags & GD_OP_TRUTH) && !row->cast &&
        c->out[0].dtype == GD_BOOL && !gd_op_copies(c->op))
        return GD_OK;
    for (const char *text = row->inputs; gd_onnx_next_input(&text, &input);) {
        const int i = input.filled ? gd_onnx_input_index(c->op, input.ours) : -1;
        if (i >= 0 && (i >= c->n_in || !c->in[i].present) && !fill_dims(c, &dims)) return GD_OK;
    }
    for (const char *text = row->when; gd_onnx_next_condition(&text, &when);) {
        bool holds = false;
        if (when.kind == GD_ONNX_OPTION)
            GD_TRY(option_is(c->op, c->attrs, when.name, when.value, &holds));
        else holds = input_is(c, &when);
        if (!holds) return GD_OK;
    }
    *fits = !row->fits || row->fits(c);
    return GD_OK;
}

/* --- inputs ----------------------------------------------------------------------------------- */

static const char *cast_input(gd_onnx_saver *s, const gd_onnx_call *c, const char *name,
                              gd_dtype from, gd_dtype to) {
    if (from == to || to == GD_DTYPE_NONE) return name;
    const char *result = gd_onnx_unique_name(s, c->label, "/cast");
    if (!result) return NULL;
    gd_pb *node = gd_onnx_add_node(s, "Cast", "", result);
    gd_pb_put_string(node, "input", name);
    gd_pb_put_string(node, "output", result);
    gd_onnx_put_int(node, "to", gd_onnx_type_of(to));
    return result;
}

/* What the inputs' dtypes make together. */
static gd_dtype promoted(const gd_onnx_call *c) {
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

static gd_dtype not_bool(gd_dtype dtype) { return dtype == GD_BOOL ? GD_I32 : dtype; }

static gd_dtype cast_target(const gd_onnx_call *c, const gd_onnx_row *row, int i) {
    const char *letters = row->cast;
    if (!letters && (c->op->flags & GD_OP_ELEMENTWISE))
        letters = c->op->flags & GD_OP_TRUTH ? "o" : "y";
    if (!letters) return GD_DTYPE_NONE;
    const int last = (int)strlen(letters) - 1;
    switch (letters[i < last ? i : last]) {
    case 'y': return (gd_dtype)c->out[0].dtype;
    case 'b': return GD_BOOL;
    case 'i': return c->in[i].dtype == GD_I32 || c->in[i].dtype == GD_I64 ? GD_DTYPE_NONE : GD_I64;
    case 'p': return promoted(c);
    case 'o': return not_bool(promoted(c)); /* ONNX orders no bools */
    case 'w': return c->in[i].dtype == GD_BF16 ? GD_F32 : GD_DTYPE_NONE;
    default: return GD_DTYPE_NONE;
    }
}

/* Ones or zeros. */
static gd_status fill_input(gd_onnx_saver *s, const gd_onnx_call *c, double value,
                            const char **name) {
    const gd_slot *x = &c->in[0];
    gd_shape dims;
    if (!fill_dims(c, &dims))
        return gd_fail(GD_E_STATE, "%s: the number of its channels is not known", c->label);
    *name = gd_onnx_unique_name(s, c->label, value ? "/ones" : "/zeros");
    if (!*name) return GD_E_MEMORY;
    gd_tensor *t = gd_empty(dims, (gd_dtype)x->dtype);
    if (gd_tensor_is_error(t)) return gd_failure();
    const int64_t n = gd_numel(t->rank, t->dims);
    char *data = gd_data(t);
    for (int64_t i = 0; i < n && data; i++)
        gd_store_f64((gd_dtype)t->dtype, data + (size_t)i * gd_dtype_bytes(t->dtype), value);
    return gd_onnx_add_tensor(s, *name, t);
}

/* A limit that the dtype cannot hold is the last number that it can. */
static void store_limit(gd_dtype dtype, void *bytes, gd_number value) {
    if (dtype == GD_I64) gd_store_i64(dtype, bytes, gd_number_i64(value));
    else gd_store_f64(dtype, bytes, value.value);
}

/* A tensor of rank 0: whole numbers as i64, others as x has them. NULL in *name: not given. */
static gd_status number_input(gd_onnx_saver *s, const gd_onnx_call *c, const gd_op_attr *a,
                              const char **name) {
    *name = NULL;
    if (a->type == GD_ATTR_FLOAT || a->type == GD_ATTR_NUMBER) {
        const gd_number number = gd_attr_number(a, c->attrs);
        const double value = number.value;
        char bytes[8];
        const gd_dtype dtype = (gd_dtype)c->out[0].dtype;
        const double usual = gd_attr_number(a, c->op->defaults).value;
        if (isnan(value) || (isinf(value) && value == usual)) return GD_OK; /* no limit */
        store_limit(dtype, bytes, number);
        *name = gd_onnx_add_constant(s, c->label, dtype, 0, NULL, bytes);
    } else {
        int64_t value;
        if (gd_onnx_numbers(a, c->attrs, &value) < 1) return GD_OK;
        *name = gd_onnx_add_constant(s, c->label, GD_I64, 0, NULL, &value);
    }
    return *name ? GD_OK : GD_E_MEMORY;
}

/* The name of one of ONNX's inputs; NULL: absent. */
static gd_status one_input(gd_onnx_saver *s, const gd_onnx_call *c, const gd_onnx_row *row,
                           const gd_onnx_input *input, const char **name) {
    *name = NULL;
    if (input->kind == GD_ONNX_TENSOR) {
        const int i = gd_onnx_input_index(c->op, input->ours);
        if (i >= 0 && i < c->n_in && c->in_names[i]) {
            *name =
                cast_input(s, c, c->in_names[i], (gd_dtype)c->in[i].dtype, cast_target(c, row, i));
            return *name ? GD_OK : GD_E_MEMORY;
        }
        return input->filled ? fill_input(s, c, input->fill, name) : GD_OK;
    }
    const gd_op_attr *a = gd_onnx_option(c->op, input->ours);
    if (!a) return gd_fail(GD_E_STATE, "%s has no option '%s'", c->op->name, input->ours);
    if (input->kind == GD_ONNX_NUMBER) return number_input(s, c, a, name);
    int64_t numbers[GD_ONNX_MOST_NUMBERS];
    const int count = gd_onnx_list_to(c, input->how, a, numbers);
    if (count < 0) return GD_OK;
    *name = gd_onnx_add_constant(s, c->label, GD_I64, 1, &(int64_t){count}, numbers);
    return *name ? GD_OK : GD_E_MEMORY;
}

enum { MOST_INPUTS = GD_MAX_VARIADIC + 16, MOST_WIDE = 4 };

/* All of ONNX's inputs; those that are absent at the end are left out. */
static gd_status all_inputs(gd_onnx_saver *s, const gd_onnx_call *c, const gd_onnx_row *row,
                            const char **names, int *count) {
    int n = 0;
    gd_onnx_input input;
    if (row->inputs) {
        for (const char *text = row->inputs; gd_onnx_next_input(&text, &input) && n < MOST_INPUTS;)
            GD_TRY(one_input(s, c, row, &input, &names[n++]));
    } else {
        for (; n < c->n_in && n < MOST_INPUTS; n++) {
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

/* --- by a row --------------------------------------------------------------------------------- */

/* Another name for a word: of ",ours:onnx,ours:onnx". */
static const char *rename_word(const char *words, const char *word, char renamed[GD_ONNX_WORD]) {
    const size_t length = strlen(word);
    for (const char *at = words; at && *at; at = strchr(at + 1, ','))
        if (strncmp(at + 1, word, length) == 0 && at[length + 1] == ':') {
            const char *to = at + length + 2;
            snprintf(renamed, GD_ONNX_WORD, "%.*s", (int)strcspn(to, ","), to);
            return renamed;
        }
    return word;
}

static void put_option(gd_pb *node, const gd_onnx_call *c, const gd_onnx_attribute *a,
                       const gd_op_attr *option) {
    const char *field = (const char *)c->attrs + option->offset;
    char word[GD_ONNX_WORD], renamed[GD_ONNX_WORD];
    int64_t numbers[2 * GD_ONNX_MOST_NUMBERS];
    int count;
    switch (option->type) {
    case GD_ATTR_FLOAT:
    case GD_ATTR_NUMBER: /* its first field is a double */
        if (!isnan(*(const double *)field))
            gd_onnx_put_float(node, a->onnx, *(const double *)field);
        break;
    case GD_ATTR_BOOL: gd_onnx_put_int(node, a->onnx, *(const bool *)field); break;
    case GD_ATTR_DTYPE:
        if (*(const gd_dtype *)field)
            gd_onnx_put_int(node, a->onnx, gd_onnx_type_of(*(const gd_dtype *)field));
        break;
    case GD_ATTR_WORD:
        gd_onnx_word(option, *(const gd_word *)field, word);
        gd_onnx_put_string(node, a->onnx, rename_word(a->words, word, renamed));
        break;
    case GD_ATTR_STRING:
        if (*(const char *const *)field)
            gd_onnx_put_string(node, a->onnx, *(const char *const *)field);
        break;
    default:
        count = gd_onnx_list_to(c, a->how, option, numbers);
        if (count < 0 && a->instead[0])
            count = gd_onnx_numbers(gd_onnx_option(c->op, a->instead), c->attrs, numbers);
        if (count < 0) break;
        if (a->twice) memcpy(numbers + count, numbers, sizeof *numbers * (size_t)count), count *= 2;
        if (option->type == GD_ATTR_INT || strcmp(a->how, "behind") == 0)
            gd_onnx_put_int(node, a->onnx, numbers[0]);
        else gd_onnx_put_ints(node, a->onnx, count, numbers);
    }
}

static void put_fixed(gd_pb *node, const gd_onnx_attribute *a) {
    if (strcmp(a->fixed, a->otherwise) == 0) return;
    if (strchr(a->fixed, '.')) gd_onnx_put_float(node, a->onnx, gd_double_parse(a->fixed, NULL));
    else if (a->fixed[0] >= '0' && a->fixed[0] <= '9')
        gd_onnx_put_int(node, a->onnx, atoi(a->fixed));
    else gd_onnx_put_string(node, a->onnx, a->fixed);
}

static void put_outputs(gd_pb *node, const gd_onnx_call *c) {
    for (int k = 0; k < c->n_out; k++) {
        const gd_op_param *param = &c->op->outputs[k < c->op->n_outputs ? k : c->op->n_outputs - 1];
        if (!param->hidden) gd_pb_put_string(node, "output", c->out_names[k]);
    }
}

/* The same in f32, and its first result cast back. */
static gd_status save_wide(gd_onnx_saver *s, const gd_onnx_call *c, const gd_onnx_row *row) {
    gd_slot out[MOST_WIDE];
    const char *names[MOST_WIDE];
    gd_onnx_call wide = *c;
    if (c->n_out > MOST_WIDE)
        return gd_fail(GD_E_UNSUPPORTED, "%s has %d results", c->label, c->n_out);
    memcpy(out, c->out, (size_t)c->n_out * sizeof *out);
    memcpy(names, c->out_names, (size_t)c->n_out * sizeof *names);
    out[0].dtype = GD_F32;
    names[0] = gd_onnx_unique_name(s, c->label, "/wide");
    if (!names[0]) return GD_E_MEMORY;
    wide.out = out;
    wide.out_names = names;
    wide.label = names[0];
    GD_TRY(gd_onnx_save_by_row(s, &wide, row));
    gd_pb *node = gd_onnx_add_node(s, "Cast", "", c->out_names[0]);
    gd_pb_put_string(node, "input", names[0]);
    gd_pb_put_string(node, "output", c->out_names[0]);
    gd_onnx_put_int(node, "to", gd_onnx_type_of(GD_BF16));
    return GD_OK;
}

gd_status gd_onnx_save_by_row(gd_onnx_saver *s, const gd_onnx_call *c, const gd_onnx_row *row) {
    const char *inputs[MOST_INPUTS];
    int count = 0;
    if (row->cast && row->cast[0] == 'w' && c->out[0].dtype == GD_BF16) return save_wide(s, c, row);
    GD_TRY(all_inputs(s, c, row, inputs, &count));
    gd_pb *node = gd_onnx_add_node(s, row->name ? row->name : c->op->onnx, "", c->label);
    for (int i = 0; i < count; i++) gd_pb_put_string(node, "input", inputs[i] ? inputs[i] : "");
    put_outputs(node, c);
    gd_onnx_attribute a;
    if (!row->attributes && !row->inputs) { /* a record by itself: options have ONNX's names */
        for (int i = 0; i < c->op->n_attrs && !row->when; i++) {
            a = (gd_onnx_attribute){.twice = false};
            snprintf(a.onnx, sizeof a.onnx, "%s", c->op->attrs[i].name);
            put_option(node, c, &a, &c->op->attrs[i]);
        }
        return GD_OK;
    }
    for (const char *text = row->attributes; gd_onnx_next_attribute(&text, &a);) {
        const gd_op_attr *option = a.ours[0] ? gd_onnx_option(c->op, a.ours) : NULL;
        if (option) put_option(node, c, &a, option);
        else if (a.fixed[0]) put_fixed(node, &a);
    }
    return GD_OK;
}

/* --- as it is --------------------------------------------------------------------------------- */

static void put_own_option(gd_pb *node, const gd_op_attr *option, const void *attrs) {
    const char *field = (const char *)attrs + option->offset;
    char word[GD_ONNX_WORD];
    int64_t numbers[GD_ONNX_MOST_NUMBERS];
    int count;
    switch (option->type) {
    case GD_ATTR_NUMBER:
    case GD_ATTR_FLOAT: {
        const gd_number number = gd_attr_number(option, attrs);
        const double value = number.value;
        if (fabs(value) >= 0x1p53 &&
            (double)number.whole == value) { /* an integer that no double holds */
            gd_onnx_put_int(node, option->name, number.whole);
            break;
        }
        if (isnan(value)) {
            if (option->required) gd_onnx_put_string(node, option->name, "none");
            break;
        }
        if (gd_float_shortest((float)value) == value) gd_onnx_put_float(node, option->name, value);
        else put_double(node, option->name, value);
        break;
    }
    case GD_ATTR_BOOL: gd_onnx_put_int(node, option->name, *(const bool *)field); break;
    case GD_ATTR_DTYPE:
        if (*(const gd_dtype *)field)
            gd_onnx_put_string(node, option->name, gd_dtype_name(*(const gd_dtype *)field));
        break;
    case GD_ATTR_WORD:
        gd_onnx_put_string(node, option->name, gd_onnx_word(option, *(const gd_word *)field, word));
        break;
    case GD_ATTR_STRING:
        if (*(const char *const *)field)
            gd_onnx_put_string(node, option->name, *(const char *const *)field);
        break;
    default:
        count = gd_onnx_numbers(option, attrs, numbers);
        if (count >= 0) gd_onnx_put_ints(node, option->name, count, numbers);
        else if (option->required) gd_onnx_put_string(node, option->name, "none");
    }
}

/* A node of the domain "gradus": the op's name, its options, and all its outputs. */
static gd_status save_own(gd_onnx_saver *s, const gd_onnx_call *c) {
    if (gd_op_find(c->op->name) != c->op)
        return gd_fail(GD_E_UNSUPPORTED,
                       "%s: %s has no ONNX form and no name that another program knows", c->label,
                       c->op->name);
    if (c->op->flags & GD_OP_CALLS)
        return gd_fail(GD_E_UNSUPPORTED,
                       "'%s' calls a function of the program (gd_apply), which no file can hold; "
                       "save a graph that does "
                       "without it, or define an op (gd_op_define)",
                       c->label);
    if (!s->own_ops && (c->op->flags & GD_OP_WHOLE))
        return gd_fail(
            GD_E_UNSUPPORTED,
            "'%s' is %s, which waits for sizes that only a run tells, and ONNX has no operator for "
            "that. A graph whose placeholders have known sizes can be saved; with .own_ops = true "
            "this one becomes a node of the domain \"gradus\", which this library alone reads",
            c->label, c->op->name);
    if (!s->own_ops)
        return gd_fail(
            GD_E_UNSUPPORTED,
            "'%s' is %s, which ONNX has no operator for; with .own_ops = true it becomes "
            "a node of the domain \"gradus\", which this library alone reads",
            c->label, c->op->name);
    gd_pb *node = gd_onnx_add_node(s, c->op->name, "gradus", c->label);
    for (int i = 0; i < c->n_in; i++)
        gd_pb_put_string(node, "input", c->in_names[i] ? c->in_names[i] : "");
    for (int k = 0; k < c->n_out; k++) gd_pb_put_string(node, "output", c->out_names[k]);
    for (int i = 0; i < c->op->n_attrs && c->attrs; i++)
        put_own_option(node, &c->op->attrs[i], c->attrs);
    return GD_OK;
}

/* --- all ways --------------------------------------------------------------------------------- */

/* What takes nothing and is the same each time is computed now. */
static bool is_constant(const gd_onnx_call *c) {
    return c->n_in == 0 && c->n_out == 1 &&
           !(c->op->flags & (GD_OP_RANDOM | GD_OP_DYNAMIC | GD_OP_WHOLE | GD_OP_CALLS));
}

static gd_status save_constant(gd_onnx_saver *s, const gd_onnx_call *c) {
    gd_tensor *value = NULL;
    GD_TRY(gd_dispatch(c->op, NULL, NULL, 0, c->attrs, &value, 1));
    return gd_onnx_add_tensor(s, c->out_names[0], value);
}

enum { MOST_BODIES = 16 };

static bool writes(const gd_onnx_call *c) {
    for (int i = 0; i < c->op->n_inputs && i < c->n_in; i++)
        if (c->op->inputs[i].mutated && c->in[i].present) return true;
    return false;
}

gd_status gd_onnx_save_call(gd_onnx_saver *s, const gd_onnx_call *c, int depth) {
    /* the body of a random op that has a kernel draws from a key, which ONNX does not have */
    const bool draws = (c->op->flags & GD_OP_RANDOM) && c->op->reference;
    void (*body)(gd_expand *) = draws ? NULL : c->op->expand;
    gd_onnx_row own;
    bool done = false, fits = false;
    if (gd_onnx_is_control(c->op)) return gd_onnx_save_control(s, c);
    if (is_constant(c)) return save_constant(s, c);
    for (int i = 0; i < gd_onnx_row_count; i++) {
        const gd_onnx_row *row = &gd_onnx_rows[i];
        if (!row->op || strcmp(row->op, c->op->name) != 0) continue;
        if (row->body) body = row->body;
        GD_TRY(row_fits(c, row, &fits));
        if (!fits) continue;
        if (!row->save) return gd_onnx_save_by_row(s, c, row);
        GD_TRY(row->save(s, c, &done));
        if (done) return GD_OK;
    }
    fits = false;
    if (gd_onnx_own_row(c->op, &own)) GD_TRY(row_fits(c, &own, &fits));
    if (fits) return gd_onnx_save_by_row(s, c, &own);
    if (c->op->ir) GD_TRY(gd_onnx_save_expression(s, c, &done));
    /* a body's writes are to no variable, and a gradient's body has no way from x to y */
    if (!done && body && depth < MOST_BODIES && !writes(c) && !(c->op->flags & GD_OP_WHOLE))
        GD_TRY(gd_onnx_expand(s, c, body, depth, &done));
    return done ? GD_OK : save_own(s, c);
}
