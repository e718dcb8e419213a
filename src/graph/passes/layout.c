/* layout.c - chooses the memory layouts of intermediate values.
 *
 * A permute costs nothing by itself: it is a view. Reading with large strides is slow, and so are
 * the copies that put elements in order. So
 *
 * - an elementwise step with permuted operands runs over them in the order in which they lie in
 *   memory, and its result is permuted instead: permutes sink, and disappear where another permute
 *   undoes them (layout_sink.c);
 * - a product writes its result in the order of the copy after it (a reshape of a permuted value,
 *   as where the heads of attention are joined): the copy becomes a view;
 * - a copy that only changes the layout is dropped where all its readers accept the old layout;
 * - images are stored with channels last around kernels that prefer that (layout_channels.c).
 *
 * Nothing is done that would make a kernel copy an operand that it reads directly now.
 *
 * On the CPU convolutions, pooling and batch norm stay channels-first. Measured with these kernels (one
 * thread, AVX-512, milliseconds, x (N,C,H,W); `product` is the best that a channels-last kernel
 * could reach: one matrix product, with all windows laid out already):
 *
 *     x (4,64,56,56),   1x1 -> 64:    first 0.95   last (copied) 1.59   product 0.88
 *     x (4,64,56,56),   1x1 -> 256:   first 3.8    last (copied) 4.8    product 3.6
 *     x (4,256,14,14),  1x1 -> 1024:  first 3.2    last (copied) 3.7    product 3.25
 *     x (4,64,56,56),   3x3 -> 64:    first 3.8    last (copied) 5.1    product 6.4
 *     x (4,256,14,14),  3x3 -> 256:   first 4.3    last (copied) 4.7    product 7.9
 *     x (4,64,56,56),   5x5 -> 64:    first 25.7   last (copied) 27.4   product 23.1
 *     x (4,64,56,56),   batch norm:   first 0.25   last (copied) 0.84
 *
 * A channels-last chain could gain a tenth at 1x1 and 5x5, and lose more than half at 3x3, where
 * Winograd's transform works on planes. All of these kernels read and write channels-first
 * directly, so a chain of them repacks nothing between its steps.
 */
#include "graph/passes/layout.h"

#include "core/alloc.h"
#include "core/tensor.h"
#include "dispatch/call_infer.h"

/* --- new strides ------------------------------------------------------------------------------ */

bool gd_layout_restride_view(const gd_pvalue *base, const int64_t *strides, const gd_pvalue *v,
                             gd_pvalue *to) {
    bool used[GD_MAX_RANK] = {false};
    *to = *v;
    if (v->dtype != base->dtype) return false;
    for (int k = 0; k < v->rank; k++) {
        if (v->dims[k] == 1 || v->strides[k] == 0) continue;
        int a = 0;
        while (a < base->rank &&
               (base->dims[a] == 1 || used[a] || base->strides[a] != v->strides[k]))
            a++;
        if (a == base->rank || v->dims[k] > base->dims[a]) return false;
        used[a] = true;
        to->strides[k] = strides[a];
    }
    int64_t rest = v->offset;
    to->offset = 0;
    for (int a = 0; a < base->rank; a++) {
        if (base->dims[a] == 1) continue;
        to->offset += rest / base->strides[a] * strides[a];
        rest %= base->strides[a];
    }
    return rest == 0;
}

/* Whether the step's kernel accepts operands with any strides. */
static bool takes_strides(const gd_layout *l, const gd_pstep *s) {
    if (s->op->ir) return true;
    const gd_kernel *kernel = gd_step_kernel(l->p, s, l->device);
    return kernel && !(kernel->flags & GD_KERNEL_STAGED);
}

bool gd_layout_readers_agree(gd_layout *l, const gd_pvalue *base, const int64_t *strides, int but,
                             int chain) {
    const gd_program *p = l->p;
    gd_pvalue to;
    for (int v = gd_uses_values(&l->uses, base->root); v >= 0; v = l->uses.next_value[v])
        if (!gd_layout_restride_view(base, strides, &p->values[v], &to)) return false;
    for (int e = gd_uses_readers(&l->uses, base->root); e >= 0; e = l->uses.entries[e].next) {
        const int i = l->uses.entries[e].step;
        const gd_pstep *s = &p->steps[i];
        if (s->removed || s->view || i == but || (chain >= 0 && l->chain[i] == chain)) continue;
        for (int k = 0; k < s->n_in; k++) {
            if (s->in[k] < 0 || p->values[s->in[k]].root != base->root) continue;
            gd_layout_restride_view(base, strides, &p->values[s->in[k]], &to);
            if (!gd_value_is_row_major(&p->values[s->in[k]]) || gd_value_is_row_major(&to))
                continue;
            if (s->op->ir ? chain != GD_AND_ELEMENTWISE : !takes_strides(l, s)) return false;
        }
    }
    return true;
}

void gd_layout_set_strides(gd_layout *l, gd_pvalue base, const int64_t *strides) {
    gd_pvalue to;
    for (int v = gd_uses_values(&l->uses, base.root); v >= 0; v = l->uses.next_value[v])
        if (gd_layout_restride_view(&base, strides, &l->p->values[v], &to)) l->p->values[v] = to;
}

void gd_layout_replace(gd_layout *l, int from, int to) {
    const int root = l->p->values[from].root;
    for (int e = gd_uses_readers(&l->uses, root); e >= 0; e = l->uses.entries[e].next) {
        const gd_pstep *s = &l->p->steps[l->uses.entries[e].step];
        for (int k = 0; k < s->n_in; k++)
            if (s->in[k] == from) s->in[k] = to;
    }
}

/* --- copies ----------------------------------------------------------------------------------- */

/* Whether a view op that has to copy its operand copies the elements in their order: with a
 * row-major operand its result would be a row-major view of all elements. (A reversed slice would
 * not.) */
static bool copies_in_order(const gd_layout *l, const gd_pstep *s) {
    const gd_pvalue *v = &l->p->values[s->in[0]];
    gd_tensor x = {.kind = GD_META, .dtype = v->dtype, .rank = v->rank, .device = l->device};
    gd_tensor *const in[] = {&x};
    gd_meta y;
    gd_infer infer = {s->op, s->attrs, in, 1, &y, 1};
    memcpy(x.dims, v->dims, sizeof x.dims);
    gd_row_major(x.rank, x.dims, x.strides);
    return gd_infer_known(&infer) == GD_OK && y.view_of == 0 && y.offset == 0 &&
           gd_is_row_major(y.rank, y.dims, y.strides);
}

/* Whether the step copies elements in their order only because its operand has another layout. */
static bool is_layout_copy(const gd_layout *l, const gd_pstep *s) {
    const gd_program *p = l->p;
    const bool copies = (s->op->flags & GD_OP_VIEW) || gd_op_copies(s->op);
    if (s->removed || s->view || !copies || s->n_in != 1 || s->n_out != 1 || s->in[0] < 0 ||
        s->out[0] < 0)
        return false;
    if ((s->op->flags & GD_OP_VIEW) && !copies_in_order(l, s)) return false;
    const gd_pvalue *x = &p->values[s->in[0]], *y = &p->values[s->out[0]];
    return x->dtype == y->dtype && gd_numel(x->rank, x->dims) == gd_numel(y->rank, y->dims) &&
           gd_layout_can_change(l, y->root) && gd_value_fills_root(p, y) &&
           l->writes[x->root] == (p->roots[x->root].kind == GD_ROOT_TEMPORARY);
}

/* The step that writes a root that can change; -1: none. */
static int find_producer(const gd_layout *l, int root) {
    for (int e = l->uses.writers[root]; e >= 0; e = l->uses.entries[e].next) {
        const gd_pstep *s = &l->p->steps[l->uses.entries[e].step];
        if (!s->removed && !s->view) return l->uses.entries[e].step;
    }
    return -1;
}

/* Lets a product write its elements in the order of the copy at `at`, which becomes a view. Rows of
 * the product stay contiguous, since it writes them as vectors. */
static bool write_in_copied_order(gd_layout *l, int at) {
    gd_program *p = l->p;
    gd_pstep *s = &p->steps[at];
    const gd_pvalue x = p->values[s->in[0]];
    if (!is_layout_copy(l, s) || gd_value_is_row_major(&x) || !gd_layout_can_change(l, x.root))
        return false;
    const int producer = find_producer(l, x.root);
    if (producer < 0 || !(p->steps[producer].op->flags & GD_OP_STRIDED_ROWS) ||
        !takes_strides(l, &p->steps[producer]))
        return false;
    const gd_pvalue made = p->values[p->steps[producer].out[0]];
    const int64_t count = gd_numel(made.rank, made.dims);
    if (!gd_value_fills_root(p, &made) || count == 0 || count != gd_numel(x.rank, x.dims) ||
        made.rank < 2)
        return false;
    int64_t wanted[GD_MAX_RANK], strides[GD_MAX_RANK];
    gd_row_major(x.rank, x.dims, wanted);
    gd_row_major(made.rank, made.dims, strides);
    for (int k = 0; k < x.rank; k++) { /* find the axis of the product that is axis k of x */
        int a = 0;
        if (x.dims[k] == 1) continue;
        while (a < made.rank && (made.dims[a] != x.dims[k] || made.strides[a] != x.strides[k])) a++;
        if (a == made.rank) return false;
        strides[a] = wanted[k];
    }
    if (strides[made.rank - 1] != 1 || !gd_layout_readers_agree(l, &made, strides, at, GD_NO_CHAIN))
        return false;
    gd_layout_set_strides(l, made, strides);
    const int from = p->values[s->out[0]].root;
    for (int v = gd_uses_values(&l->uses, from); v >= 0; v = l->uses.next_value[v])
        p->values[v].root = x.root;
    gd_uses_join_roots(&l->uses, from, x.root);
    s->view = true;
    return true;
}

/* Drops a copy if all its readers can read the original. */
static bool drop_copy(gd_layout *l, int at) {
    gd_program *p = l->p;
    gd_pstep *s = &p->steps[at];
    if (!is_layout_copy(l, s) ||
        !gd_values_have_same_dims(&p->values[s->in[0]], &p->values[s->out[0]]))
        return false;
    const gd_pvalue x = p->values[s->in[0]], y = p->values[s->out[0]];
    if (gd_numel(y.rank, y.dims) == 0 ||
        !gd_layout_readers_agree(l, &y, x.strides, at, GD_AND_ELEMENTWISE))
        return false;
    gd_layout_replace(l, s->out[0], s->in[0]);
    for (int v = gd_uses_values(&l->uses, y.root); v >= 0; v = l->uses.next_value[v]) {
        gd_pvalue to;
        gd_layout_restride_view(&y, x.strides, &p->values[v], &to); /* the readers agree */
        to.root = x.root;
        to.offset += x.offset;
        p->values[v] = to;
    }
    gd_uses_join_roots(&l->uses, y.root, x.root);
    s->removed = true;
    return true;
}

/* --- the pass --------------------------------------------------------------------------------- */

static gd_status init_layout(gd_layout *l) {
    const gd_program *p = l->p;
    int operands = 0;
    for (int i = 0; i < p->n_steps; i++) operands += p->steps[i].n_in + p->steps[i].n_out;
    l->writes = gd_program_writes(p);
    l->fixed = gd_calloc((size_t)p->n_roots + 1, sizeof *l->fixed);
    l->chain = gd_malloc(((size_t)p->n_steps + 1) * sizeof *l->chain);
    l->next = gd_malloc((2 * (size_t)p->n_steps + 1) * sizeof *l->next);
    l->producer = gd_malloc(((size_t)p->n_roots + 1) * sizeof *l->producer);
    l->permuted = gd_malloc(((size_t)operands + 1) * sizeof *l->permuted);
    if (!l->writes || !l->fixed || !l->chain || !l->next || !l->producer || !l->permuted)
        return gd_no_memory(NULL, "to plan a run");
    for (int i = 0; i < p->n_fetches; i++) l->fixed[p->values[p->fetches[i]].root] = true;
    for (int i = 0; i < p->n_commits; i++) l->fixed[p->values[p->commits[i].value].root] = true;
    return gd_uses_make(&l->uses, p);
}

gd_status gd_pass_layout(gd_rewrite *r) {
    gd_program *p = r->program;
    gd_layout l = {.p = p, .device = r->device};
    gd_status status = init_layout(&l);
    for (int i = 0; i < p->n_steps && status == GD_OK; i++)
        l.changes += write_in_copied_order(&l, i) || drop_copy(&l, i);
    if (status == GD_OK) status = gd_layout_sink_permutes(&l);
    if (status == GD_OK) status = gd_layout_move_channels(&l);
    gd_free(l.writes);
    gd_free(l.fixed);
    gd_free(l.chain);
    gd_free(l.next);
    gd_free(l.producer);
    gd_free(l.permuted);
    r->changes += l.changes;
    const gd_status ended = gd_uses_end(&l.uses);
    return status != GD_OK ? status : ended;
}
