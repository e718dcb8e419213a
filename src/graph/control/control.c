/* control.c - gd_cond, gd_while_loop, gd_scan and gd_foldl: they run eagerly with values, and are
 * traced with symbols. */
#include "gradus/control.h"

#include <string.h>

#include "core/alloc.h"
#include "core/frame.h"
#include "graph/control/run.h"
#include "gradus/ops.h"

/* Records a failure, unless an error inside a body was recorded with its own place. */
static void fail_call(const char *name, const char *site, gd_status status) {
    if (gd_this_thread.recorded != GD_OK) return;
    gd_error_prefix("%s: ", name);
    gd_error_location(site);
    gd_error_record(status);
}

/* Makes a list of the current scope from part of `h`. */
static gd_status make_result_list(gd_held *h, int from, int count, gd_tensors *list) {
    gd_tensor **at = gd_list_new(count);
    if (!at || gd_scope_reserve((size_t)count) != GD_OK) return GD_E_MEMORY;
    for (int i = 0; i < count; i++) {
        at[i] = gd_retain(h->at[from + i]);
        gd_scope_adopt(&at[i]->object);
    }
    *list = (gd_tensors){at, count};
    return GD_OK;
}

static gd_status check_inputs(gd_tensors list, const char *what) {
    if (list.count < 0 || list.count > 1 << 20 || (list.count > 0 && !list.at))
        return gd_fail(GD_E_ARGUMENT, "a list of %lld %s", (long long)list.count, what);
    for (int64_t i = 0; i < list.count; i++) {
        if (!list.at[i]) return gd_fail(GD_E_ARGUMENT, "%s %lld is NULL", what, (long long)i);
        if (list.at[i]->kind == GD_FAILED) return gd_failure();
    }
    return GD_OK;
}

static bool is_traced_call(gd_tensors list) {
    for (int64_t i = 0; i < list.count; i++)
        if (list.at[i]->kind == GD_SYMBOL) return true;
    return gd_this_thread.tracer != NULL;
}

static const gd_running eager = {.run = 0};

/* Adds the node. Its inputs are both lists, then the captured tensors. */
static gd_status add_node(const gd_op *op, const char *site, gd_tensors first, gd_tensors second,
                          const gd_capturing *c, const void *attrs, gd_held *out) {
    const int64_t n = first.count + second.count + c->count;
    gd_tensor **in = gd_malloc((size_t)n * sizeof *in + 1);
    if (!in) return gd_no_memory(NULL, "for a node of the graph");
    if (first.count) memcpy(in, first.at, (size_t)first.count * sizeof *in);
    if (second.count) memcpy(in + first.count, second.at, (size_t)second.count * sizeof *in);
    if (c->count)
        memcpy(in + first.count + second.count, c->captured, (size_t)c->count * sizeof *in);
    gd_scope *scope = gd_scope_open();
    gd_tensors y = gd_dispatch_list(op, site, in, (int)n, attrs);
    gd_status status = y.at ? gd_held_init(out, y.at, y.count) : gd_failure();
    gd_scope_close(&scope);
    gd_free(in);
    return status;
}

/* The shapes of `first`, then those of `sliced` without the first axis, as each step gets them. */
static GD_OWN_FRAME void fill_metas(gd_tensors first, gd_tensors sliced, gd_meta *metas) {
    for (int64_t i = 0; i < first.count; i++) metas[i] = gd_meta_of(first.at[i]);
    for (int64_t i = 0; i < sliced.count; i++) {
        gd_meta m = gd_meta_of(sliced.at[i]), *x = &metas[first.count + i];
        *x = m;
        x->rank = m.rank - 1;
        memcpy(x->dims, m.dims + 1, sizeof(int64_t) * (GD_MAX_RANK - 1));
    }
}

static gd_status trace_body(gd_body body, void *user, gd_tensors first, gd_tensors sliced,
                            const char *what, gd_subgraph **made) {
    const int64_t n = first.count + sliced.count;
    gd_meta *metas = gd_malloc((size_t)(n + 1) * sizeof *metas);
    if (!metas) return gd_no_memory(NULL, "for the graph of a function");
    fill_metas(first, sliced, metas);
    gd_status status = gd_subgraph_trace(body, user, metas, (int)n, made);
    gd_free(metas);
    if (status != GD_OK && gd_this_thread.recorded == GD_OK) gd_error_prefix("%s: ", what);
    return status;
}

static void release_subgraphs(gd_subgraph *a, gd_subgraph *b) {
    gd_subgraph_release(a);
    gd_subgraph_release(b);
}

/* --- cond ------------------------------------------------------------------------------------- */

static GD_OWN_FRAME gd_status check_branches(const gd_subgraph *yes, const gd_subgraph *no) {
    char a[160], b[160];
    if (yes->n_out != no->n_out)
        return gd_fail(GD_E_ARGUMENT, "`yes` returns %d tensors, `no` %d", yes->n_out, no->n_out);
    for (int k = 0; k < yes->n_out; k++)
        if (!gd_metas_alike(&yes->metas[k], &no->metas[k]))
            return gd_fail(yes->metas[k].dtype != no->metas[k].dtype ? GD_E_DTYPE : GD_E_SHAPE,
                           "result %d is %s from `yes` and %s from `no`; both branches must return "
                           "the same shapes and dtypes",
                           k, gd_meta_text(&yes->metas[k], a, sizeof a),
                           gd_meta_text(&no->metas[k], b, sizeof b));
    return GD_OK;
}

static GD_OWN_FRAME gd_status check_predicate(const gd_tensor *predicate) {
    const gd_meta m = gd_meta_of(predicate);
    return gd_check_condition(&m, "predicate");
}

static gd_status trace_cond(const char *site, gd_tensor *predicate, gd_body yes, gd_body no,
                            gd_tensors inputs, void *user, gd_held *out) {
    gd_capturing c = {NULL, 0, 0};
    gd_subgraph *subs[2] = {NULL, NULL};
    GD_TRY(check_predicate(predicate));
    gd_status status = trace_body(yes, user, inputs, (gd_tensors){NULL, 0}, "`yes`", &subs[0]);
    if (status == GD_OK)
        status = trace_body(no, user, inputs, (gd_tensors){NULL, 0}, "`no`", &subs[1]);
    if (status == GD_OK) status = check_branches(subs[0], subs[1]);
    if (status == GD_OK) status = gd_subgraph_close(&c, subs, 2);
    if (status == GD_OK)
        status = add_node(gd_op_find("cond_graph"), site, (gd_tensors){&predicate, 1}, inputs, &c,
                          &(gd_cond_graph_options){.yes = subs[0], .no = subs[1]}, out);
    release_subgraphs(subs[0], subs[1]);
    gd_capturing_free(&c);
    return status;
}

gd_tensors gd_cond_at(const char *site, gd_tensor *predicate, gd_body yes, gd_body no,
                      gd_tensors inputs, void *user) {
    gd_held out = {NULL, 0};
    gd_tensors list = {NULL, 0};
    gd_scope *scope = gd_scope_open();
    gd_status status = yes && no ? check_inputs((gd_tensors){&predicate, 1}, "predicate")
                                 : gd_fail(GD_E_ARGUMENT, "a branch is NULL");
    if (status == GD_OK) status = check_inputs(inputs, "input");
    if (status == GD_OK && (is_traced_call(inputs) || predicate->kind == GD_SYMBOL))
        status = trace_cond(site, predicate, yes, no, inputs, user, &out);
    else if (status == GD_OK)
        status = gd_run_cond(predicate, &(gd_callee){.body = yes, .user = user},
                             &(gd_callee){.body = no, .user = user}, inputs.at, (int)inputs.count,
                             &out, &eager);
    gd_scope_close(&scope);
    if (status == GD_OK) status = make_result_list(&out, 0, out.count, &list);
    if (status != GD_OK) fail_call("gd_cond", site, status);
    gd_held_release(&out);
    return status == GD_OK ? list : gd_list_of_errors(inputs.count);
}

/* --- while ------------------------------------------------------------------------------------ */

/* Checks the shape that the body returns for state k, and sets it to the initial one. Each step
 * checks it again. */
static GD_OWN_FRAME gd_status check_and_keep_state(const gd_tensor *state, gd_meta *given, int k) {
    const gd_meta before = gd_meta_of(state);
    GD_TRY(gd_check_state(&before, given, k));
    *given = before;
    return GD_OK;
}

static gd_status trace_while(const char *site, gd_body condition, gd_body body, gd_tensors state,
                             void *user, int64_t max_steps, gd_held *out) {
    gd_capturing c = {NULL, 0, 0};
    gd_subgraph *subs[2] = {NULL, NULL};
    const gd_tensors none = {NULL, 0};
    gd_status status = trace_body(condition, user, state, none, "the condition", &subs[0]);
    if (status == GD_OK && subs[0]->n_out != 1)
        status = gd_fail(GD_E_ARGUMENT, "the condition returns %d tensors, not 1", subs[0]->n_out);
    if (status == GD_OK) status = gd_check_condition(&subs[0]->metas[0], "condition");
    if (status == GD_OK) status = trace_body(body, user, state, none, "the body", &subs[1]);
    if (status == GD_OK && subs[1]->n_out != state.count)
        status = gd_fail(GD_E_ARGUMENT, "the body returns %d tensors for a state of %lld",
                         subs[1]->n_out, (long long)state.count);
    for (int k = 0; k < state.count && status == GD_OK; k++)
        status = check_and_keep_state(state.at[k], &subs[1]->metas[k], k);
    if (status == GD_OK) status = gd_subgraph_close(&c, subs, 2);
    if (status == GD_OK)
        status = add_node(
            gd_op_find("while_graph"), site, state, none, &c,
            &(gd_while_graph_options){.condition = subs[0],
                                      .body = subs[1],
                                      .state = state.count,
                                      .max_steps = max_steps == INT64_MAX ? GD_UNSET : max_steps},
            out);
    release_subgraphs(subs[0], subs[1]);
    gd_capturing_free(&c);
    return status;
}

gd_tensors gd_while_loop_at(const char *site, gd_body condition, gd_body body, gd_tensors state,
                            void *user, const gd_while_loop_options *o) {
    o = o ? o : GD_WHILE_LOOP_OPTIONS_();
    gd_held out = {NULL, 0};
    gd_tensors list = {NULL, 0};
    const int64_t max_steps = o->max_steps;
    gd_scope *scope = gd_scope_open();
    gd_status status = condition && body ? check_inputs(state, "state")
                                         : gd_fail(GD_E_ARGUMENT, "a function is NULL");
    if (status == GD_OK && state.count < 1) status = gd_fail(GD_E_ARGUMENT, "the state is empty");
    if (status == GD_OK && is_traced_call(state))
        status = trace_while(site, condition, body, state, user, max_steps, &out);
    else if (status == GD_OK) {
        status = gd_held_init(&out, state.at, state.count);
        if (status == GD_OK)
            status =
                gd_run_while(&(gd_callee){.body = condition, .user = user},
                             &(gd_callee){.body = body, .user = user}, &out, max_steps, &eager);
    }
    gd_scope_close(&scope);
    if (status == GD_OK) status = make_result_list(&out, 0, out.count, &list);
    if (status != GD_OK) fail_call("gd_while_loop", site, status);
    gd_held_release(&out);
    return status == GD_OK ? list : gd_list_of_errors(state.count);
}

/* --- scan ------------------------------------------------------------------------------------- */

static gd_status check_xs(gd_tensors xs) {
    GD_TRY(check_inputs(xs, "input"));
    if (xs.count < 1) return gd_fail(GD_E_ARGUMENT, "the list of inputs is empty");
    for (int64_t i = 0; i < xs.count; i++) {
        const gd_tensor *x = xs.at[i], *first = xs.at[0];
        if (x->rank < 1)
            return gd_fail(GD_E_SHAPE,
                           "input %lld has no axis to scan along: it is a single number",
                           (long long)i);
        if (x->dims[0] != first->dims[0] && x->dims[0] != GD_UNKNOWN &&
            first->dims[0] != GD_UNKNOWN)
            return gd_fail(GD_E_SHAPE, "input %lld has %lld positions, the first one %lld",
                           (long long)i, (long long)x->dims[0], (long long)first->dims[0]);
    }
    return GD_OK;
}

static gd_status trace_scan(const char *site, gd_body body, gd_tensors state, gd_tensors xs,
                            void *user, bool reverse, gd_held *out) {
    gd_capturing c = {NULL, 0, 0};
    gd_subgraph *sub = NULL;
    gd_status status = trace_body(body, user, state, xs, "the body", &sub);
    if (status == GD_OK && sub->n_out < state.count)
        status = gd_fail(GD_E_ARGUMENT, "the body returns %d tensors for a state of %lld",
                         sub->n_out, (long long)state.count);
    for (int k = 0; status == GD_OK && k < sub->n_out; k++) {
        gd_meta *m = &sub->metas[k];
        if (k < state.count) status = check_and_keep_state(state.at[k], m, k);
        else if (m->rank == GD_MAX_RANK)
            status = gd_fail(GD_E_SHAPE, "result %d has too many dimensions", k);
    }
    if (status == GD_OK) status = gd_subgraph_close(&c, &sub, 1);
    if (status == GD_OK)
        status =
            add_node(gd_op_find("scan_graph"), site, state, xs, &c,
                     &(gd_scan_graph_options){
                         .body = sub, .state = state.count, .xs = xs.count, .reverse = reverse},
                     out);
    gd_subgraph_release(sub);
    gd_capturing_free(&c);
    return status;
}

static gd_status run_scan_eagerly(gd_body body, gd_tensors state, gd_tensors xs, void *user,
                                  bool reverse, gd_held *out) {
    gd_held now = {NULL, 0};
    GD_TRY(gd_held_init(&now, state.at, state.count));
    gd_status status =
        gd_run_scan(&(gd_callee){.body = body, .user = user}, &now, xs, reverse, out, &eager);
    gd_held_release(&now);
    return status;
}

static gd_status run_or_trace_scan(const char *site, gd_body body, gd_tensors state, gd_tensors xs,
                                   void *user, bool reverse, gd_held *out) {
    gd_scope *scope = gd_scope_open();
    gd_status status =
        body ? check_inputs(state, "state") : gd_fail(GD_E_ARGUMENT, "the body is NULL");
    if (status == GD_OK) status = check_xs(xs);
    if (status == GD_OK)
        status = is_traced_call(state) || is_traced_call(xs)
                     ? trace_scan(site, body, state, xs, user, reverse, out)
                     : run_scan_eagerly(body, state, xs, user, reverse, out);
    gd_scope_close(&scope);
    return status;
}

gd_scanned gd_scan_at(const char *site, gd_body body, gd_tensors state, gd_tensors xs, void *user,
                      const gd_scan_options *o) {
    o = o ? o : GD_SCAN_OPTIONS_();
    gd_held out = {NULL, 0};
    gd_scanned result = {{NULL, 0}, {NULL, 0}};
    gd_status status = run_or_trace_scan(site, body, state, xs, user, o->reverse, &out);
    const int n = (int)state.count;
    if (status == GD_OK) status = make_result_list(&out, 0, n, &result.state);
    if (status == GD_OK) status = make_result_list(&out, n, out.count - n, &result.ys);
    if (status != GD_OK) fail_call("gd_scan", site, status);
    gd_held_release(&out);
    return status == GD_OK ? result
                           : (gd_scanned){gd_list_of_errors(state.count), gd_list_of_errors(1)};
}

typedef struct fold_function {
    gd_fn step;
    void *user;
} fold_function;

static gd_tensors fold_step(gd_tensors in, void *user) {
    const fold_function *f = user;
    return gd_listed(f->step(in, f->user));
}

gd_tensor *gd_foldl_at(const char *site, gd_fn step, gd_tensor *initial, gd_tensors xs,
                       void *user) {
    gd_held out = {NULL, 0};
    fold_function f = {step, user};
    gd_status status =
        step ? run_or_trace_scan(site, fold_step, (gd_tensors){&initial, 1}, xs, &f, false, &out)
             : gd_fail(GD_E_ARGUMENT, "the step is NULL");
    if (status == GD_OK) status = gd_scope_reserve(1);
    if (status != GD_OK) fail_call("gd_foldl", site, status);
    gd_tensor *y = status == GD_OK ? gd_retain(out.at[0]) : &gd_error_tensor;
    if (status == GD_OK) gd_scope_adopt(&y->object);
    gd_held_release(&out);
    return y;
}
