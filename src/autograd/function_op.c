/* function_op.c - functions of the program in graphs: the ops function_call and function_gradient
 * (dispatch/function.c).
 *
 * A node has the number of its function in a table, so that only gd_apply can make a node that
 * calls a function. Tensors that forward saves are further outputs of the node, unless they are its
 * inputs or outputs. So the gradient is an ordinary node that reads them.
 *
 * Order: the table; shapes of results; tracing; the gradient; kernels that call the functions.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "autograd/function.h"
#include "core/alloc.h"
#include "core/copy.h"
#include "core/fork.h"
#include "core/grow.h"
#include "gradus/ops.h"
#include "dispatch/function.h"

/* --- the table -------------------------------------------------------------------------------- */

typedef struct applied {
    const gd_function *function;
    void *user;
} applied;

static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;
GD_MUTEX_AT_FORK(table_lock)
static applied *entries;
static int n_entries, entries_room;

/* The number of a function, from 1; 0: no memory, the failure is recorded. */
static int function_number(const gd_function *function, void *user) {
    int i = 0;
    pthread_mutex_lock(&table_lock);
    while (i < n_entries && (entries[i].function != function || entries[i].user != user)) i++;
    const bool fits = i < n_entries || gd_grow(entries, n_entries, entries_room);
    if (fits && i == n_entries) entries[n_entries++] = (applied){function, user};
    pthread_mutex_unlock(&table_lock);
    if (fits) return i + 1;
    gd_no_memory(NULL, "for a function");
    return 0;
}

static gd_status find_function(int64_t number, applied *found) {
    pthread_mutex_lock(&table_lock);
    const bool there = number > 0 && number <= n_entries;
    if (there) *found = entries[number - 1];
    pthread_mutex_unlock(&table_lock);
    return there ? GD_OK : gd_fail(GD_E_ARGUMENT, "only gd_apply can add such a node");
}

/* --- shapes ----------------------------------------------------------------------------------- */

enum { KEEPS = 6 * GD_MAX_SAVED };

/* The shapes of the results of a function. */
typedef struct shapes {
    gd_meta *metas; /* of the outputs, then of further saved tensors */
    int n_results, n_extra;
    char keeps[KEEPS];
} shapes;

static gd_meta meta_of(const gd_tensor *t) {
    gd_meta m = {.dtype = (gd_dtype)t->dtype, .rank = t->rank, .view_of = -1};
    for (int d = 0; d < t->rank; d++) m.dims[d] = t->dims[d];
    return m;
}

/* Describes the saved tensors as text, and lists those that are neither inputs nor outputs. */
static int classify_saved(const gd_function_state *state, gd_tensors x, gd_tensor *const *y,
                          int n_out, char keeps[KEEPS], gd_tensor **extra) {
    int n_extra = 0, at = 0;
    keeps[0] = 0;
    for (int s = 0; s < state->n_saved; s++) {
        int64_t i = 0, k = 0;
        while (i < x.count && x.at[i] != state->saved[s]) i++;
        while (k < n_out && y[k] != state->saved[s]) k++;
        const bool input = i < x.count, result = !input && k < n_out;
        if (!input && !result) extra[n_extra++] = state->saved[s];
        at += snprintf(keeps + at, (size_t)(KEEPS - at),
                       input    ? "x%d "
                       : result ? "y%d "
                                : "s ",
                       (int)(input ? i : k));
    }
    return n_extra;
}

static gd_tensor *placeholder_value(const gd_tensor *like, const int64_t *dims) {
    const double value = gd_dtype_is_float((gd_dtype)like->dtype) ? 1 : 0;
    return gd_full(gd_shape_of(like->rank, dims), value, .dtype = (gd_dtype)like->dtype);
}

/* Calls infer, or forward with placeholder values; `unknown` replaces unknown sizes. In a scope of
 * the caller. */
static gd_status call_for_shapes(const applied *a, gd_tensor *const *in, int n_in, int64_t unknown,
                                 shapes *s) {
    const gd_function *f = a->function;
    gd_tensor **x = gd_list_new(n_in), **y = gd_list_new(s->n_results);
    if (!x || !y) return GD_E_MEMORY;
    for (int i = 0; i < n_in; i++) {
        int64_t dims[GD_MAX_RANK];
        for (int d = 0; d < in[i]->rank; d++)
            dims[d] = in[i]->dims[d] == GD_UNKNOWN ? unknown : in[i]->dims[d];
        x[i] = f->infer ? gd_tensor_bare(GD_META, in[i]->device, (gd_dtype)in[i]->dtype,
                                         in[i]->rank, dims)
                        : placeholder_value(in[i], dims);
        if (!x[i] || x[i]->kind == GD_FAILED) return gd_failure();
    }
    gd_function_state state = {.shapes = f->infer != NULL};
    gd_tensor *extra[GD_MAX_SAVED];
    GD_TRY(gd_function_forward(f, f->infer ? f->infer : f->forward, (gd_tensors){x, n_in}, a->user,
                               y, &state));
    s->n_extra = classify_saved(&state, (gd_tensors){x, n_in}, y, s->n_results, s->keeps, extra);
    for (int k = 0; k < s->n_results; k++) s->metas[k] = meta_of(y[k]);
    for (int k = 0; k < s->n_extra; k++) s->metas[s->n_results + k] = meta_of(extra[k]);
    return GD_OK;
}

/* The same in isolation: no graph, no tape, its own random generator. */
static gd_status call_isolated(const applied *a, gd_tensor *const *in, int n_in, int64_t unknown,
                               shapes *s) {
    gd_thread *thread = &gd_this_thread;
    gd_rng counter = {0, 0}, *replay_rng = thread->replay_rng;
    void *tracer = thread->tracer;
    const uint64_t as_of = gd_as_of;
    gd_attempt attempt;
    thread->tracer = NULL;
    thread->replay_rng = &counter;
    gd_as_of = 0;
    gd_attempt_begin(&attempt);
    gd_scope *scope = gd_scope_open();
    gd_status status = call_for_shapes(a, in, n_in, unknown, s);
    gd_scope_close(&scope);
    status = gd_attempt_end(&attempt, status);
    thread->tracer = tracer;
    thread->replay_rng = replay_rng;
    gd_as_of = as_of;
    if (status != GD_OK && status != GD_E_MEMORY && !a->function->infer) {
        gd_error_prefix(
            "%s: forward, called with placeholder values for the shapes of its results: ",
            gd_function_name(a->function));
        gd_error_suffix("; give the gd_function an infer");
    }
    return status;
}

/* Marks sizes as unknown that change with an unknown size. */
static gd_status merge_shapes(const applied *a, shapes *s, const shapes *other) {
    bool same = s->n_extra == other->n_extra && strcmp(s->keeps, other->keeps) == 0;
    for (int k = 0; k < s->n_results + s->n_extra && same; k++) {
        gd_meta *m = &s->metas[k];
        same = m->rank == other->metas[k].rank && m->dtype == other->metas[k].dtype;
        for (int d = 0; d < m->rank && same; d++)
            if (m->dims[d] != other->metas[k].dims[d]) m->dims[d] = GD_UNKNOWN;
    }
    return same ? GD_OK
                : gd_fail(GD_E_UNSUPPORTED,
                          "%s: the number or the ranks of its outputs or saved tensors change with "
                          "a size that is not known yet",
                          gd_function_name(a->function));
}

static void shapes_free(shapes *s) { gd_free(s->metas); }

static gd_status find_shapes(const applied *a, gd_tensor *const *in, int n_in, shapes *s) {
    const int n = gd_function_results(a->function);
    *s = (shapes){.n_results = n,
                  .metas = gd_calloc(2 * (size_t)(n + GD_MAX_SAVED), sizeof *s->metas)};
    if (!s->metas) return gd_no_memory(NULL, "for a function");
    bool unknown = false;
    for (int i = 0; i < n_in; i++)
        for (int d = 0; d < in[i]->rank; d++) unknown |= in[i]->dims[d] == GD_UNKNOWN;
    gd_status status = call_isolated(a, in, n_in, 2, s);
    shapes other = {.n_results = n, .metas = s->metas + n + GD_MAX_SAVED};
    if (status == GD_OK && unknown) status = call_isolated(a, in, n_in, 3, &other);
    if (status == GD_OK && unknown) status = merge_shapes(a, s, &other);
    if (status != GD_OK) shapes_free(s);
    return status;
}

static gd_status infer_call(gd_infer *i) {
    const gd_function_call_options *o = i->attrs;
    applied a;
    shapes s;
    GD_TRY(find_function(o->function, &a));
    GD_TRY(find_shapes(&a, i->in, i->n_in, &s));
    gd_status status = strcmp(s.keeps, o->keeps ? o->keeps : "") == 0 && s.n_results == o->results
                           ? gd_infer_outputs(i, s.n_results + s.n_extra)
                           : gd_fail(GD_E_STATE, "%s: its saved tensors differ between calls",
                                     gd_function_name(a.function));
    for (int k = 0; k < s.n_results + s.n_extra && status == GD_OK; k++) i->out[k] = s.metas[k];
    shapes_free(&s);
    return status;
}

gd_tensor *gd_shaped(gd_shape dims, gd_dtype dtype) {
    size_t bytes;
    gd_status status = gd_shape_bytes(dims, dtype, &bytes);
    gd_tensor *t = status == GD_OK
                       ? gd_tensor_bare(GD_META, gd_default_device(), dtype, dims.rank, dims.at)
                       : NULL;
    return t ? t : gd_tensor_fail(status != GD_OK ? status : GD_E_MEMORY);
}

/* --- nodes ------------------------------------------------------------------------------------ */

gd_status gd_function_trace(const gd_function *f, gd_tensors x, void *user, gd_tensor **y) {
    for (int64_t i = 0; i < x.count; i++)
        if (!x.at[i])
            return gd_fail(GD_E_ARGUMENT,
                           "%s: input %lld is NULL; in a graph a function takes tensors only",
                           gd_function_name(f), (long long)i);
    const applied a = {f, user};
    shapes s;
    const int number = function_number(f, user);
    if (number == 0) return GD_E_MEMORY;
    GD_TRY(find_shapes(&a, x.at, (int)x.count, &s));
    const gd_function_call_options o = {
        .name = gd_function_name(f), .function = number, .results = s.n_results, .keeps = s.keeps};
    gd_tensors made = gd_dispatch_list(gd_op_find("function_call"), NULL, x.at, (int)x.count, &o);
    const gd_status status = made.count == s.n_results + s.n_extra ? GD_OK : gd_failure();
    for (int k = 0; k < s.n_results && status == GD_OK; k++) y[k] = made.at[k];
    shapes_free(&s);
    return status;
}

/* Finds the saved tensors among inputs and outputs of the node. */
static void find_saved(const gd_function_call_options *o, gd_tensor *const *x, gd_tensor *const *y,
                       gd_function_state *state) {
    int other = (int)o->results;
    for (const char *at = o->keeps; at && *at; at = strchr(at, ' ') + 1) {
        const int number = *at == 's' ? other++ : atoi(at + 1);
        state->saved[state->n_saved++] = *at == 'x' ? x[number] : y[number];
    }
}

/* Runs backward as ops of the graph. */
static void trace_backward(const applied *a, gd_vjp *v, int n_out, gd_function_state *state) {
    gd_context context = {v->n_in, n_out, v->x, v->y, v->gy, v->needs, v->gx, a->user, state};
    a->function->backward(&context);
}

/* Adds a node that calls backward. */
static gd_status add_backward(const gd_function_call_options *o, gd_vjp *v,
                              const gd_function_state *state) {
    const int n = v->n_in, n_out = (int)o->results;
    gd_tensor **in = gd_calloc((size_t)(n + n_out + GD_MAX_SAVED), sizeof *in);
    char *words = gd_calloc((size_t)(n + n_out) + 2, 1), *needs = words, *gradients = words + n + 1;
    gd_status status = in && words ? GD_OK : gd_no_memory(NULL, "for a gradient");
    int count = 0;
    for (int i = 0; i < n && status == GD_OK; i++)
        in[count++] = v->x[i], needs[i] = v->needs[i] ? '1' : '0';
    for (int k = 0; k < n_out && status == GD_OK; k++) {
        gradients[k] = v->gy[k] ? '1' : '0';
        if (v->gy[k]) in[count++] = v->gy[k];
    }
    for (int s = 0; s < state->n_saved && status == GD_OK; s++) in[count++] = state->saved[s];
    if (status == GD_OK) {
        const gd_function_gradient_options b = {.name = o->name,
                                                .function = o->function,
                                                .inputs = n,
                                                .gradients = gradients,
                                                .needs = needs};
        const gd_tensors g = gd_dispatch_list(gd_op_find("function_gradient"), NULL, in, count, &b);
        for (int i = 0, k = 0; i < n && g.at; i++)
            if (v->needs[i] && k < g.count) v->gx[i] = g.at[k++];
        if (gd_failed()) status = gd_failure();
    }
    gd_free(in);
    gd_free(words);
    return status;
}

static void call_vjp(gd_vjp *v) {
    const gd_function_call_options *o = v->attrs;
    applied a;
    gd_function_state state = {.n_saved = 0};
    gd_status status = find_function(o->function, &a);
    if (status == GD_OK) find_saved(o, v->x, v->y, &state);
    if (status == GD_OK && a.function->backward_of_ops)
        trace_backward(&a, v, (int)o->results, &state);
    else if (status == GD_OK) status = add_backward(o, v, &state);
    if (status != GD_OK) gd_error_record(status);
}

/* --- calls ------------------------------------------------------------------------------------ */

static void free_copy(void *data, void *user) {
    (void)user;
    gd_free(data);
}

/* An operand of a kernel call as a tensor in the current scope that aliases its memory. */
static gd_tensor *alias_operand(const gd_view *view, gd_device *device, gd_storage **storage) {
    int64_t last = 0;
    for (int d = 0; d < view->rank; d++) last += (view->dims[d] - 1) * view->strides[d];
    const size_t bytes =
        gd_numel(view->rank, view->dims) == 0 ? 0 : (size_t)(last + 1) * gd_dtype_size(view->dtype);
    gd_tensor *t = gd_tensor_bare(GD_VALUE, device, view->dtype, view->rank, view->dims);
    if (!t) return NULL;
    t->storage = gd_storage_wrap(device, view->data, bytes, gd_storage_keep_foreign, NULL);
    if (!t->storage) return NULL;
    for (int d = 0; d < view->rank; d++) t->strides[d] = view->strides[d];
    gd_storage_retain(*storage = t->storage);
    if (gd_is_row_major(t->rank, t->dims, t->strides)) return t;
    gd_tensor *copy = gd_contiguous(t);
    return copy->kind == GD_FAILED ? NULL : copy;
}

/* After the call: a tensor that still aliases an operand gets a copy of it. */
static gd_status detach_storage(gd_storage *s) {
    gd_status status = GD_OK;
    if (s && atomic_load(&s->refs) > 1) {
        void *copy = gd_malloc(s->bytes ? s->bytes : 1);
        if (copy) {
            memcpy(copy, s->data, s->bytes);
            s->data = copy;
            s->deleter = free_copy;
        } else status = gd_no_memory(NULL, "for a tensor that the function has kept");
    }
    gd_storage_release(s);
    return status;
}

static gd_status write_output(const gd_function *f, const char *what, int i, gd_tensor *y,
                              gd_view *out) {
    char text[160], dims[128];
    if (y->kind != GD_VALUE || y->dtype != out->dtype || y->rank != out->rank ||
        memcmp(y->dims, out->dims, sizeof(int64_t) * y->rank) != 0)
        return gd_fail(GD_E_STATE, "%s: %s %d is %s, and was %s%s for other values of these shapes",
                       gd_function_name(f), what, i, gd_describe(y, text, sizeof text),
                       gd_dtype_name(out->dtype),
                       gd_shape_text(out->rank, out->dims, dims, sizeof dims));
    if (!y->device->api->host_reads)
        return gd_fail(GD_E_DEVICE, "%s: %s %d is on %s", gd_function_name(f), what, i,
                       y->device->name);
    const gd_view from = gd_view_of(y);
    if (out->data) gd_copy_elements(out, &from);
    return GD_OK;
}

/* A kernel call with its operands as tensors. */
typedef struct function_run {
    applied a;
    gd_tensor **in;
    gd_storage **storages;
} function_run;

static gd_status run_kernel(gd_kernel_call *k, int64_t number,
                            gd_status (*body)(gd_kernel_call *, function_run *)) {
    function_run c;
    gd_thread *thread = &gd_this_thread;
    void *tracer = thread->tracer;
    GD_TRY(find_function(number, &c.a));
    c.in = gd_calloc((size_t)k->n_in + 1, sizeof *c.in + sizeof *c.storages);
    if (!c.in) return gd_no_memory(NULL, "for a function");
    c.storages = (gd_storage **)(c.in + k->n_in + 1);
    gd_attempt attempt;
    thread->tracer = NULL;
    gd_attempt_begin(&attempt);
    gd_scope *scope = gd_scope_open();
    int grad = gd_no_grad_begin();
    gd_status status = GD_OK;
    for (int i = 0; i < k->n_in && status == GD_OK; i++)
        if (!(c.in[i] = alias_operand(&k->in[i], k->device, &c.storages[i]))) status = gd_failure();
    if (status == GD_OK) status = body(k, &c);
    gd_grad_mode_end(&grad);
    gd_scope_close(&scope);
    status = gd_attempt_end(&attempt, status);
    thread->tracer = tracer;
    for (int i = 0; i < k->n_in; i++) {
        const gd_status kept = detach_storage(c.storages[i]);
        if (status == GD_OK) status = kept;
    }
    gd_free(c.in);
    return status;
}

static gd_status call_forward(gd_kernel_call *k, function_run *c) {
    const gd_function_call_options *o = k->attrs;
    const gd_function *f = c->a.function;
    const int n_out = (int)o->results;
    gd_function_state state = {.n_saved = 0};
    gd_tensor *extra[GD_MAX_SAVED], **y = gd_list_new(n_out);
    char keeps[KEEPS];
    if (!y) return GD_E_MEMORY;
    const gd_tensors x = {c->in, k->n_in};
    GD_TRY(gd_function_forward(f, f->forward, x, c->a.user, y, &state));
    const int n_extra = classify_saved(&state, x, y, n_out, keeps, extra);
    if (strcmp(keeps, o->keeps ? o->keeps : "") != 0 || n_out + n_extra != k->n_out)
        return gd_fail(
            GD_E_STATE,
            "%s: forward saves other tensors than it did for other values of these shapes%s",
            gd_function_name(f), f->infer ? ", by its infer" : "");
    for (int i = 0; i < n_out; i++) GD_TRY(write_output(f, "result", i, y[i], &k->out[i]));
    for (int i = 0; i < n_extra; i++)
        GD_TRY(write_output(f, "saved tensor", i, extra[i], &k->out[n_out + i]));
    return GD_OK;
}

/* Writes a gradient, which may have the broadcast shape or a wider dtype, or be missing, as on the
 * tape. */
static gd_status write_gradient(const gd_function *f, int i, gd_tensor *g, gd_view *out) {
    const gd_shape shape = gd_shape_of(out->rank, out->dims);
    if (!g) g = gd_full(shape, 0, .dtype = out->dtype);
    if (g->kind != GD_FAILED &&
        (g->rank != out->rank || memcmp(g->dims, out->dims, sizeof(int64_t) * g->rank) != 0))
        g = gd_sum_to(g, shape);
    if (g->kind != GD_FAILED && g->dtype != out->dtype) g = gd_cast(g, out->dtype);
    return g->kind == GD_FAILED ? gd_failure()
                                : write_output(f, "the gradient of input", i, g, out);
}

static gd_status call_backward(gd_kernel_call *k, function_run *c) {
    const gd_function_gradient_options *o = k->attrs;
    const gd_function *f = c->a.function;
    const int n = (int)o->inputs, n_out = gd_function_results(f);
    gd_tensor **x = gd_list_new(n), **gx = gd_list_new(n), **gy = gd_list_new(n_out),
              **y = gd_list_new(n_out);
    bool *needs = gd_calloc((size_t)n + 1, sizeof *needs);
    gd_function_state state = {.n_saved = 0};
    gd_status status = x && gx && gy && y && needs ? GD_OK : gd_no_memory(NULL, "for a gradient");
    int at = n, made = 0;
    for (int i = 0; i < n && status == GD_OK; i++) {
        needs[i] = o->needs[i] == '1';
        x[i] = gd_tensor_bare(GD_META, k->device, k->in[i].dtype, k->in[i].rank, k->in[i].dims);
        if (!x[i]) status = GD_E_MEMORY;
    }
    for (int i = 0; i < n_out && status == GD_OK; i++)
        if (o->gradients[i] == '1') gy[i] = c->in[at++];
    while (status == GD_OK && at < k->n_in && state.n_saved < GD_MAX_SAVED)
        state.saved[state.n_saved++] = c->in[at++];
    gd_context context = {n, n_out, x, y, gy, needs, gx, c->a.user, &state};
    if (status == GD_OK) f->backward(&context);
    if (status == GD_OK && gd_failed()) status = gd_failure();
    for (int i = 0; i < n && status == GD_OK; i++)
        if (needs[i]) status = write_gradient(f, i, gx[i], &k->out[made++]);
    gd_free(needs);
    return status;
}

static gd_status run_forward(gd_kernel_call *k) {
    return run_kernel(k, ((const gd_function_call_options *)k->attrs)->function, call_forward);
}
static gd_status run_backward(gd_kernel_call *k) {
    return run_kernel(k, ((const gd_function_gradient_options *)k->attrs)->function, call_backward);
}

static void __attribute__((constructor)) set_hooks(void) {
    gd_function_hooks = (gd_function_rules){infer_call, run_forward, run_backward, call_vjp};
}
