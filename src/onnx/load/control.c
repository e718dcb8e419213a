/* control.c - If, Loop and Scan as gd_cond, gd_while_loop and gd_scan.
 *
 * An inner graph is read when the function that it stands for is traced: its nodes are noted where
 * the values are that they need. What it takes from outside it finds by name.
 */
#include "gradus/control.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "core/alloc.h"
#include "core/frame.h"
#include "gradus/ops.h"
#include "graph/build/subgraph.h"
#include "onnx/load/load.h"

/* --- inner graphs as functions ---------------------------------------------------------------- */

/* What a function needs to know of the node that it is read from. */
typedef struct function {
    gd_onnx_loader *l;
    const gd_pb *graph;
    const char *what; /* its attribute, for messages */
} function;

static gd_status graph_of(const gd_pb *node, const char *attribute, const gd_pb **graph) {
    *graph = gd_pb_message(gd_onnx_attribute_of(node, attribute), "g");
    return *graph ? GD_OK : gd_fail(GD_E_FORMAT, "it needs a graph '%s'", attribute);
}

static size_t n_outputs(const gd_pb *graph) { return gd_pb_count(graph, "output"); }

/* What a call of an inner graph needs while others may be read inside of it: not on the stack. */
typedef struct reading {
    gd_attempt attempt;
    gd_onnx_value *values[];
} reading;

/* Reads the graph for these inputs; a list of what it gives. A failure sticks, with the place. */
static gd_tensors call(const function *f, gd_tensor *const *in, size_t n) {
    const size_t count = n_outputs(f->graph);
    reading *r = gd_calloc(1, sizeof *r + (count + 1) * sizeof *r->values);
    gd_tensor **out = gd_list_new((int64_t)count);
    if (r) gd_attempt_begin(&r->attempt);
    gd_status status = r && out ? gd_onnx_load_inner(f->l, f->graph, in, n, r->values)
                                : gd_fail(GD_E_MEMORY, "no memory to load a graph");
    for (size_t k = 0; k < count && status == GD_OK; k++) out[k] = r->values[k]->tensor;
    if (r) status = gd_attempt_end(&r->attempt, status);
    gd_free(r);
    if (status == GD_OK) return (gd_tensors){out, (int64_t)count};
    gd_error_prefix("%s: ", f->what);
    gd_error_stick(status);
    return gd_list_of_errors((int64_t)count);
}

static gd_tensors call_first(gd_tensors in, void *user) {
    const function *f = user;
    return call(&f[0], in.at, (size_t)in.count);
}
static gd_tensors call_second(gd_tensors in, void *user) {
    const function *f = user;
    return call(&f[1], in.at, (size_t)in.count);
}

/* --- results ---------------------------------------------------------------------------------- */

static gd_status set_outputs(gd_onnx_loader *l, const gd_pb *node, size_t from, gd_tensors list) {
    for (int64_t k = 0; k < list.count && from + (size_t)k < gd_pb_count(node, "output"); k++)
        GD_TRY(gd_onnx_set_output(l, node, from + (size_t)k, list.at[k]));
    return GD_OK;
}

static gd_status check_outputs(const gd_pb *node, int64_t possible) {
    const size_t count = gd_pb_count(node, "output");
    if (count <= (size_t)possible) return GD_OK;
    return gd_fail(GD_E_FORMAT, "it has %zu outputs, and its graph gives %lld", count,
                   (long long)possible);
}

/* --- If --------------------------------------------------------------------------------------- */

/* The predicate is known: the nodes of one branch take its place. */
static gd_status take_branch(gd_onnx_loader *l, const gd_pb *node, const function *f) {
    gd_onnx_value **values = gd_calloc(n_outputs(f->graph) + 1, sizeof *values), *v;
    if (!values) return gd_fail(GD_E_MEMORY, "no memory to load a graph");
    gd_status status = gd_onnx_load_inner(l, f->graph, NULL, 0, values);
    if (status != GD_OK) gd_error_prefix("%s: ", f->what);
    for (size_t k = 0; k < gd_pb_count(node, "output") && status == GD_OK; k++) {
        const char *name = gd_pb_string_at(node, "output", k);
        status = gd_onnx_set_output(l, node, k, values[k]->tensor);
        if (status == GD_OK && *name && (v = gd_onnx_look_up(l, name)) != NULL) {
            v->known = values[k]->known;
            if (!v->constant) v->constant = values[k]->constant;
        }
    }
    gd_free(values);
    return status;
}

gd_status gd_onnx_load_if(gd_onnx_loader *l, const gd_pb *node) {
    function f[2] = {{.l = l, .what = "then_branch"}, {.l = l, .what = "else_branch"}};
    gd_status status;
    gd_tensor *known, *predicate = gd_onnx_get_input(l, node, 0, &status);
    GD_TRY(status);
    if (!predicate) return gd_fail(GD_E_FORMAT, "its condition is missing");
    for (int i = 0; i < 2; i++) {
        GD_TRY(graph_of(node, f[i].what, &f[i].graph));
        GD_TRY(check_outputs(node, (int64_t)n_outputs(f[i].graph)));
    }
    GD_TRY(gd_onnx_known(l, gd_pb_string_at(node, "input", 0), &known));
    if (known && gd_tensor_numel(known) == 1)
        return take_branch(l, node, gd_item(known) != 0 ? &f[0] : &f[1]);
    for (int i = 0; i < 2; i++)
        if (l->depth == 0) GD_TRY(gd_onnx_make_variables(l, f[i].graph));
    gd_tensors y = gd_cond_at(NULL, predicate, call_first, call_second, gd_nothing, f);
    return gd_failed() ? gd_failure() : set_outputs(l, node, 0, y);
}

/* --- Scan ------------------------------------------------------------------------------------- */

/* One of Scan's lists of axes or directions: as many numbers as there are tensors, 0 by default. */
static gd_status read_list(const gd_pb *node, const char *name, int count, int64_t *numbers) {
    const gd_pb_list *list = gd_pb_get(gd_onnx_attribute_of(node, name), "ints");
    memset(numbers, 0, (size_t)count * sizeof *numbers);
    if (!list) return GD_OK;
    if (list->count != (size_t)count)
        return gd_fail(GD_E_FORMAT, "its attribute '%s' has %zu numbers for %d tensors", name,
                       list->count, count);
    memcpy(numbers, list->ints, (size_t)count * sizeof *numbers);
    return GD_OK;
}

/* Goes back if all inputs do; those that do not are turned round. */
static GD_OWN_FRAME gd_status scan_inputs(gd_onnx_loader *l, const gd_pb *node, int n_state,
                                          int n_xs, gd_tensor **in, bool *reverse) {
    int64_t axes[GD_ONNX_MOST_NUMBERS], back[GD_ONNX_MOST_NUMBERS];
    gd_status status;
    GD_TRY(read_list(node, "scan_input_axes", n_xs, axes));
    GD_TRY(read_list(node, "scan_input_directions", n_xs, back));
    *reverse = n_xs > 0;
    for (int k = 0; k < n_xs; k++) *reverse = *reverse && back[k];
    for (int i = 0; i < n_state + n_xs; i++) {
        in[i] = gd_onnx_get_input(l, node, (size_t)i, &status);
        GD_TRY(status);
        if (!in[i]) return gd_fail(GD_E_FORMAT, "its input %d is missing", i);
        if (i < n_state) continue;
        const int64_t axis = axes[i - n_state];
        if (axis) in[i] = gd_movedim(in[i], gd_dims(axis), gd_dims(0));
        if (back[i - n_state] && !*reverse) in[i] = gd_flip(in[i], gd_dims(0));
    }
    return GD_OK;
}

/* Ours stand at the positions of the inputs. A first result at the end is one that goes back. */
static GD_OWN_FRAME gd_status scan_outputs(gd_onnx_loader *l, const gd_pb *node, size_t n_state,
                                           gd_tensors ys, bool reverse) {
    int64_t axes[GD_ONNX_MOST_NUMBERS], back[GD_ONNX_MOST_NUMBERS];
    GD_TRY(read_list(node, "scan_output_axes", (int)ys.count, axes));
    GD_TRY(read_list(node, "scan_output_directions", (int)ys.count, back));
    for (int64_t k = 0; k < ys.count && n_state + (size_t)k < gd_pb_count(node, "output"); k++) {
        gd_tensor *y = ys.at[k];
        if ((back[k] != 0) != reverse) y = gd_flip(y, gd_dims(0));
        if (axes[k]) y = gd_movedim(y, gd_dims(0), gd_dims(axes[k]));
        GD_TRY(gd_onnx_set_output(l, node, n_state + (size_t)k, y));
    }
    return GD_OK;
}

gd_status gd_onnx_load_scan(gd_onnx_loader *l, const gd_pb *node) {
    function f = {.l = l, .what = "body"};
    gd_tensor *in[GD_ONNX_MOST_NUMBERS];
    const int64_t n_in = (int64_t)gd_onnx_input_count(node);
    int64_t n_xs;
    bool reverse;
    GD_TRY(graph_of(node, f.what, &f.graph));
    GD_TRY(gd_onnx_int_attribute(node, "num_scan_inputs", 0, &n_xs));
    GD_TRY(check_outputs(node, (int64_t)n_outputs(f.graph)));
    const int64_t n_ys = (int64_t)n_outputs(f.graph) - (n_in - n_xs);
    if (n_xs < 1 || n_xs > n_in || n_ys < 0)
        return gd_fail(
            GD_E_FORMAT,
            "it has %lld inputs, %lld of them to go along, and its body gives %zu values",
            (long long)n_in, (long long)n_xs, n_outputs(f.graph));
    if (n_in > GD_ONNX_MOST_NUMBERS || n_ys > GD_ONNX_MOST_NUMBERS)
        return gd_fail(GD_E_UNSUPPORTED,
                       "it has %lld inputs and %lld further results; %d are possible",
                       (long long)n_in, (long long)n_ys, GD_ONNX_MOST_NUMBERS);
    const int n_state = (int)(n_in - n_xs);
    GD_TRY(scan_inputs(l, node, n_state, (int)n_xs, in, &reverse));
    if (l->depth == 0) GD_TRY(gd_onnx_make_variables(l, f.graph));
    gd_scanned y =
        gd_scan_at(NULL, call_first, (gd_tensors){in, n_state}, (gd_tensors){in + n_state, n_xs},
                   &f, &(gd_scan_options){.reverse = reverse});
    if (gd_failed()) return gd_failure();
    GD_TRY(set_outputs(l, node, 0, y.state));
    return scan_outputs(l, node, (size_t)n_state, y.ys, reverse);
}

/* --- Loop ------------------------------------------------------------------------------------- */

/* body(step, going, state...) gives whether to go on, the next state, and the y_t. */
typedef struct loop {
    function f;
    gd_tensor *state[GD_ONNX_MOST_NUMBERS];
    int n_state, n_ys;
    int64_t most;     /* steps; INT64_MAX: only the run tells, or the condition */
    gd_tensor *trips; /* where the run tells: rank 0 */
    bool always;      /* the condition is true from the first step to the last */
    gd_tensor *going; /* before the first step */
} loop;

/* The last of a chain of nodes that pass a value on: its name, or the node that makes it. */
static const char *pass_back(const gd_pb *graph, const char *name, const gd_pb **maker) {
    for (size_t i = gd_pb_count(graph, "node"); i-- > 0;) {
        const gd_pb *node = gd_pb_message_at(graph, "node", i);
        if (strcmp(gd_pb_string_at(node, "output", 0), name) != 0) continue;
        const char *type = gd_pb_string(node, "op_type");
        *maker = node;
        if (strcmp(type, "Identity") != 0 && strcmp(type, "Cast") != 0) return name;
        name = gd_pb_string_at(node, "input", 0);
        *maker = NULL;
    }
    return name;
}

/* Whether the body's condition is what it was given, or a constant that is true. */
static gd_status goes_on(gd_onnx_loader *l, const gd_pb *body, bool starts, bool *always) {
    const gd_pb *maker = NULL;
    const char *name =
        pass_back(body, gd_pb_string(gd_pb_message_at(body, "output", 0), "name"), &maker);
    gd_tensor *t = NULL;
    *always = false;
    if (!starts) return GD_OK;
    if (strcmp(name, gd_pb_string(gd_pb_message_at(body, "input", 1), "name")) == 0) {
        *always = true;
        return GD_OK;
    }
    const gd_pb *value = gd_pb_message(gd_onnx_attribute_of(maker, "value"), "t");
    for (size_t i = 0; !maker && !value && i < gd_pb_count(body, "initializer"); i++) {
        const gd_pb *tensor = gd_pb_message_at(body, "initializer", i);
        if (strcmp(gd_pb_string(tensor, "name"), name) == 0) value = tensor;
    }
    if (value) {
        GD_TRY(gd_onnx_read_tensor(value, gd_onnx_folder(l), &t));
    } else if (!maker && gd_onnx_look_up(l, name)) {
        GD_TRY(gd_onnx_known(l, name, &t));
    }
    *always = t && gd_tensor_numel(t) == 1 && gd_item(t) != 0;
    return GD_OK;
}

static gd_tensor *single(gd_tensor *t) { return t->rank ? gd_reshape(t, gd_dims()) : t; }

static gd_status read_limits(gd_onnx_loader *l, const gd_pb *node, loop *x) {
    const char *trips = gd_pb_string_at(node, "input", 0),
               *going = gd_pb_string_at(node, "input", 1);
    gd_tensor *known = NULL;
    gd_status status = GD_OK;
    bool starts = true;
    x->most = INT64_MAX;
    x->going = gd_scalar_of(1, GD_BOOL);
    if (*trips) {
        GD_TRY(gd_onnx_known(l, trips, &known));
        if (!known) x->trips = gd_onnx_get_input(l, node, 0, &status);
        GD_TRY(status);
        if (x->trips) x->trips = single(x->trips);
        if (known && gd_tensor_numel(known) != 1)
            return gd_fail(GD_E_FORMAT, "its trip count must be one number");
        const double number = known ? gd_item(known) : INFINITY;
        x->most = number >= 0x1p62 ? INT64_MAX : number > 0 ? (int64_t)number : 0;
    }
    if (*going) {
        GD_TRY(gd_onnx_known(l, going, &known));
        starts = known && gd_tensor_numel(known) == 1 && gd_item(known) != 0;
        x->going = gd_onnx_get_input(l, node, 1, &status);
        GD_TRY(status);
        x->going = single(x->going);
    }
    return goes_on(l, x->f.graph, starts, &x->always);
}

/* The body for a step of a scan along 0, 1, 2, ...: state..., step. */
static gd_tensors loop_step(gd_tensors in, void *user) {
    const loop *x = user;
    gd_tensor **given = gd_list_new(x->n_state + 2);
    if (!given) return gd_list_of_errors(x->n_state + x->n_ys);
    given[0] = in.at[x->n_state];
    given[1] = gd_scalar_of(1, GD_BOOL);
    memcpy(given + 2, in.at, (size_t)x->n_state * sizeof *given);
    gd_tensors y = call(&x->f, given, (size_t)x->n_state + 2);
    return y.count > 0 ? (gd_tensors){y.at + 1, y.count - 1} : y;
}

/* A Loop whose number of steps is known is a scan of the numbers of its steps. */
static gd_status load_as_scan(gd_onnx_loader *l, const gd_pb *node, loop *x) {
    gd_tensor *steps = gd_arange(0, (double)x->most, .dtype = GD_I64);
    gd_scanned y = gd_scan_at(NULL, loop_step, (gd_tensors){x->state, x->n_state}, gd_list(steps),
                              x, &(gd_scan_options){.reverse = false});
    if (gd_failed()) return gd_failure();
    GD_TRY(set_outputs(l, node, 0, y.state));
    return set_outputs(l, node, (size_t)x->n_state, y.ys);
}

/* The state of a while loop: step, going, the state, and what the scan outputs are gathered in. */
static gd_tensors loop_goes(gd_tensors in, void *user) {
    const loop *x = user;
    gd_tensor *going = in.at[1];
    if (x->trips) going = gd_logical_and(going, gd_lt(in.at[0], gd_cast(x->trips, GD_I64)));
    return gd_listed(going);
}

/* Row `step` of a buffer (most, ...) becomes y. */
static gd_tensor *put_row(const loop *x, gd_tensor *buffer, gd_tensor *y, gd_tensor *step) {
    gd_shape column = {.rank = buffer->rank, .form = 1};
    for (int d = 0; d < column.rank; d++) column.at[d] = d ? 1 : x->most;
    gd_tensor *numbers = gd_reshape(gd_arange(0, (double)x->most, .dtype = GD_I64), column);
    return gd_where(gd_eq(numbers, step), gd_unsqueeze(y, 0), buffer);
}

static gd_tensors loop_next(gd_tensors in, void *user) {
    const loop *x = user;
    gd_tensors y = call(&x->f, in.at, (size_t)x->n_state + 2);
    gd_tensor **next = gd_list_new(in.count);
    if (!next || gd_failed()) return gd_list_of_errors(in.count);
    next[0] = gd_add(in.at[0], gd_scalar_of(1, GD_I64));
    next[1] = gd_cast(single(y.at[0]), GD_BOOL);
    for (int k = 0; k < x->n_state; k++) next[2 + k] = y.at[1 + k];
    for (int k = 2 + x->n_state; k < in.count; k++)
        next[k] = put_row(x, in.at[k], y.at[k - 1], in.at[0]);
    return (gd_tensors){next, in.count};
}

static gd_tensors loop_trial(gd_tensors in, void *user) {
    const loop *x = user;
    return call(&x->f, in.at, (size_t)in.count);
}

enum { MOST_TRIALS = 3, MOST_ROWS = 1 << 16 };

static gd_status no_sizes(const char *why) {
    return gd_fail(
        GD_E_UNSUPPORTED,
        "its scan outputs have as many positions as it takes steps, and %s. Possible are "
        "loops with a constant trip count (at most %d where a condition may end them)",
        why, MOST_ROWS);
}

/* A first look at the body, for the shapes of what it gives. */
static gd_status try_body(loop *x, gd_tensor *const *state, gd_subgraph **sub) {
    gd_onnx_loader *l = x->f.l;
    gd_meta *metas = gd_calloc((size_t)x->n_state + 2, sizeof *metas);
    if (!metas) return gd_fail(GD_E_MEMORY, "no memory to load a graph");
    for (int i = 0; i < x->n_state + 2; i++) metas[i] = gd_meta_of(state[i]);
    l->trials++;
    const gd_status status = gd_subgraph_trace(loop_trial, x, metas, x->n_state + 2, sub);
    l->trials--;
    gd_free(metas);
    return status;
}

/* Room for as many y_t as there may be. */
static gd_status make_buffers(loop *x, gd_tensor **state) {
    gd_subgraph *sub = NULL;
    if (x->n_ys == 0) return GD_OK;
    if (x->most > MOST_ROWS) return no_sizes("only the run tells how many that are");
    if (x->f.l->trials >= MOST_TRIALS) return no_sizes("such loops lie in each other");
    gd_status status = try_body(x, state, &sub);
    for (int k = 0; k < x->n_ys && status == GD_OK; k++) {
        const gd_meta *m = &sub->metas[1 + x->n_state + k];
        gd_shape dims = {.rank = m->rank + 1, .form = 1, .at = {x->most}};
        if (m->rank == GD_MAX_RANK) status = no_sizes("they have too many dimensions");
        for (int d = 0; d < m->rank && status == GD_OK; d++) {
            dims.at[d + 1] = m->dims[d];
            if (m->dims[d] == GD_UNKNOWN) status = no_sizes("their other sizes are not known");
        }
        if (status == GD_OK) state[2 + x->n_state + k] = gd_zeros(dims, .dtype = m->dtype);
    }
    gd_subgraph_release(sub);
    return status;
}

/* As many rows of a buffer as there were steps. */
static gd_tensor *rows_of(const loop *x, gd_tensor *buffer, gd_tensor *steps) {
    gd_tensor *numbers = gd_arange(0, (double)x->most, .dtype = GD_I64);
    gd_tensor *taken = gd_reshape(gd_nonzero(gd_lt(numbers, steps)), gd_dims(-1));
    return gd_index_select(buffer, 0, taken);
}

static gd_status load_as_while(gd_onnx_loader *l, const gd_pb *node, loop *x) {
    const int n = 2 + x->n_state;
    gd_tensor **state = gd_list_new(n + x->n_ys);
    if (!state) return GD_E_MEMORY;
    state[0] = gd_scalar_of(0, GD_I64);
    state[1] = gd_cast(x->going, GD_BOOL);
    memcpy(state + 2, x->state, (size_t)x->n_state * sizeof *state);
    GD_TRY(make_buffers(x, state));
    gd_tensors y = gd_while_loop_at(NULL, loop_goes, loop_next, (gd_tensors){state, n + x->n_ys}, x,
                                    &(gd_while_loop_options){.max_steps = x->most});
    if (gd_failed()) return gd_failure();
    GD_TRY(set_outputs(l, node, 0, (gd_tensors){y.at + 2, x->n_state}));
    for (int k = 0; k < x->n_ys; k++) {
        const size_t at = (size_t)(x->n_state + k);
        if (at < gd_pb_count(node, "output"))
            GD_TRY(gd_onnx_set_output(l, node, at, rows_of(x, y.at[n + k], y.at[0])));
    }
    return GD_OK;
}

enum { MOST_NUMBERED = 1 << 24 };

/* How many values go round and come out. */
static gd_status count_values(const gd_pb *node, loop *x) {
    const int64_t n_state = (int64_t)gd_onnx_input_count(node) - 2;
    GD_TRY(graph_of(node, x->f.what, &x->f.graph));
    const int64_t n_ys = (int64_t)n_outputs(x->f.graph) - 1 - n_state;
    if (n_state < 0 || n_ys < 0 || gd_pb_count(x->f.graph, "input") != (size_t)n_state + 2)
        return gd_fail(
            GD_E_FORMAT,
            "it has %zu inputs, and its body takes %zu and gives %zu values: a state of n "
            "needs n + 2, n + 2 and at least n + 1",
            gd_onnx_input_count(node), gd_pb_count(x->f.graph, "input"), n_outputs(x->f.graph));
    if (n_state > GD_ONNX_MOST_NUMBERS || n_ys > GD_ONNX_MOST_NUMBERS)
        return gd_fail(GD_E_UNSUPPORTED,
                       "a state of %lld and %lld further results; %d are possible",
                       (long long)n_state, (long long)n_ys, GD_ONNX_MOST_NUMBERS);
    x->n_state = (int)n_state;
    x->n_ys = (int)n_ys;
    return check_outputs(node, n_state + n_ys);
}

static gd_status load_loop(gd_onnx_loader *l, const gd_pb *node, loop *x) {
    GD_TRY(count_values(node, x));
    if (x->n_state + x->n_ys == 0) return GD_OK; /* nothing can come of it */
    for (int i = 0; i < x->n_state; i++) {
        gd_status status;
        x->state[i] = gd_onnx_get_input(l, node, (size_t)i + 2, &status);
        GD_TRY(status);
        if (!x->state[i]) return gd_fail(GD_E_FORMAT, "its input %d is missing", i + 2);
    }
    GD_TRY(read_limits(l, node, x));
    if (l->depth == 0) GD_TRY(gd_onnx_make_variables(l, x->f.graph));
    if (x->always && !x->trips && x->most <= MOST_NUMBERED) return load_as_scan(l, node, x);
    return load_as_while(l, node, x);
}

gd_status gd_onnx_load_loop(gd_onnx_loader *l, const gd_pb *node) {
    loop *x = gd_calloc(1, sizeof *x);
    if (!x) return gd_fail(GD_E_MEMORY, "no memory to load a graph");
    x->f = (function){.l = l, .what = "body"};
    const gd_status status = load_loop(l, node, x);
    gd_free(x);
    return status;
}
