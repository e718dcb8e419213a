/* build.c - from a program to a plan: kernels, copies around them, and memory. */
#include "graph/plan/build.h"

#include <string.h>

#include "core/alloc.h"
#include "core/grow.h"
#include "graph/control/step.h"
#include "graph/plan/memory.h"
#include "ops/call.h"
#include "ops/fused.h"
#include "ops/launch.h"

/* --- arrays ----------------------------------------------------------------------------------- */

static gd_status add_view(gd_plan *plan, gd_view view, gd_binding binding, int *number) {
    int views_room = plan->views_room;
    if (!gd_grow(plan->views, plan->n_views, views_room))
        return gd_no_memory(NULL, "to plan a run");
    if (!gd_grow(plan->bindings, plan->n_views, plan->views_room))
        return gd_no_memory(NULL, "to plan a run");
    plan->views[plan->n_views] = view;
    plan->bindings[plan->n_views] = binding;
    *number = plan->n_views++;
    return GD_OK;
}

static gd_status add_copy(gd_plan *plan, int to, int from) {
    if (!gd_grow(plan->copies, plan->n_copies, plan->copies_room))
        return gd_no_memory(NULL, "to plan a run");
    plan->copies[plan->n_copies++] = (gd_pcopy){to, from};
    return GD_OK;
}

static gd_status add_value_view(gd_plan *plan, int value, int *number) {
    if (value == -1) return add_view(plan, (gd_view){.data = NULL}, (gd_binding){-1, 0}, number);
    if (value < -1) {
        gd_view view = gd_program_view(&plan->program->values[GD_UNWANTED(value)]);
        view.data = NULL;
        return add_view(plan, view, (gd_binding){-1, 0}, number);
    }
    const gd_pvalue *v = &plan->program->values[value];
    return add_view(plan, gd_program_view(v),
                    (gd_binding){v->root, (size_t)v->offset * gd_dtype_bytes(v->dtype)}, number);
}

/* --- calls ------------------------------------------------------------------------------------ */

/* A buffer for one step alone. */
static gd_status add_scratch(gd_plan *plan, gd_view view, size_t bytes, int *number) {
    int root = gd_program_root(plan->program, (gd_root){.kind = GD_ROOT_TEMPORARY, .bytes = bytes});
    if (root < 0) return GD_E_MEMORY;
    return add_view(plan, view, (gd_binding){root, 0}, number);
}

/* Gives the kernel the simple case that its flags promise (see launch.h): operands that are not
 * simple are copied to a buffer before the call, and results from one after it. */
static gd_status stage_operands(gd_plan *plan, gd_pcall *c) {
    const unsigned flags = c->kernel->flags & GD_KERNEL_STAGED;
    c->first_copy = plan->n_copies;
    if (!flags) return GD_OK;
    const int n = c->n_in + c->n_out;
    int *original = gd_malloc((size_t)(n + 1) * sizeof *original);
    if (!original) return gd_fail(GD_E_MEMORY, "no memory to plan a run");
    gd_status status = GD_OK;
    for (int i = 0; i < n && status == GD_OK; i++) {
        const gd_view v = plan->views[c->first + i];
        original[i] = -1;
        if (gd_view_is_simple(&v, flags)) continue;
        gd_view simple = v;
        int buffer;
        simple.dtype = gd_staged_dtype(v.dtype, flags);
        gd_row_major(v.rank, v.dims, simple.strides);
        /* the operand becomes a view of its own; its place in the call gets the buffer */
        status = add_view(plan, v, plan->bindings[c->first + i], &original[i]);
        if (status == GD_OK)
            status = add_scratch(plan, simple,
                                 (size_t)gd_numel(v.rank, v.dims) * gd_dtype_size(simple.dtype),
                                 &buffer);
        if (status != GD_OK) break;
        plan->views[c->first + i] = simple;
        plan->bindings[c->first + i] = plan->bindings[buffer];
        if (i >= c->n_in && !gd_output_is_read(c->step->op, i - c->n_in, c->n_out)) continue;
        status = add_copy(plan, c->first + i, original[i]);
        c->n_before++;
    }
    for (int i = c->n_in; i < n && status == GD_OK; i++) {
        if (original[i] < 0) continue;
        status = add_copy(plan, original[i], c->first + i);
        c->n_after++;
    }
    gd_free(original);
    return status;
}

static gd_status add_call(gd_plan *plan, const gd_pstep *step) {
    gd_pcall c = {.step = step, .first = plan->n_views, .n_in = step->n_in, .workspace = -1};
    /* outputs that are mutated inputs under their own names */
    const int aliases =
        step->op->ir && step->op->n_mutated > 0 ? step->n_out - step->op->n_mutated : 0;
    bool needed = false;
    int view;
    c.n_out = step->n_out - aliases;
    for (int i = 0; i < step->n_in; i++) GD_TRY(add_value_view(plan, step->in[i], &view));
    for (int i = aliases; i < step->n_out; i++) {
        GD_TRY(add_value_view(plan, step->out[i], &view));
        const gd_view *v = &plan->views[view];
        if (v->data && gd_numel(v->rank, v->dims) > 0) needed = true;
    }
    if (!needed) { /* nothing but empty tensors */
        plan->n_views = c.first;
        return GD_OK;
    }
    gd_kernel_call call;
    gd_kernel_call_set(&call, step->attrs, plan->views + c.first, c.n_in,
                       plan->views + c.first + c.n_in, c.n_out);
    call.op = step->op;
    call.device = plan->device;
    call.kernel = c.kernel = gd_kernel_select(step->op, &call, plan->device->api->kind);
    if (!c.kernel && gd_fallback_allowed(step->op)) call.kernel = c.kernel = &gd_host_kernel;
    if (!c.kernel)
        return gd_fail(GD_E_UNSUPPORTED, "no kernel on %s for %s", plan->device->name,
                       step->op->name);
    GD_TRY(stage_operands(plan, &c));
    call.in = plan->views + c.first;
    call.out = plan->views + c.first + c.n_in;
    if (c.kernel->prepare) GD_TRY(gd_prepared_get(&call, &c.prepared));
    c.workspace_bytes = c.kernel->workspace ? c.kernel->workspace(&call) : call.workspace_bytes;
    c.scratch = c.kernel->scratch ? c.kernel->scratch(&call) : 0;
    if (c.workspace_bytes) {
        const gd_view bytes = {.data = &gd_unbound_address,
                               .dtype = GD_U8,
                               .rank = 1,
                               .dims = {(int64_t)c.workspace_bytes},
                               .strides = {1}};
        GD_TRY(add_scratch(plan, bytes, c.workspace_bytes, &c.workspace));
    }
    if (!gd_grow(plan->calls, plan->n_calls, plan->calls_room)) {
        gd_prepared_release(c.prepared);
        return gd_no_memory(NULL, "to plan a run");
    }
    plan->calls[plan->n_calls++] = c;
    return GD_OK;
}

/* --- lifetimes -------------------------------------------------------------------------------- */

typedef struct lives {
    int *begin, *end; /* of each root: the calls in which it is used first and last; -1: never */
    int *same;        /* the root whose memory it has; itself */
    bool *risks;      /* of each step of the program: it may fail */
} lives;

static void use(lives *l, int root, int call) {
    if (root < 0) return;
    if (l->begin[root] < 0) l->begin[root] = call;
    l->end[root] = call;
}

static void note_lives(const gd_plan *plan, lives *l) {
    for (int i = 0; i < plan->n_calls; i++) {
        const gd_pcall *c = &plan->calls[i];
        for (int v = c->first; v < c->first + c->n_in + c->n_out; v++)
            use(l, plan->bindings[v].root, i);
        for (int k = c->first_copy; k < c->first_copy + c->n_before + c->n_after; k++) {
            use(l, plan->bindings[plan->copies[k].to].root, i);
            use(l, plan->bindings[plan->copies[k].from].root, i);
        }
        if (c->workspace >= 0) use(l, plan->bindings[c->workspace].root, i);
    }
    for (int i = 0; i < plan->program->n_commits; i++) {
        const int root = plan->program->values[plan->program->commits[i].value].root;
        use(l, root, plan->n_calls);
    }
}

/* The view covers all of its root, in order. */
static bool fills(const gd_plan *plan, int view) {
    const gd_view *v = &plan->views[view];
    const gd_binding *b = &plan->bindings[view];
    return b->root >= 0 && b->offset == 0 && gd_is_row_major(v->rank, v->dims, v->strides) &&
           (size_t)gd_numel(v->rank, v->dims) * gd_dtype_size(v->dtype) ==
               plan->program->roots[b->root].bytes;
}

static bool same_layout(const gd_view *a, const gd_view *b) {
    if (a->rank != b->rank || gd_dtype_size(a->dtype) != gd_dtype_size(b->dtype)) return false;
    return memcmp(a->dims, b->dims, sizeof(int64_t) * (size_t)a->rank) == 0;
}

/* Whether all of the call's operands in this root are the whole of it, in order: then each element
 * is read before its place is written. */
static bool reads_straight(const gd_plan *plan, const gd_pcall *c, int root, const gd_view *like) {
    for (int v = c->first; v < c->first + c->n_in; v++)
        if (plan->bindings[v].root == root &&
            (!fills(plan, v) || !same_layout(&plan->views[v], like)))
            return false;
    return true;
}

/* An elementwise result may take the place of an operand that nobody reads afterwards. */
static void share_in_place(const gd_plan *plan, lives *l) {
    const gd_program *p = plan->program;
    for (int i = 0; i < plan->n_calls; i++) {
        const gd_pcall *c = &plan->calls[i];
        const gd_fusion *fusion = c->step->op->fusion;
        const bool reduces = fusion && fusion->reduction; /* the last result is of another shape */
        if ((!c->step->op->ir && !fusion) || c->n_before || c->n_after) continue;
        for (int o = c->first + c->n_in; o < c->first + c->n_in + c->n_out - reduces; o++) {
            const int out = plan->bindings[o].root;
            if (out < 0 || p->roots[out].kind != GD_ROOT_TEMPORARY || p->roots[out].fetched ||
                l->begin[out] != i || l->same[out] != out || !fills(plan, o))
                continue;
            for (int v = c->first; v < c->first + c->n_in; v++) {
                int in = plan->bindings[v].root;
                if (in < 0 || in == out || p->roots[in].kind != GD_ROOT_TEMPORARY ||
                    p->roots[in].fetched || l->end[in] != i || l->begin[in] == i ||
                    !reads_straight(plan, c, in, &plan->views[o]))
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

/* --- assigns that need no copy ---------------------------------------------------------------- */

/* Kernels get no memory for themselves, but for products, for which there is a reserve. Of those that
 * a program has brought along nothing is known. */
static bool may_fail(const gd_plan *plan, const lives *l, const gd_pcall *c) {
    const gd_op *op = c->step->op;
    return l->risks[c->step - plan->program->steps] ||
           ((op->flags & GD_OP_USER) && c->kernel == op->reference);
}

/* The last call that may fail; -1: none. */
static int last_risk(const gd_plan *plan, const lives *l) {
    int i = plan->n_calls - 1;
    while (i >= 0 && !may_fail(plan, l, &plan->calls[i])) i--;
    return i;
}

/* Whether the call reads the root as it writes the new value, if at all: each element its own. */
static bool updates_straight(const gd_plan *plan, const gd_pcall *k, int root,
                             const gd_pvalue *fresh) {
    const gd_view like = gd_program_view(fresh);
    for (int x = k->first; x < k->first + k->n_in; x++) {
        if (plan->bindings[x].root != root) continue;
        const gd_view *old = &plan->views[x];
        if (!k->step->op->ir || k->n_before || k->n_after || plan->bindings[x].offset != 0 ||
            !gd_is_row_major(old->rank, old->dims, old->strides) || !same_layout(old, &like) ||
            old->dtype != like.dtype)
            return false;
    }
    return true;
}

/* The new value of a variable may be computed right into it if nobody reads the old one later, and
 * nothing that can fail comes after it. */
static bool can_write_through(const gd_plan *plan, const lives *l, const gd_commit *c, int risk) {
    const gd_program *p = plan->program;
    const gd_pvalue *v = &p->values[c->value];
    const gd_root *root = &p->roots[v->root];
    if (root->kind != GD_ROOT_TEMPORARY || root->fetched || !gd_commit_fills_alone(p, c) ||
        root->bytes != p->roots[c->root].bytes || v->offset != 0 ||
        !gd_is_row_major(v->rank, v->dims, v->strides))
        return false;
    const int made = l->begin[v->root];
    if (made < 0 || made >= plan->n_calls) return false;
    const gd_pcall *maker = &plan->calls[made]; /* a copy of the variable itself, written later? */
    const bool copied =
        gd_step_copies(p, maker->step) && plan->bindings[maker->first].root == c->root;
    int written = made;
    if (copied)
        for (written = made + 1; written < plan->n_calls; written++) {
            const gd_pcall *k = &plan->calls[written];
            bool writes = false;
            for (int o = k->first + k->n_in; o < k->first + k->n_in + k->n_out; o++)
                writes |= plan->bindings[o].root == v->root;
            if (writes) break;
        }
    if (written == plan->n_calls) return false; /* it is not: it has been turned, or so */
    /* while the error word of a device is set, a kernel that does not look at it must not write */
    if (!plan->device->api->host_reads && !(plan->calls[written].kernel->flags & GD_KERNEL_CHECKED))
        return false;
    return risk <= written && l->end[c->root] <= written &&
           updates_straight(plan, &plan->calls[written], c->root, v);
}

static gd_status place_commits(gd_plan *plan, lives *l) {
    gd_program *p = plan->program;
    const int risk = last_risk(plan, l);
    plan->first_commit_copy = plan->n_copies;
    for (int i = 0; i < p->n_commits; i++) {
        gd_commit *c = &p->commits[i];
        const int root = p->values[c->value].root;
        c->through = l->same[root] == root && can_write_through(plan, l, c, risk);
        if (c->through) {
            l->same[root] = c->root;
            continue;
        }
        int to, from;
        GD_TRY(add_value_view(plan, c->to, &to));
        GD_TRY(add_value_view(plan, c->value, &from));
        GD_TRY(add_copy(plan, to, from));
        plan->n_commit_copies++;
    }
    return GD_OK;
}

/* --- memory ----------------------------------------------------------------------------------- */

static int final_root(const lives *l, int root) {
    while (root >= 0 && l->same[root] != root) root = l->same[root];
    return root;
}

/* Offsets in a slab are sums of sizes. */
static size_t align_bytes(const gd_device *device, size_t bytes) {
    const size_t alignment = device->api->alignment;
    return (bytes + alignment - 1) / alignment * alignment;
}

static gd_status place_roots(gd_plan *plan, lives *l) {
    const gd_program *p = plan->program;
    gd_span *spans = gd_malloc((size_t)(p->n_roots + 1) * sizeof *spans);
    int *span_of = gd_malloc((size_t)(p->n_roots + 1) * sizeof *span_of), n = 0;
    plan->places = gd_calloc((size_t)p->n_roots + 1, sizeof *plan->places);
    if (!spans || !span_of || !plan->places) {
        gd_free(spans);
        gd_free(span_of);
        return gd_fail(GD_E_MEMORY, "no memory to plan a run");
    }
    for (int r = 0; r < p->n_roots; r++) {
        span_of[r] = -1;
        if (p->roots[r].kind != GD_ROOT_TEMPORARY || p->roots[r].fetched || l->same[r] != r ||
            l->begin[r] < 0)
            continue;
        span_of[r] = n;
        spans[n++] = (gd_span){.bytes = align_bytes(plan->device, p->roots[r].bytes),
                               .begin = l->begin[r],
                               .end = l->end[r]};
    }
    gd_status status = gd_place_spans(spans, n, &plan->slab, &plan->live);
    for (int r = 0; r < p->n_roots && status == GD_OK; r++)
        if (span_of[r] >= 0) plan->places[r] = (gd_place){true, spans[span_of[r]].offset};
    gd_free(spans);
    gd_free(span_of);
    return status;
}

/* Which views look into which root. */
static gd_status index_views(gd_plan *plan, const lives *l) {
    const int n = plan->program->n_roots;
    plan->first_view = gd_calloc((size_t)n + 2, sizeof *plan->first_view);
    plan->views_of = gd_malloc((size_t)(plan->n_views + 1) * sizeof *plan->views_of);
    if (!plan->first_view || !plan->views_of)
        return gd_fail(GD_E_MEMORY, "no memory to plan a run");
    for (int v = 0; v < plan->n_views; v++) {
        plan->bindings[v].root = final_root(l, plan->bindings[v].root);
        if (plan->bindings[v].root >= 0) plan->first_view[plan->bindings[v].root + 1]++;
    }
    for (int r = 0; r < n; r++) plan->first_view[r + 1] += plan->first_view[r];
    int *at = gd_malloc((size_t)(n + 1) * sizeof *at);
    if (!at) return gd_fail(GD_E_MEMORY, "no memory to plan a run");
    memcpy(at, plan->first_view, (size_t)n * sizeof *at);
    for (int v = 0; v < plan->n_views; v++)
        if (plan->bindings[v].root >= 0) plan->views_of[at[plan->bindings[v].root]++] = v;
    gd_free(at);
    return GD_OK;
}

/* A copy of a variable into itself is left when it is written through. */
static void drop_idle_copies(gd_plan *plan) {
    int kept = 0;
    for (int i = 0; i < plan->n_calls; i++) {
        const gd_pcall c = plan->calls[i];
        const gd_binding *from = &plan->bindings[c.first], *to = &plan->bindings[c.first + c.n_in];
        bool idle = gd_step_copies(plan->program, c.step) && from->root == to->root &&
                    from->offset == to->offset;
        if (!idle) plan->calls[kept++] = c;
        else gd_prepared_release(c.prepared);
    }
    plan->n_calls = kept;
}

static gd_status place_all(gd_plan *plan) {
    const int n = plan->program->n_roots;
    lives l = {gd_malloc((size_t)(n + 1) * sizeof(int)), gd_malloc((size_t)(n + 1) * sizeof(int)),
               gd_malloc((size_t)(n + 1) * sizeof(int)), gd_program_risks(plan->program)};
    gd_status status = l.begin && l.end && l.same && l.risks
                           ? GD_OK
                           : gd_fail(GD_E_MEMORY, "no memory to plan a run");
    for (int r = 0; r < n && status == GD_OK; r++) {
        l.begin[r] = l.end[r] = -1;
        l.same[r] = r;
    }
    if (status == GD_OK) {
        note_lives(plan, &l);
        status = place_commits(plan, &l);
    }
    if (status == GD_OK) {
        share_in_place(plan, &l);
        status = place_roots(plan, &l);
    }
    if (status == GD_OK) status = index_views(plan, &l);
    if (status == GD_OK) drop_idle_copies(plan);
    gd_free(l.begin);
    gd_free(l.end);
    gd_free(l.same);
    gd_free(l.risks);
    return status;
}

/* --- fetches ---------------------------------------------------------------------------------- */

/* A copy of a value that is not of this run, made before anything else. -1: no memory. */
static int copy_first(gd_program *p, int value, bool fetched) {
    const gd_pvalue v = p->values[value];
    size_t bytes;
    if (gd_dims_bytes(v.rank, v.dims, (gd_dtype)v.dtype, &bytes) != GD_OK) return -1;
    gd_pvalue copy = v;
    copy.root = gd_program_root(
        p, (gd_root){.kind = GD_ROOT_TEMPORARY, .bytes = bytes, .fetched = fetched});
    copy.offset = 0;
    gd_row_major(v.rank, v.dims, copy.strides);
    int *ids = gd_program_alloc(p, 2 * sizeof *ids);
    if (copy.root < 0 || !ids || !gd_program_step(p)) return -1;
    ids[0] = value;
    ids[1] = gd_program_value(p, copy);
    if (ids[1] < 0) return -1;
    memmove(p->steps + 1, p->steps, (size_t)(p->n_steps - 1) * sizeof *p->steps);
    p->steps[0] =
        (gd_pstep){.op = gd_op_find("clone"), .n_in = 1, .n_out = 1, .in = ids, .out = ids + 1};
    return ids[1];
}

static gd_status copy_fetches(gd_program *p) {
    for (int i = 0; i < p->n_fetches; i++) {
        gd_root *root = &p->roots[p->values[p->fetches[i]].root];
        if (root->kind == GD_ROOT_TEMPORARY) root->fetched = true;
        else if ((p->fetches[i] = copy_first(p, p->fetches[i], true)) < 0) return gd_failure();
    }
    return GD_OK;
}

/* What a variable was before the run is assigned to another: it may be assigned itself before. */
static gd_status copy_assigned(gd_program *p) {
    for (int i = 0; i < p->n_commits; i++) {
        const gd_root_kind kind = p->roots[p->values[p->commits[i].value].root].kind;
        if (kind != GD_ROOT_VARIABLE && kind != GD_ROOT_CAPTURED) continue;
        if ((p->commits[i].value = copy_first(p, p->commits[i].value, false)) < 0)
            return gd_failure();
    }
    return GD_OK;
}

static gd_status list_buffers(gd_plan *plan) {
    const gd_program *p = plan->program;
    plan->buffers = gd_malloc((size_t)(p->n_roots + 1) * sizeof *plan->buffers);
    if (!plan->buffers) return gd_fail(GD_E_MEMORY, "no memory to plan a run");
    for (int r = 0; r < p->n_roots; r++)
        if (p->roots[r].fetched) plan->buffers[plan->n_buffers++] = r;
    return GD_OK;
}

/* Branches and loops, and functions of the program. */
static bool runs_on_host(const gd_pcall *c) {
    return (c->step->op->flags & GD_OP_OPAQUE) || c->kernel == &gd_host_kernel;
}

/* Cuts the calls where the host has to read a condition. The last segment may be empty. */
static gd_status cut_segments(gd_plan *plan) {
    plan->segments = gd_calloc(2 * (size_t)plan->n_calls + 1, sizeof *plan->segments);
    if (!plan->segments) return gd_no_memory(NULL, "to plan a run");
    int first = 0;
    for (int i = 0; i <= plan->n_calls; i++) {
        const bool ends = i == plan->n_calls;
        if (!ends && !runs_on_host(&plan->calls[i])) continue;
        if (i > first || ends) plan->segments[plan->n_segments++] = (gd_segment){first, i, false};
        if (!ends) plan->segments[plan->n_segments++] = (gd_segment){i, i + 1, true};
        first = i + 1;
    }
    return GD_OK;
}

/* Fixed places for what crosses the boundary of a run on an asynchronous device. */
static gd_status place_boundary(gd_plan *plan) {
    const gd_program *p = plan->program;
    plan->noise_slot = GD_NO_SLOT;
    if (plan->device->api->host_reads) return GD_OK;
    plan->slots = gd_malloc((size_t)(p->n_roots + 1) * sizeof *plan->slots);
    if (!plan->slots) return gd_no_memory(NULL, "to plan a run");
    for (int r = 0; r < p->n_roots; r++) {
        const bool number = gd_root_is_number(plan, r);
        plan->slots[r] = GD_NO_SLOT;
        if (p->roots[r].kind != GD_ROOT_FEED && !p->roots[r].fetched && !number) continue;
        plan->slots[r] = plan->boundary;
        plan->boundary += align_bytes(plan->device, p->roots[r].bytes + 1);
        if (number) plan->n_number_words += (int)((p->roots[r].bytes + 7) / 8);
    }
    for (int i = 0; i < plan->n_calls; i++)
        if (plan->calls[i].step->op->flags & (GD_OP_RANDOM | GD_OP_OPAQUE)) plan->noise_slot = 0;
    if (plan->noise_slot == 0) {
        plan->noise_slot = plan->boundary;
        plan->boundary += align_bytes(plan->device, sizeof(gd_rng));
    }
    if (plan->boundary == 0) plan->boundary = plan->device->api->alignment;
    return cut_segments(plan);
}

/* What has been folded further is not needed any more. */
static gd_status drop_constants(gd_program *p) {
    bool *read = gd_calloc((size_t)p->n_roots + 1, sizeof *read);
    if (!read) return gd_fail(GD_E_MEMORY, "no memory to plan a run");
    for (int i = 0; i < p->n_steps; i++)
        for (int k = 0; k < p->steps[i].n_in && !p->steps[i].removed; k++)
            if (p->steps[i].in[k] >= 0) read[p->values[p->steps[i].in[k]].root] = true;
    for (int i = 0; i < p->n_fetches; i++) read[p->values[p->fetches[i]].root] = true;
    for (int i = 0; i < p->n_commits; i++) read[p->values[p->commits[i].value].root] = true;
    for (int r = 0; r < p->n_roots; r++) {
        gd_root *root = &p->roots[r];
        if (!root->constant || read[r]) continue;
        gd_storage_release(root->storage);
        *root = (gd_root){.kind = GD_ROOT_TEMPORARY, .bytes = root->bytes};
    }
    gd_free(read);
    return GD_OK;
}

/* See session.h for what the levels promise. */
static gd_status run_passes(gd_program *p, gd_device *device, int level) {
    bool done = gd_pass_prune(p) >= 0 && gd_pass_cse(p) >= 0;
    if (level >= 1) {
        done = done && gd_pass_fold(p, device) >= 0;
        for (int changes = 1; done && changes > 0;) { /* one change may make another possible */
            changes = gd_pass_simplify(p);
            const int shared = changes > 0 ? gd_pass_cse(p) : 0;
            done = changes >= 0 && shared >= 0;
        }
    }
    done = done && gd_pass_prune(p) >= 0;
    if (level >= 2)
        done = done && gd_pass_fold_norm(p, device) >= 0 && gd_pass_layout(p, device) >= 0 &&
               gd_pass_epilogue(p, device) >= 0;
    const bool fuse = level >= 2 && device->api->fusion && !gd_reference_only();
    done = done && (!fuse || gd_pass_fuse(p, device) >= 0);
    return done ? GD_OK : gd_this_thread.latest;
}

/* Chooses kernels for the steps as they are, and places everything. */
static gd_status build(gd_plan *plan) {
    const gd_program *p = plan->program;
    gd_status status = GD_OK;
    for (int i = 0; i < p->n_steps && status == GD_OK; i++) {
        if (p->steps[i].removed || p->steps[i].view) continue;
        status = add_call(plan, &p->steps[i]);
    }
    return status == GD_OK ? place_all(plan) : status;
}

/* --- a limit ---------------------------------------------------------------------------------- */

/* A program before calls were made of it, and what these need. */
typedef struct state {
    gd_pstep *steps;
    int n_steps, steps_room, n_roots, n_values;
    size_t *scratch; /* of each step: bytes of the kernel's own */
    bool *elsewhere; /* of each root: it is written right into a variable */
} state;

static void unbuild(gd_plan *plan, const state *before) {
    gd_program *p = plan->program;
    gd_free(plan->places);
    gd_free(plan->first_view);
    gd_free(plan->views_of);
    plan->places = NULL;
    plan->first_view = plan->views_of = NULL;
    for (int i = 0; i < plan->n_calls; i++) gd_prepared_release(plan->calls[i].prepared);
    plan->n_views = plan->n_calls = plan->n_copies = plan->n_commit_copies = 0;
    if (p->steps != before->steps) gd_free(p->steps);
    p->steps = before->steps;
    p->n_steps = before->n_steps;
    p->steps_room = before->steps_room;
    p->n_roots = before->n_roots;
    p->n_values = before->n_values;
}

static gd_status note_needs(const gd_plan *plan, state *s) {
    const gd_program *p = plan->program;
    s->scratch = gd_calloc((size_t)s->n_steps + 1, sizeof *s->scratch);
    s->elsewhere = gd_calloc((size_t)s->n_roots + 1, sizeof *s->elsewhere);
    if (!s->scratch || !s->elsewhere) return gd_fail(GD_E_MEMORY, "no memory to plan a run");
    for (int i = 0; i < plan->n_calls; i++) {
        const gd_pcall *c = &plan->calls[i];
        size_t *bytes = &s->scratch[c->step - p->steps];
        for (int v = c->first; v < c->first + c->n_in + c->n_out; v++)
            if (plan->bindings[v].root >= s->n_roots)
                *bytes += p->roots[plan->bindings[v].root].bytes;
        *bytes += c->workspace_bytes;
    }
    for (int i = 0; i < p->n_commits; i++)
        if (p->commits[i].through) s->elsewhere[p->values[p->commits[i].value].root] = true;
    return GD_OK;
}

/* One try: values are computed twice until no more than `target` bytes are alive. */
static gd_status rebuild(gd_plan *plan, const state *before, size_t target) {
    const gd_remat how = {
        .target = target, .scratch = before->scratch, .elsewhere = before->elsewhere};
    unbuild(plan, before);
    plan->recomputed = gd_pass_remat(plan->program, &how);
    return plan->recomputed < 0 ? gd_this_thread.latest : build(plan);
}

/* Where the block is larger than the limit, values are computed twice. What is alive in a program is
 * not quite what its block needs, so that it may take a second try. */
static gd_status fit(gd_plan *plan, state *before, size_t limit) {
    enum { TRIES = 6 };
    const size_t integer = gd_plan_slab(plan), inner = integer - plan->slab;
    if (limit == 0 || integer <= limit) return GD_OK;
    GD_TRY(note_needs(plan, before));
    size_t least = integer, target = limit > inner ? limit - inner : 0;
    for (int i = 0; i < TRIES && target > 0; i++) {
        GD_TRY(rebuild(plan, before, target));
        const size_t reached = gd_plan_slab(plan);
        if (reached <= limit) return GD_OK;
        if (reached < least) least = reached;
        const size_t over = reached - limit;
        target = target > over ? target - over : 0;
    }
    return gd_fail(GD_E_MEMORY,
                   "a run needs a block of %zu bytes, and of %zu where values are computed twice, "
                   "but the memory limit is %zu; "
                   "smaller batches need less, or allow as much with .memory_limit",
                   integer, least, limit);
}

static gd_status build_within(gd_plan *plan, size_t limit) {
    gd_program *p = plan->program;
    state before = {.steps = p->steps,
                    .n_steps = p->n_steps,
                    .steps_room = p->steps_room,
                    .n_roots = p->n_roots,
                    .n_values = p->n_values};
    gd_status status = build(plan);
    if (status == GD_OK) status = fit(plan, &before, limit);
    if (p->steps != before.steps) gd_free(before.steps);
    gd_free(before.scratch);
    gd_free(before.elsewhere);
    return status;
}

/* Captured tensors are read where they lie, but for scalars of the host. */
enum { MOST_NUMBER_BYTES = 64 };
static gd_status check_devices(const gd_program *p, const gd_device *device) {
    char text[160];
    for (int i = 0; i < p->n_values; i++) {
        const gd_root *root = &p->roots[p->values[i].root];
        if (root->kind != GD_ROOT_CAPTURED || root->storage->device == device) continue;
        if (root->storage->device->api->host_reads && root->bytes <= MOST_NUMBER_BYTES)
            continue; /* a number, which each run reads anew */
        gd_tensor t;
        gd_program_describe(p, i, root->storage->device, &t);
        return gd_fail(GD_E_DEVICE,
                       "a tensor that the graph uses, %s, is on %s, and the session runs on %s; "
                       "make a session with "
                       ".device for it, or move the tensor",
                       gd_describe(&t, text, sizeof text), root->storage->device->name,
                       device->name);
    }
    return GD_OK;
}

gd_status gd_plan_make(gd_program *program, gd_device *device, int level, size_t limit,
                       gd_plan **made) {
    const gd_status room = gd_check_stack();
    gd_plan *plan = room == GD_OK ? gd_calloc(1, sizeof *plan) : NULL;
    *made = NULL;
    if (!plan) {
        gd_program_free(program);
        return room != GD_OK ? room : gd_fail(GD_E_MEMORY, "no memory to plan a run");
    }
    plan->program = program;
    plan->device = device;
    plan->guard = gd_guard_new();
    gd_status status = check_devices(program, device);
    if (status == GD_OK) status = run_passes(program, device, level);
    if (status == GD_OK) status = drop_constants(program);
    if (status == GD_OK) status = copy_fetches(program);
    if (status == GD_OK) status = copy_assigned(program);
    if (status == GD_OK && gd_pass_early_updates(program) < 0) status = gd_this_thread.latest;
    if (status == GD_OK) status = gd_control_prepare(program, device, level);
    if (status == GD_OK && program->n_commits > 0 && device->api->reserve)
        status = device->api->reserve(device); /* see may_fail */
    if (status == GD_OK) status = build_within(plan, limit);
    if (status == GD_OK) status = list_buffers(plan);
    if (status == GD_OK) status = place_boundary(plan);
    if (status != GD_OK) {
        gd_plan_free(plan);
        return status;
    }
    *made = plan;
    return GD_OK;
}
