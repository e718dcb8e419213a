/* control_flow.c - If, Loop and Scan as gd_cond, gd_while_loop and gd_scan.
 *
 * gd_cond and the loops trace functions. Here each function loads the nodes of a subgraph when the
 * trace calls it. Order: subgraphs as functions; If; Scan; Loop.
 */
#include "gradus/control.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "core/alloc.h"
#include "core/frame.h"
#include "gradus/ops.h"
#include "graph/build/subgraph.h"
#include "onnx/load/operators/operators.h"

/* --- subgraphs as functions ------------------------------------------------------------------- */

typedef struct function {
    gd_onnx_loader *l;
    const gd_pb *graph;
    const char *attribute; /* of the node: holds the graph */
} function;

static gd_status find_subgraph(const gd_pb *node, const char *attribute, const gd_pb **graph) {
    *graph = gd_pb_message(gd_onnx_find_attribute(node, attribute), "g");
    return *graph ? GD_OK : gd_fail(GD_E_FORMAT, "it needs a graph '%s'", attribute);
}

static size_t output_count(const gd_pb *graph) { return gd_pb_count(graph, "output"); }

/* The state of a call. It is on the heap, since calls nest. */
typedef struct function_call {
    gd_attempt attempt;
    gd_onnx_value *values[];
} function_call;

/* Loads the subgraph with these inputs and returns its outputs. A failure is recorded with the name
 * of the attribute. */
static gd_tensors call_function(const function *f, gd_tensor *const *in, size_t n) {
    const size_t count = output_count(f->graph);
    function_call *r = gd_calloc(1, sizeof *r + (count + 1) * sizeof *r->values);
    gd_tensor **out = gd_list_new((int64_t)count);
    if (r) gd_attempt_begin(&r->attempt);
    gd_status status = r && out ? gd_onnx_load_subgraph(f->l, f->graph, in, n, r->values)
                                : gd_no_memory(NULL, "to load a graph");
    for (size_t k = 0; k < count && status == GD_OK; k++) out[k] = r->values[k]->tensor;
    if (r) status = gd_attempt_end(&r->attempt, status);
    gd_free(r);
    if (status == GD_OK) return (gd_tensors){out, (int64_t)count};
    gd_error_prefix("%s: ", f->attribute);
    gd_error_record(status);
    return gd_list_of_errors((int64_t)count);
}

static gd_tensors call_first(gd_tensors in, void *user) {
    const function *f = user;
    return call_function(&f[0], in.at, (size_t)in.count);
}
static gd_tensors call_second(gd_tensors in, void *user) {
    const function *f = user;
    return call_function(&f[1], in.at, (size_t)in.count);
}

/* --- outputs ---------------------------------------------------------------------------------- */

static gd_status set_outputs(gd_onnx_loader *l, const gd_pb *node, size_t from, gd_tensors list) {
    for (int64_t k = 0; k < list.count && from + (size_t)k < gd_pb_count(node, "output"); k++)
        GD_TRY(gd_onnx_set_output(l, node, from + (size_t)k, list.at[k]));
    return GD_OK;
}

static gd_status check_outputs(const gd_pb *node, int64_t possible) {
    const size_t count = gd_pb_count(node, "output");
    if (count <= (size_t)possible) return GD_OK;
    return gd_fail(GD_E_FORMAT, "it has %zu outputs, and its graph has %lld", count,
                   (long long)possible);
}

/* --- If --------------------------------------------------------------------------------------- */

/* With a constant condition, the nodes of one branch replace the If. */
static gd_status load_branch(gd_onnx_loader *l, const gd_pb *node, const function *f) {
    gd_onnx_value **values = gd_calloc(output_count(f->graph) + 1, sizeof *values), *v;
    if (!values) return gd_no_memory(NULL, "to load a graph");
    gd_status status = gd_onnx_load_subgraph(l, f->graph, NULL, 0, values);
    if (status != GD_OK) gd_error_prefix("%s: ", f->attribute);
    for (size_t k = 0; k < gd_pb_count(node, "output") && status == GD_OK; k++) {
        const char *name = gd_pb_string_at(node, "output", k);
        status = gd_onnx_set_output(l, node, k, values[k]->tensor);
        if (status == GD_OK && *name && (v = gd_onnx_lookup_value(l, name)) != NULL) {
            v->foldable = values[k]->foldable;
            if (!v->constant) v->constant = values[k]->constant;
        }
    }
    gd_free(values);
    return status;
}

gd_status gd_onnx_load_if(gd_onnx_loader *l, const gd_pb *node) {
    function f[2] = {{.l = l, .attribute = "then_branch"}, {.l = l, .attribute = "else_branch"}};
    gd_tensor *constant;
    GD_ONNX_OPTIONAL_INPUT(predicate, 0);
    if (!predicate) return gd_fail(GD_E_FORMAT, "its condition is missing");
    for (int i = 0; i < 2; i++) {
        GD_TRY(find_subgraph(node, f[i].attribute, &f[i].graph));
        GD_TRY(check_outputs(node, (int64_t)output_count(f[i].graph)));
    }
    GD_TRY(gd_onnx_constant_value(l, gd_pb_string_at(node, "input", 0), &constant));
    if (constant && gd_tensor_numel(constant) == 1)
        return load_branch(l, node, gd_item(constant) != 0 ? &f[0] : &f[1]);
    for (int i = 0; i < 2; i++)
        if (l->depth == 0) GD_TRY(gd_onnx_create_variables(l, f[i].graph));
    gd_tensors y = gd_cond_at(NULL, predicate, call_first, call_second, gd_nothing, f);
    return gd_failed() ? gd_failure() : set_outputs(l, node, 0, y);
}

/* --- Scan ------------------------------------------------------------------------------------- */

/* The scan is reversed if all inputs are; else the reversed inputs are flipped. */
static GD_OWN_FRAME gd_status read_scan_inputs(gd_onnx_loader *l, const gd_pb *node, int n_state,
                                               int n_xs, gd_tensor **in, bool *reverse) {
    int64_t axes[GD_ONNX_MAX_NUMBERS], reversed[GD_ONNX_MAX_NUMBERS];
    GD_TRY(gd_onnx_ints_attribute(node, "scan_input_axes", n_xs, 0, axes));
    GD_TRY(gd_onnx_ints_attribute(node, "scan_input_directions", n_xs, 0, reversed));
    *reverse = n_xs > 0;
    for (int k = 0; k < n_xs; k++) *reverse = *reverse && reversed[k];
    for (int i = 0; i < n_state + n_xs; i++) {
        GD_ONNX_REQUIRE_INPUT(given, (size_t)i);
        in[i] = given;
        if (i < n_state) continue;
        const int64_t axis = axes[i - n_state];
        if (axis) in[i] = gd_movedim(in[i], gd_dims(axis), gd_dims(0));
        if (reversed[i - n_state] && !*reverse) in[i] = gd_flip(in[i], gd_dims(0));
    }
    return GD_OK;
}

/* gd_scan puts y_t at the position of x_t. ONNX orders outputs by steps: the first y_t is at the
 * beginning, or at the end for a reversed output. */
static GD_OWN_FRAME gd_status set_scan_outputs(gd_onnx_loader *l, const gd_pb *node, size_t n_state,
                                               gd_tensors ys, bool reverse) {
    int64_t axes[GD_ONNX_MAX_NUMBERS], reversed[GD_ONNX_MAX_NUMBERS];
    GD_TRY(gd_onnx_ints_attribute(node, "scan_output_axes", (int)ys.count, 0, axes));
    GD_TRY(gd_onnx_ints_attribute(node, "scan_output_directions", (int)ys.count, 0, reversed));
    for (int64_t k = 0; k < ys.count && n_state + (size_t)k < gd_pb_count(node, "output"); k++) {
        gd_tensor *y = ys.at[k];
        if ((reversed[k] != 0) != reverse) y = gd_flip(y, gd_dims(0));
        if (axes[k]) y = gd_movedim(y, gd_dims(0), gd_dims(axes[k]));
        GD_TRY(gd_onnx_set_output(l, node, n_state + (size_t)k, y));
    }
    return GD_OK;
}

gd_status gd_onnx_load_scan(gd_onnx_loader *l, const gd_pb *node) {
    function f = {.l = l, .attribute = "body"};
    gd_tensor *in[GD_ONNX_MAX_NUMBERS];
    const int64_t n_in = (int64_t)gd_onnx_input_count(node);
    int64_t n_xs;
    bool reverse;
    GD_TRY(find_subgraph(node, f.attribute, &f.graph));
    GD_TRY(gd_onnx_int_attribute(node, "num_scan_inputs", 0, &n_xs));
    GD_TRY(check_outputs(node, (int64_t)output_count(f.graph)));
    const int64_t n_ys = (int64_t)output_count(f.graph) - (n_in - n_xs);
    if (n_xs < 1 || n_xs > n_in || n_ys < 0)
        return gd_fail(GD_E_FORMAT,
                       "it has %lld inputs, %lld of them scan inputs, and its body has %zu outputs",
                       (long long)n_in, (long long)n_xs, output_count(f.graph));
    if (n_in > GD_ONNX_MAX_NUMBERS || n_ys > GD_ONNX_MAX_NUMBERS)
        return gd_fail(GD_E_UNSUPPORTED,
                       "it has %lld inputs and %lld scan outputs; at most %d are supported",
                       (long long)n_in, (long long)n_ys, GD_ONNX_MAX_NUMBERS);
    const int n_state = (int)(n_in - n_xs);
    GD_TRY(read_scan_inputs(l, node, n_state, (int)n_xs, in, &reverse));
    if (l->depth == 0) GD_TRY(gd_onnx_create_variables(l, f.graph));
    gd_scanned y =
        gd_scan_at(NULL, call_first, (gd_tensors){in, n_state}, (gd_tensors){in + n_state, n_xs},
                   &f, &(gd_scan_options){.reverse = reverse});
    if (gd_failed()) return gd_failure();
    GD_TRY(set_outputs(l, node, 0, y.state));
    return set_scan_outputs(l, node, (size_t)n_state, y.ys, reverse);
}

/* --- Loop ------------------------------------------------------------------------------------- */

/* body(step, condition, state...) returns the next condition, the next state, and the y_t. */
typedef struct loop {
    function f;
    gd_tensor *state[GD_ONNX_MAX_NUMBERS];
    int n_state, n_ys;
    int64_t max_steps;    /* INT64_MAX: only `trips` or the condition limits the steps */
    gd_tensor *trips;     /* the trip count if it is not constant, rank 0 */
    bool always;          /* the condition is always true */
    gd_tensor *condition; /* before the first step */
} loop;

/* Follows a value back through Identity and Cast nodes and returns the name at the start of the
 * chain. *producer is the node that computes it, or NULL. */
static const char *follow_identities(const gd_pb *graph, const char *name, const gd_pb **producer) {
    for (size_t i = gd_pb_count(graph, "node"); i-- > 0;) {
        const gd_pb *node = gd_pb_message_at(graph, "node", i);
        if (strcmp(gd_pb_string_at(node, "output", 0), name) != 0) continue;
        const char *type = gd_pb_string(node, "op_type");
        *producer = node;
        if (strcmp(type, "Identity") != 0 && strcmp(type, "Cast") != 0) return name;
        name = gd_pb_string_at(node, "input", 0);
        *producer = NULL;
    }
    return name;
}

/* *always: the condition starts true and stays true, since the body returns its input condition or
 * a constant that is true. */
static gd_status is_always_true(gd_onnx_loader *l, const gd_pb *body, bool starts, bool *always) {
    const gd_pb *producer = NULL;
    const char *name = follow_identities(
        body, gd_pb_string(gd_pb_message_at(body, "output", 0), "name"), &producer);
    gd_tensor *t = NULL;
    *always = false;
    if (!starts) return GD_OK;
    if (strcmp(name, gd_pb_string(gd_pb_message_at(body, "input", 1), "name")) == 0) {
        *always = true;
        return GD_OK;
    }
    const gd_pb *value = gd_pb_message(gd_onnx_find_attribute(producer, "value"), "t");
    for (size_t i = 0; !producer && !value && i < gd_pb_count(body, "initializer"); i++) {
        const gd_pb *tensor = gd_pb_message_at(body, "initializer", i);
        if (strcmp(gd_pb_string(tensor, "name"), name) == 0) value = tensor;
    }
    if (value) {
        GD_TRY(gd_onnx_read_tensor(value, l->folder, &t));
    } else if (!producer && gd_onnx_lookup_value(l, name)) {
        GD_TRY(gd_onnx_constant_value(l, name, &t));
    }
    *always = t && gd_tensor_numel(t) == 1 && gd_item(t) != 0;
    return GD_OK;
}

/* A tensor of one element as rank 0. */
static gd_tensor *to_scalar(gd_tensor *t) { return t->rank ? gd_reshape(t, gd_dims()) : t; }

static gd_status read_loop_limits(gd_onnx_loader *l, const gd_pb *node, loop *x) {
    const char *trips = gd_pb_string_at(node, "input", 0),
               *condition = gd_pb_string_at(node, "input", 1);
    gd_tensor *constant = NULL;
    gd_status status = GD_OK;
    bool starts = true;
    x->max_steps = INT64_MAX;
    x->condition = gd_scalar_of(1, GD_BOOL);
    if (*trips) {
        GD_TRY(gd_onnx_constant_value(l, trips, &constant));
        if (!constant) x->trips = gd_onnx_get_input(l, node, 0, &status);
        GD_TRY(status);
        if (x->trips) x->trips = to_scalar(x->trips);
        if (constant && gd_tensor_numel(constant) != 1)
            return gd_fail(GD_E_FORMAT, "its trip count must be one number");
        const double number = constant ? gd_item(constant) : INFINITY;
        x->max_steps = number >= 0x1p62 ? INT64_MAX : number > 0 ? (int64_t)number : 0;
    }
    if (*condition) {
        GD_TRY(gd_onnx_constant_value(l, condition, &constant));
        starts = constant && gd_tensor_numel(constant) == 1 && gd_item(constant) != 0;
        x->condition = gd_onnx_get_input(l, node, 1, &status);
        GD_TRY(status);
        x->condition = to_scalar(x->condition);
    }
    return is_always_true(l, x->f.graph, starts, &x->always);
}

/* The function of a scan over 0, 1, 2, ...: gets (state..., step) and calls the body. */
static gd_tensors call_scan_body(gd_tensors in, void *user) {
    const loop *x = user;
    gd_tensor **given = gd_list_new(x->n_state + 2);
    if (!given) return gd_list_of_errors(x->n_state + x->n_ys);
    given[0] = in.at[x->n_state];
    given[1] = gd_scalar_of(1, GD_BOOL);
    memcpy(given + 2, in.at, (size_t)x->n_state * sizeof *given);
    gd_tensors y = call_function(&x->f, given, (size_t)x->n_state + 2);
    return y.count > 0 ? (gd_tensors){y.at + 1, y.count - 1} : y;
}

/* A Loop with a constant number of steps is a scan over the step numbers. */
static gd_status load_as_scan(gd_onnx_loader *l, const gd_pb *node, loop *x) {
    gd_tensor *steps = gd_arange(0, (double)x->max_steps, .dtype = GD_I64);
    gd_scanned y = gd_scan_at(NULL, call_scan_body, (gd_tensors){x->state, x->n_state},
                              gd_list(steps), x, &(gd_scan_options){.reverse = false});
    if (gd_failed()) return gd_failure();
    GD_TRY(set_outputs(l, node, 0, y.state));
    return set_outputs(l, node, (size_t)x->n_state, y.ys);
}

/* The condition of a while loop. Its state: step, condition, the state of the Loop, and a buffer
 * for each scan output. */
static gd_tensors evaluate_while_condition(gd_tensors in, void *user) {
    const loop *x = user;
    gd_tensor *condition = in.at[1];
    if (x->trips) condition = gd_logical_and(condition, gd_lt(in.at[0], gd_cast(x->trips, GD_I64)));
    return gd_listed(condition);
}

/* Writes y to row `step` of a buffer (max_steps, ...). */
static gd_tensor *write_row(const loop *x, gd_tensor *buffer, gd_tensor *y, gd_tensor *step) {
    gd_shape column = {.rank = buffer->rank, .form = 1};
    for (int d = 0; d < column.rank; d++) column.at[d] = d ? 1 : x->max_steps;
    gd_tensor *numbers = gd_reshape(gd_arange(0, (double)x->max_steps, .dtype = GD_I64), column);
    return gd_where(gd_eq(numbers, step), gd_unsqueeze(y, 0), buffer);
}

static gd_tensors call_while_body(gd_tensors in, void *user) {
    const loop *x = user;
    gd_tensors y = call_function(&x->f, in.at, (size_t)x->n_state + 2);
    gd_tensor **next = gd_list_new(in.count);
    if (!next || gd_failed()) return gd_list_of_errors(in.count);
    next[0] = gd_add(in.at[0], gd_scalar_of(1, GD_I64));
    next[1] = gd_cast(to_scalar(y.at[0]), GD_BOOL);
    for (int k = 0; k < x->n_state; k++) next[2 + k] = y.at[1 + k];
    for (int k = 2 + x->n_state; k < in.count; k++)
        next[k] = write_row(x, in.at[k], y.at[k - 1], in.at[0]);
    return (gd_tensors){next, in.count};
}

static gd_tensors call_trial_body(gd_tensors in, void *user) {
    const loop *x = user;
    return call_function(&x->f, in.at, (size_t)in.count);
}

enum { MAX_TRIALS = 3, MAX_ROWS = 1 << 16 };

static gd_status fail_scan_outputs(const char *why) {
    return gd_fail(
        GD_E_UNSUPPORTED,
        "its scan outputs have one row for each step, and %s. Supported are loops with a "
        "constant trip count (at most %d if a condition may end them)",
        why, MAX_ROWS);
}

/* Traces the body only to infer the shapes of its outputs. */
static gd_status trace_shapes(loop *x, gd_tensor *const *state, gd_subgraph **sub) {
    gd_onnx_loader *l = x->f.l;
    gd_meta *metas = gd_calloc((size_t)x->n_state + 2, sizeof *metas);
    if (!metas) return gd_no_memory(NULL, "to load a graph");
    for (int i = 0; i < x->n_state + 2; i++) metas[i] = gd_meta_of(state[i]);
    l->trials++;
    const gd_status status = gd_subgraph_trace(call_trial_body, x, metas, x->n_state + 2, sub);
    l->trials--;
    gd_free(metas);
    return status;
}

/* A buffer (max_steps, ...) for each scan output. */
static gd_status create_scan_buffers(loop *x, gd_tensor **state) {
    gd_subgraph *sub = NULL;
    if (x->n_ys == 0) return GD_OK;
    if (x->max_steps > MAX_ROWS)
        return fail_scan_outputs("their number is known only when the graph runs");
    if (x->f.l->trials >= MAX_TRIALS) return fail_scan_outputs("such loops are nested");
    gd_status status = trace_shapes(x, state, &sub);
    for (int k = 0; k < x->n_ys && status == GD_OK; k++) {
        const gd_meta *m = &sub->metas[1 + x->n_state + k];
        gd_shape dims = {.rank = m->rank + 1, .form = 1, .at = {x->max_steps}};
        if (m->rank == GD_MAX_RANK) status = fail_scan_outputs("they have too many dimensions");
        for (int d = 0; d < m->rank && status == GD_OK; d++) {
            dims.at[d + 1] = m->dims[d];
            if (m->dims[d] == GD_UNKNOWN)
                status = fail_scan_outputs("their other sizes are not known");
        }
        if (status == GD_OK) state[2 + x->n_state + k] = gd_zeros(dims, .dtype = m->dtype);
    }
    gd_subgraph_release(sub);
    return status;
}

/* The first `steps` rows of a buffer. */
static gd_tensor *select_rows(const loop *x, gd_tensor *buffer, gd_tensor *steps) {
    gd_tensor *numbers = gd_arange(0, (double)x->max_steps, .dtype = GD_I64);
    gd_tensor *indices = gd_reshape(gd_nonzero(gd_lt(numbers, steps)), gd_dims(-1));
    return gd_index_select(buffer, 0, indices);
}

static gd_status load_as_while(gd_onnx_loader *l, const gd_pb *node, loop *x) {
    const int n = 2 + x->n_state;
    gd_tensor **state = gd_list_new(n + x->n_ys);
    if (!state) return GD_E_MEMORY;
    state[0] = gd_scalar_of(0, GD_I64);
    state[1] = gd_cast(x->condition, GD_BOOL);
    memcpy(state + 2, x->state, (size_t)x->n_state * sizeof *state);
    GD_TRY(create_scan_buffers(x, state));
    gd_tensors y = gd_while_loop_at(NULL, evaluate_while_condition, call_while_body,
                                    (gd_tensors){state, n + x->n_ys}, x,
                                    &(gd_while_loop_options){.max_steps = x->max_steps});
    if (gd_failed()) return gd_failure();
    GD_TRY(set_outputs(l, node, 0, (gd_tensors){y.at + 2, x->n_state}));
    for (int k = 0; k < x->n_ys; k++) {
        const size_t at = (size_t)(x->n_state + k);
        if (at < gd_pb_count(node, "output"))
            GD_TRY(gd_onnx_set_output(l, node, at, select_rows(x, y.at[n + k], y.at[0])));
    }
    return GD_OK;
}

enum { MAX_SCAN_STEPS = 1 << 24 };

/* The number of state values and of scan outputs. */
static gd_status count_values(const gd_pb *node, loop *x) {
    const int64_t n_state = (int64_t)gd_onnx_input_count(node) - 2;
    GD_TRY(find_subgraph(node, x->f.attribute, &x->f.graph));
    const int64_t n_ys = (int64_t)output_count(x->f.graph) - 1 - n_state;
    if (n_state < 0 || n_ys < 0 || gd_pb_count(x->f.graph, "input") != (size_t)n_state + 2)
        return gd_fail(
            GD_E_FORMAT,
            "it has %zu inputs, and its body has %zu inputs and %zu outputs: a state of n values "
            "needs n + 2, n + 2 and at least n + 1",
            gd_onnx_input_count(node), gd_pb_count(x->f.graph, "input"), output_count(x->f.graph));
    if (n_state > GD_ONNX_MAX_NUMBERS || n_ys > GD_ONNX_MAX_NUMBERS)
        return gd_fail(
            GD_E_UNSUPPORTED,
            "it has a state of %lld values and %lld scan outputs; at most %d are supported",
            (long long)n_state, (long long)n_ys, GD_ONNX_MAX_NUMBERS);
    x->n_state = (int)n_state;
    x->n_ys = (int)n_ys;
    return check_outputs(node, n_state + n_ys);
}

static gd_status load_loop(gd_onnx_loader *l, const gd_pb *node, loop *x) {
    GD_TRY(count_values(node, x));
    if (x->n_state + x->n_ys == 0) return GD_OK; /* it has no outputs */
    for (int i = 0; i < x->n_state; i++) {
        GD_ONNX_REQUIRE_INPUT(initial, (size_t)i + 2);
        x->state[i] = initial;
    }
    GD_TRY(read_loop_limits(l, node, x));
    if (l->depth == 0) GD_TRY(gd_onnx_create_variables(l, x->f.graph));
    if (x->always && !x->trips && x->max_steps <= MAX_SCAN_STEPS) return load_as_scan(l, node, x);
    return load_as_while(l, node, x);
}

gd_status gd_onnx_load_loop(gd_onnx_loader *l, const gd_pb *node) {
    loop *x = gd_calloc(1, sizeof *x);
    if (!x) return gd_no_memory(NULL, "to load a graph");
    x->f = (function){.l = l, .attribute = "body"};
    const gd_status status = load_loop(l, node, x);
    gd_free(x);
    return status;
}
