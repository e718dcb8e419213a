/* call.c - saves a call of an op, by the first method that applies (gd_onnx_save_call).
 *
 * Order: nodes of the domain "gradus"; the choice of the method.
 */
#include <math.h>
#include <string.h>

#include "core/number.h"
#include "onnx/save/save.h"
#include "dispatch/call.h"

/* --- nodes of the domain "gradus" ------------------------------------------------------------- */

static void put_own_option(gd_pb *node, const gd_op_attr *option, const void *attrs) {
    const char *field = (const char *)attrs + option->offset;
    char word[GD_OPERATOR_WORD];
    int64_t numbers[GD_ONNX_MAX_NUMBERS];
    int count;
    switch (option->type) {
    case GD_ATTR_NUMBER:
    case GD_ATTR_FLOAT: {
        const gd_number number = gd_attr_number(option, attrs);
        const double value = number.value;
        /* a double may not hold such an integer exactly */
        if (fabs(value) >= 0x1p53 && (double)number.integer == value) {
            gd_onnx_put_int(node, option->name, number.integer);
            break;
        }
        if (isnan(value)) {
            if (option->required) gd_onnx_put_string(node, option->name, "none");
            break;
        }
        if (gd_float_shortest((float)value) == value) gd_onnx_put_float(node, option->name, value);
        else gd_onnx_put_double(node, option->name, value);
        break;
    }
    case GD_ATTR_BOOL: gd_onnx_put_int(node, option->name, *(const bool *)field); break;
    case GD_ATTR_DTYPE:
        if (*(const gd_dtype *)field)
            gd_onnx_put_string(node, option->name, gd_dtype_name(*(const gd_dtype *)field));
        break;
    case GD_ATTR_WORD:
        gd_onnx_put_string(node, option->name,
                           gd_onnx_word_text(option, *(const gd_word *)field, word));
        break;
    case GD_ATTR_STRING:
        if (*(const char *const *)field)
            gd_onnx_put_string(node, option->name, *(const char *const *)field);
        break;
    default:
        count = gd_onnx_option_numbers(option, attrs, numbers);
        if (count >= 0) gd_onnx_put_ints(node, option->name, count, numbers);
        else if (option->required) gd_onnx_put_string(node, option->name, "none");
    }
}

static bool is_unknown(const gd_slot *in) {
    for (int d = 0; in->present && d < in->rank; d++)
        if (in->dims[d] == GD_UNKNOWN) return true;
    return false;
}

bool gd_onnx_has_unknown_size(const gd_onnx_call *c) {
    for (int i = 0; i < c->n_in; i++)
        if (is_unknown(&c->in[i])) return true;
    return false;
}

/* ONNX has a seed, which is fixed in the file, and no keys. */
bool gd_onnx_draws_from_key(const gd_onnx_call *c) {
    for (int i = 0; i < c->op->n_inputs && i < c->n_in && c->op->family; i++)
        if (c->in[i].present && strcmp(c->op->family, "random") == 0 &&
            strcmp(c->op->inputs[i].name, "key") == 0)
            return true;
    return false;
}

/* The inputs with unknown sizes: "x is f32[?,5,3], lengths is i64[?]". */
static const char *unknown_inputs(const gd_onnx_call *c, char *text, size_t size) {
    size_t used = 0;
    for (int i = 0; i < c->n_in && used + 80 < size; i++) {
        if (!is_unknown(&c->in[i])) continue;
        const int at = i < c->op->n_inputs ? i : c->op->n_inputs - 1;
        used += (size_t)snprintf(text + used, size - used, "%s%.30s is %s[", used ? ", " : "",
                                 c->op->inputs[at].name, gd_dtype_name(c->in[i].dtype));
        for (int d = 0; d < c->in[i].rank && used + 24 < size; d++) {
            const long long n = c->in[i].dims[d];
            used += n == GD_UNKNOWN
                        ? (size_t)snprintf(text + used, size - used, "%s?", d ? "," : "")
                        : (size_t)snprintf(text + used, size - used, "%s%lld", d ? "," : "", n);
        }
        used += (size_t)snprintf(text + used, size - used, "]");
    }
    return text;
}

/* The node has the op's name, its options, and all its outputs. */
static gd_status save_own_node(gd_onnx_saver *s, const gd_onnx_call *c) {
    if (gd_op_find(c->op->name) != c->op)
        return gd_fail(
            GD_E_UNSUPPORTED,
            "%s: %s has no ONNX operator, and is not registered by name, so a file cannot refer "
            "to it",
            c->label, c->op->name);
    if (c->op->flags & GD_OP_CALLS)
        return gd_fail(GD_E_UNSUPPORTED,
                       "'%s' calls a function of the program (gd_apply), which a file cannot hold; "
                       "save a graph without it, or define an op (gd_op_define)",
                       c->label);
    if (!s->own_ops && (c->op->flags & GD_OP_OPAQUE))
        return gd_fail(
            GD_E_UNSUPPORTED,
            "'%s' is %s, which depends on sizes that are known only when the graph runs, and ONNX "
            "has "
            "no operator for that. To save it, %s; with "
            ".own_ops = true this one becomes a node of the domain \"gradus\", which only this "
            "library "
            "reads",
            c->label, c->op->name, s->remedy);
    /* the body of a random op is not saved for known sizes either */
    if (!s->own_ops && c->op->expand && !(c->op->flags & GD_OP_RANDOM) &&
        gd_onnx_has_unknown_size(c))
        return gd_fail(
            GD_E_UNSUPPORTED,
            "'%s' is %s, which is saved as other operators, and for unknown sizes (%s) these "
            "cannot be written; %s, or with .own_ops = true it "
            "becomes a node of the domain \"gradus\", which only this library reads",
            c->label, c->op->name, unknown_inputs(c, (char[200]){0}, 200), s->remedy);
    if (!s->own_ops && gd_onnx_draws_from_key(c))
        return gd_fail(
            GD_E_UNSUPPORTED,
            "'%s' is %s, which draws random numbers from a key, and ONNX has no operator for that; "
            "save a graph that draws them without .key, or with .own_ops = true this becomes "
            "a node of the domain \"gradus\", which only this library reads",
            c->label, c->op->name);
    if (!s->own_ops)
        return gd_fail(
            GD_E_UNSUPPORTED,
            "'%s' is %s, which ONNX has no operator for; with .own_ops = true it becomes "
            "a node of the domain \"gradus\", which only this library reads",
            c->label, c->op->name);
    gd_pb *node = gd_onnx_add_node(s, c->op->name, "gradus", c->label);
    for (int i = 0; i < c->n_in; i++)
        gd_pb_put_string(node, "input", c->in_names[i] ? c->in_names[i] : "");
    for (int k = 0; k < c->n_out; k++) gd_pb_put_string(node, "output", c->out_names[k]);
    for (int i = 0; i < c->op->n_attrs && c->attrs; i++)
        put_own_option(node, &c->op->attrs[i], c->attrs);
    return GD_OK;
}

/* --- the choice ------------------------------------------------------------------------------- */

/* Whether a call has no inputs and the same result each time: it is saved as a constant. */
static bool is_constant(const gd_onnx_call *c) {
    return c->n_in == 0 && c->n_out == 1 &&
           !(c->op->flags & (GD_OP_RANDOM | GD_OP_DYNAMIC | GD_OP_OPAQUE | GD_OP_CALLS));
}

static gd_status save_constant(gd_onnx_saver *s, const gd_onnx_call *c) {
    gd_tensor *value = NULL;
    GD_TRY(gd_dispatch(c->op, NULL, NULL, 0, c->attrs, &value, 1));
    return gd_onnx_add_tensor(s, c->out_names[0], value);
}

enum { MAX_BODY_DEPTH = 16 };

static bool writes_inputs(const gd_onnx_call *c) {
    for (int i = 0; i < c->op->n_inputs && i < c->n_in; i++)
        if (c->op->inputs[i].mutated && c->in[i].present) return true;
    return false;
}

gd_status gd_onnx_save_call(gd_onnx_saver *s, const gd_onnx_call *c, int depth) {
    /* the body of a random op with a kernel reads a random key, which ONNX does not have */
    const bool draws = (c->op->flags & GD_OP_RANDOM) && c->op->reference;
    void (*body)(gd_expansion *) = draws ? NULL : c->op->expand;
    gd_onnx_row row;
    bool done = false, fits = false;
    if (gd_onnx_is_control(c->op)) return gd_onnx_save_control(s, c);
    if (is_constant(c)) return save_constant(s, c);
    for (int at = 0; gd_onnx_next_row(c->op, &at, &row);) {
        if (row.body) body = row.body;
        GD_TRY(gd_onnx_row_fits(c, &row, &fits));
        if (!fits) continue;
        if (!row.save) return gd_onnx_save_row(s, c, &row);
        GD_TRY(row.save(s, c, &done));
        if (done) return GD_OK;
    }
    if (c->op->ir) GD_TRY(gd_onnx_save_expression(s, c, &done));
    /* a body cannot write variables, and that of a GD_OP_OPAQUE op needs known values */
    if (!done && body && depth < MAX_BODY_DEPTH && !writes_inputs(c) &&
        !(c->op->flags & GD_OP_OPAQUE))
        GD_TRY(gd_onnx_save_body(s, c, body, depth, &done));
    return done ? GD_OK : save_own_node(s, c);
}
