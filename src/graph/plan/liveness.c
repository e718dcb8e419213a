/* liveness.c - decides where the roots of a plan lie: which values share memory, which are computed
 * directly in variables, and the offsets of temporaries in the slab. */
#include <string.h>

#include "core/alloc.h"
#include "graph/plan/build.h"
#include "graph/plan/memory.h"
#include "dispatch/fused.h"
#include "dispatch/launch.h"

/* --- lifetimes -------------------------------------------------------------------------------- */

typedef struct liveness {
    int *begin, *end; /* per root: the first and the last call that uses it; -1: none */
    int *same;        /* per root: the root whose memory it shares; itself if none */
    bool *risks;      /* per step of the program: it may fail */
} liveness;

static void extend_life(liveness *l, int root, int call) {
    if (root < 0) return;
    if (l->begin[root] < 0) l->begin[root] = call;
    l->end[root] = call;
}

static void find_lives(const gd_plan *plan, liveness *l) {
    for (int i = 0; i < plan->n_calls; i++) {
        const gd_pcall *c = &plan->calls[i];
        for (int v = c->first; v < c->first + c->n_in + c->n_out; v++)
            extend_life(l, plan->bindings[v].root, i);
        for (int k = c->first_copy; k < c->first_copy + c->n_before + c->n_after; k++) {
            extend_life(l, plan->bindings[plan->copies[k].to].root, i);
            extend_life(l, plan->bindings[plan->copies[k].from].root, i);
        }
        if (c->workspace >= 0) extend_life(l, plan->bindings[c->workspace].root, i);
    }
    for (int i = 0; i < plan->program->n_commits; i++) {
        const int root = plan->program->values[plan->program->commits[i].value].root;
        extend_life(l, root, plan->n_calls);
    }
}

static int final_root(const liveness *l, int root) {
    while (root >= 0 && l->same[root] != root) root = l->same[root];
    return root;
}

/* Lists the views of each root. */
static gd_status index_views(gd_plan *plan, const liveness *l) {
    const int n = plan->program->n_roots;
    gd_free(plan->first_view); /* of an earlier list */
    gd_free(plan->views_of);
    plan->first_view = gd_calloc((size_t)n + 2, sizeof *plan->first_view);
    plan->views_of = gd_malloc((size_t)(plan->n_views + 1) * sizeof *plan->views_of);
    if (!plan->first_view || !plan->views_of) return gd_no_memory(NULL, "to plan a run");
    for (int v = 0; v < plan->n_views; v++) {
        plan->bindings[v].root = final_root(l, plan->bindings[v].root);
        if (plan->bindings[v].root >= 0) plan->first_view[plan->bindings[v].root + 1]++;
    }
    for (int r = 0; r < n; r++) plan->first_view[r + 1] += plan->first_view[r];
    int *at = gd_malloc((size_t)(n + 1) * sizeof *at);
    if (!at) return gd_no_memory(NULL, "to plan a run");
    memcpy(at, plan->first_view, (size_t)n * sizeof *at);
    for (int v = 0; v < plan->n_views; v++)
        if (plan->bindings[v].root >= 0) plan->views_of[at[plan->bindings[v].root]++] = v;
    gd_free(at);
    return GD_OK;
}

/* Whether the view covers all of its root, in any order of its axes. */
static bool covers_root(const gd_plan *plan, int view) {
    const gd_view *v = &plan->views[view];
    const gd_binding *b = &plan->bindings[view];
    return b->root >= 0 && b->offset == 0 && gd_is_dense(v->rank, v->dims, v->strides) &&
           (size_t)gd_numel(v->rank, v->dims) * gd_dtype_size(v->dtype) ==
               plan->program->roots[b->root].bytes;
}

static bool same_layout(const gd_view *a, const gd_view *b) {
    if (a->rank != b->rank || gd_dtype_size(a->dtype) != gd_dtype_size(b->dtype)) return false;
    return memcmp(a->dims, b->dims, sizeof(int64_t) * (size_t)a->rank) == 0 &&
           gd_same_strides(a->rank, a->dims, a->strides, b->strides);
}

/* The operands with which result `o` of an elementwise call is computed: all of them, or, in a list
 * step, those of its entry. Other entries run at the same time. */
typedef struct operand_range {
    int first, end;
} operand_range;

static operand_range operands_of(const gd_pcall *c, int o) {
    const int each = c->step->each, inputs = c->step->op->n_inputs;
    if (each < 2) return (operand_range){c->first, c->first + c->n_in};
    /* n_in = each * width + scalars, and the op has width + scalars inputs */
    const int width = (c->n_in - inputs) / (each - 1),
              entry = (o - c->first - c->n_in) / (c->n_out / each),
              first = c->first + entry * width;
    return (operand_range){first, first + width};
}

/* Whether all operands of the call in this root belong to `range` and cover all of the root in the
 * order of the result: an elementwise kernel then reads each element before it writes the result at
 * the same address. */
static bool reads_in_order(const gd_plan *plan, const gd_pcall *c, operand_range range, int root,
                           const gd_view *like) {
    for (int i = plan->first_view[root]; i < plan->first_view[root + 1]; i++) {
        const int v = plan->views_of[i];
        if (v >= c->first && v < c->first + c->n_in &&
            (v < range.first || v >= range.end || !covers_root(plan, v) ||
             !same_layout(&plan->views[v], like)))
            return false;
    }
    return true;
}

/* Lets an elementwise result share the memory of an operand that is dead after the call. */
static void share_in_place(const gd_plan *plan, liveness *l) {
    const gd_program *p = plan->program;
    for (int i = 0; i < plan->n_calls; i++) {
        const gd_pcall *c = &plan->calls[i];
        const gd_fusion *fusion = c->step->op->fusion;
        const bool reduces = fusion && fusion->reduction; /* the last result has another shape */
        if ((!c->step->op->ir && !fusion) || c->n_before || c->n_after) continue;
        for (int o = c->first + c->n_in; o < c->first + c->n_in + c->n_out - reduces; o++) {
            const int out = plan->bindings[o].root;
            if (out < 0 || p->roots[out].kind != GD_ROOT_TEMPORARY || p->roots[out].fetched ||
                l->begin[out] != i || l->same[out] != out || !covers_root(plan, o))
                continue;
            const operand_range range = operands_of(c, o);
            for (int v = range.first; v < range.end; v++) {
                int in = plan->bindings[v].root;
                if (in < 0 || in == out || p->roots[in].kind != GD_ROOT_TEMPORARY ||
                    p->roots[in].fetched || l->end[in] != i || l->begin[in] == i ||
                    !reads_in_order(plan, c, range, in, &plan->views[o]))
                    continue;
                in = l->same[in];
                if (p->roots[in].kind != GD_ROOT_TEMPORARY || l->end[in] > i) continue;
                l->same[out] = in;
                l->end[in] = l->end[out];
                break;
            }
        }
    }
}

/* --- commits that need no copy ---------------------------------------------------------------- */

/* The library's kernels allocate nothing, except matrix products, for which the device has a
 * reserve. A kernel that a program has registered may fail at any time. */
static bool may_fail(const gd_plan *plan, const liveness *l, const gd_pcall *c) {
    const gd_op *op = c->step->op;
    return l->risks[c->step - plan->program->steps] ||
           ((op->flags & GD_OP_USER) && c->kernel == op->reference);
}

/* The last call that may fail; -1: none. */
static int find_last_risk(const gd_plan *plan, const liveness *l) {
    int i = plan->n_calls - 1;
    while (i >= 0 && !may_fail(plan, l, &plan->calls[i])) i--;
    return i;
}

/* The view of the first result of a call that is in a root. */
static int result_in(const gd_plan *plan, const gd_pcall *k, int root) {
    const int first = k->first + k->n_in, end = first + k->n_out;
    for (int i = plan->first_view[root]; i < plan->first_view[root + 1]; i++)
        if (plan->views_of[i] >= first && plan->views_of[i] < end) return plan->views_of[i];
    return end - 1;
}

/* Whether the call, which computes the new value of the root, reads each element of the old one only
 * to compute the same element. */
static bool updates_in_order(const gd_plan *plan, const gd_pcall *k, int root,
                             const gd_pvalue *fresh) {
    const gd_view like = gd_program_view(fresh);
    const operand_range range = operands_of(k, result_in(plan, k, fresh->root));
    for (int i = plan->first_view[root]; i < plan->first_view[root + 1]; i++) {
        const int x = plan->views_of[i];
        if (x < k->first || x >= k->first + k->n_in) continue;
        const gd_view *old = &plan->views[x];
        if (x < range.first || x >= range.end) return false;
        if (!k->step->op->ir || k->n_before || k->n_after || plan->bindings[x].offset != 0 ||
            !gd_is_row_major(old->rank, old->dims, old->strides) || !same_layout(old, &like) ||
            old->dtype != like.dtype)
            return false;
    }
    return true;
}

/* The new value of a variable may be computed in the variable's memory if no later call reads the
 * old value, and no later call can fail. */
static bool can_write_through(const gd_plan *plan, const liveness *l, const gd_commit *c,
                              int risk) {
    const gd_program *p = plan->program;
    const gd_pvalue *v = &p->values[c->value];
    const gd_root *root = &p->roots[v->root];
    if (root->kind != GD_ROOT_TEMPORARY || root->fetched || !gd_commit_fills_alone(p, c) ||
        root->bytes != p->roots[c->root].bytes || v->offset != 0 ||
        !gd_is_row_major(v->rank, v->dims, v->strides))
        return false;
    const int made = l->begin[v->root];
    if (made < 0 || made >= plan->n_calls) return false;
    const gd_pcall *producer =
        &plan->calls[made]; /* perhaps a copy of the variable, updated later */
    const bool copied =
        gd_step_copies(p, producer->step) && plan->bindings[producer->first].root == c->root;
    int written = made;
    if (copied)
        for (written = made + 1; written < plan->n_calls; written++) {
            const gd_pcall *k = &plan->calls[written];
            bool writes = false;
            for (int o = k->first + k->n_in; o < k->first + k->n_in + k->n_out; o++)
                writes |= plan->bindings[o].root == v->root;
            if (writes) break;
        }
    if (written == plan->n_calls) return false; /* no call updates the copy */
    /* a kernel that does not check the device's error word must not write a variable */
    if (!plan->device->api->host_reads && !(plan->calls[written].kernel->flags & GD_KERNEL_CHECKED))
        return false;
    return risk <= written && l->end[c->root] <= written &&
           updates_in_order(plan, &plan->calls[written], c->root, v);
}

/* Adds one call that copies the values of all these commits, if the device has a kernel for lists.
 * It is the last call, so that no later one can fail. */
static gd_status add_commit_call(gd_plan *plan, const int *commits, int n, bool *added) {
    gd_program *p = plan->program;
    *added = false;
    if (n < 2 || plan->on_host || !gd_list_kernel_exists(plan->device->api->kind)) return GD_OK;
    gd_pstep *s = gd_program_alloc(p, sizeof *s);
    int *values = gd_program_alloc(p, 2 * (size_t)n * sizeof *values);
    if (!s || !values) return GD_E_MEMORY;
    for (int i = 0; i < n; i++) {
        values[i] = p->commits[commits[i]].value;
        values[n + i] = p->commits[commits[i]].to;
    }
    *s = (gd_pstep){.op = gd_op_find("clone"),
                    .each = n,
                    .n_in = n,
                    .n_out = n,
                    .in = values,
                    .out = values + n};
    if (!gd_step_kernel(p, s, plan->device)) return GD_OK;
    *added = true;
    return gd_plan_add_call(plan, s);
}

static gd_status add_commit_copies(gd_plan *plan, const int *commits, int n) {
    const gd_program *p = plan->program;
    bool added;
    plan->first_commit_copy = plan->n_copies;
    GD_TRY(add_commit_call(plan, commits, n, &added));
    for (int i = 0; i < n && !added; i++) {
        int to, from;
        GD_TRY(gd_plan_add_value_view(plan, p->commits[commits[i]].to, &to));
        GD_TRY(gd_plan_add_value_view(plan, p->commits[commits[i]].value, &from));
        GD_TRY(gd_plan_add_copy(plan, to, from));
        plan->n_commit_copies++;
    }
    return GD_OK;
}

static gd_status place_commits(gd_plan *plan, liveness *l) {
    gd_program *p = plan->program;
    const int risk = find_last_risk(plan, l);
    int *copied = gd_malloc(((size_t)p->n_commits + 1) * sizeof *copied), n = 0;
    if (!copied) return gd_no_memory(NULL, "to plan a run");
    for (int i = 0; i < p->n_commits; i++) {
        gd_commit *c = &p->commits[i];
        const int root = p->values[c->value].root;
        c->through = l->same[root] == root && can_write_through(plan, l, c, risk);
        if (c->through) l->same[root] = c->root;
        else copied[n++] = i;
    }
    const gd_status status = add_commit_copies(plan, copied, n);
    gd_free(copied);
    return status;
}

/* --- memory ----------------------------------------------------------------------------------- */

static gd_status place_roots(gd_plan *plan, liveness *l) {
    const gd_program *p = plan->program;
    gd_span *spans = gd_malloc((size_t)(p->n_roots + 1) * sizeof *spans);
    int *span_of = gd_malloc((size_t)(p->n_roots + 1) * sizeof *span_of), n = 0;
    plan->places = gd_calloc((size_t)p->n_roots + 1, sizeof *plan->places);
    if (!spans || !span_of || !plan->places) {
        gd_free(spans);
        gd_free(span_of);
        return gd_no_memory(NULL, "to plan a run");
    }
    for (int r = 0; r < p->n_roots; r++) {
        span_of[r] = -1;
        if (p->roots[r].kind != GD_ROOT_TEMPORARY || p->roots[r].fetched || l->same[r] != r ||
            l->begin[r] < 0)
            continue;
        span_of[r] = n;
        spans[n++] = (gd_span){.bytes = gd_plan_align(plan->device, p->roots[r].bytes),
                               .begin = l->begin[r],
                               .end = l->end[r]};
    }
    gd_status status = gd_place_spans(spans, n, &plan->slab, &plan->live);
    for (int r = 0; r < p->n_roots && status == GD_OK; r++)
        if (span_of[r] >= 0) plan->places[r] = (gd_slab_place){true, spans[span_of[r]].offset};
    gd_free(spans);
    gd_free(span_of);
    return status;
}

/* Removes copies of a variable to itself, which remain where its copy is updated in place. */
static void drop_self_copies(gd_plan *plan) {
    int kept = 0;
    for (int i = 0; i < plan->n_calls; i++) {
        const gd_pcall c = plan->calls[i];
        const gd_binding *from = &plan->bindings[c.first], *to = &plan->bindings[c.first + c.n_in];
        bool self_copy = gd_step_copies(plan->program, c.step) && from->root == to->root &&
                         from->offset == to->offset;
        if (!self_copy) plan->calls[kept++] = c;
        else gd_prepared_release(c.prepared);
    }
    plan->n_calls = kept;
}

gd_status gd_plan_assign_memory(gd_plan *plan) {
    const int n = plan->program->n_roots;
    liveness l = {gd_malloc((size_t)(n + 1) * sizeof(int)),
                  gd_malloc((size_t)(n + 1) * sizeof(int)),
                  gd_malloc((size_t)(n + 1) * sizeof(int)), gd_program_risks(plan->program)};
    gd_status status =
        l.begin && l.end && l.same && l.risks ? GD_OK : gd_no_memory(NULL, "to plan a run");
    for (int r = 0; r < n && status == GD_OK; r++) {
        l.begin[r] = l.end[r] = -1;
        l.same[r] = r;
    }
    if (status == GD_OK) find_lives(plan, &l);
    if (status == GD_OK) status = index_views(plan, &l);
    if (status == GD_OK) status = place_commits(plan, &l);
    if (status == GD_OK) {
        share_in_place(plan, &l);
        status = place_roots(plan, &l);
    }
    if (status == GD_OK) status = index_views(plan, &l); /* with shared memory */
    if (status == GD_OK) drop_self_copies(plan);
    gd_free(l.begin);
    gd_free(l.end);
    gd_free(l.same);
    gd_free(l.risks);
    return status;
}
