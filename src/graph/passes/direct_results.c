/* direct_results.c - lets kernels write their results where a copy would put them.
 *
 * Attention computes the heads one after the other, (B, H, T, D), and the projection after it reads
 * them side by side, (B, T, H * D): a transpose, and a reshape that copies. Three such gradients
 * are then joined by a cat. A kernel that supports strides can write into the copy's result, or
 * into its part of the cat's result:
 *
 *     %1 [B,H,T,D] = attention(...)                %3 [B,H,T,D] = attention(...)
 *     %2 [B,T,H,D] = transpose(%1)                 %4 [B,T,H*D], the same memory as %3
 *     %4 [B,T,H*D] = reshape(%2)
 *
 * Other steps that read the result read it at its new position; their kernels must support its
 * strides, too.
 */
#include <string.h>

#include "core/alloc.h"
#include "core/grow.h"
#include "graph/passes/passes.h"

/* An operand that was replaced, and its value before. */
typedef struct replaced_operand {
    int *slot, before;
} replaced_operand;

typedef struct direct_pass {
    gd_program *p;
    gd_device *device;
    int *writes, *writer; /* per root: how many steps write it, and the last of them */
    bool *pinned;         /* per root: it is fetched, committed, or not a temporary */
    replaced_operand *replaced;
    int n_replaced, replaced_room;
} direct_pass;

/* --- layouts ---------------------------------------------------------------------------------- */

/* How the elements of a root move to root `root`: element i * from[k] moves to
 * offset + i * to[k], for i < dims[k]. The axes have ascending `from`. */
typedef struct relayout {
    int root, rank;
    int64_t offset, dims[GD_MAX_RANK], from[GD_MAX_RANK], to[GD_MAX_RANK];
} relayout;

static void sort_layout(relayout *r) {
    for (int i = 1; i < r->rank; i++)
        for (int k = i; k > 0 && r->from[k] < r->from[k - 1]; k--) {
            const int64_t dim = r->dims[k], from = r->from[k], to = r->to[k];
            r->dims[k] = r->dims[k - 1], r->from[k] = r->from[k - 1], r->to[k] = r->to[k - 1];
            r->dims[k - 1] = dim, r->from[k - 1] = from, r->to[k - 1] = to;
        }
}

/* Merges axes that are one axis before and after. */
static void merge_axes(relayout *r) {
    int n = 0;
    for (int k = 1; k < r->rank; k++) {
        if (r->from[k] == r->from[n] * r->dims[n] && r->to[k] == r->to[n] * r->dims[n]) {
            r->dims[n] *= r->dims[k];
        } else {
            n++;
            r->dims[n] = r->dims[k], r->from[n] = r->from[k], r->to[n] = r->to[k];
        }
    }
    if (r->rank > 0) r->rank = n + 1;
}

/* The layout by which `from`, all elements of a root with its axes in some order, comes to lie in
 * memory as `to`, a value with the same elements in the same row-major order. False: an axis of
 * `from` would have no stride. */
static bool find_layout(const gd_program *p, const gd_pvalue *from, const gd_pvalue *to,
                        relayout *r) {
    *r = (relayout){.root = to->root, .offset = to->offset};
    if (from->offset != 0 || gd_value_elements(from) == 0 ||
        (size_t)gd_value_elements(from) * gd_dtype_bytes(from->dtype) != p->roots[from->root].bytes)
        return false;
    int64_t stride = 0, left = 1; /* of the axis of `to` that is being split, from the last on */
    for (int d = from->rank, k = to->rank; d-- > 0;) {
        if (from->dims[d] == 1) continue;
        while (left == 1 && k > 0) left = to->dims[--k], stride = to->strides[k];
        if (from->strides[d] <= 0 || left % from->dims[d] != 0) return false;
        r->dims[r->rank] = from->dims[d];
        r->from[r->rank] = from->strides[d];
        r->to[r->rank++] = stride;
        stride *= from->dims[d];
        left /= from->dims[d];
    }
    sort_layout(r);
    int64_t step = 1; /* a permutation has all strides of a row-major value */
    for (int k = 0; k < r->rank; step *= r->dims[k++])
        if (r->from[k] != step) return false;
    merge_axes(r);
    return true;
}

/* The view of the old root at its new position. False: an axis of the view spans axes that have
 * been separated. */
static bool move_view(const relayout *r, gd_pvalue *v) {
    if (v->offset != 0) return false;
    for (int d = 0; d < v->rank; d++) {
        if (v->dims[d] == 1) continue;
        int k = r->rank - 1;
        while (k > 0 && r->from[k] > v->strides[d]) k--;
        if (k < 0 || v->strides[d] <= 0 || v->strides[d] % r->from[k] != 0) return false;
        const int64_t steps = v->strides[d] / r->from[k];
        if (steps * v->dims[d] > r->dims[k]) return false;
        v->strides[d] = steps * r->to[k];
    }
    v->root = r->root;
    v->offset = r->offset;
    return true;
}

/* --- moving ----------------------------------------------------------------------------------- */

/* Whether a kernel supports the strides of the step's inputs and, if `writes`, of its results. */
static bool has_strided_kernel(const direct_pass *d, const gd_pstep *s, bool writes) {
    const gd_kernel *kernel = gd_step_kernel(d->p, s, d->device);
    return kernel && !(kernel->flags & GD_KERNEL_STAGED) &&
           (!writes || (kernel->flags & GD_KERNEL_STRIDED_RESULTS));
}

/* Moves those of `count` operands that are in the root. Returns how many; -1: one cannot move, or
 * no memory. */
static int move_operands(direct_pass *d, int *values, int count, int root, const relayout *r) {
    int moved = 0;
    for (int k = 0; k < count; k++) {
        if (gd_value_root(d->p, values[k]) != root) continue;
        gd_pvalue v = d->p->values[values[k]];
        const int other = move_view(r, &v) ? gd_program_value(d->p, v) : -1;
        if (other < 0 || !gd_grow(d->replaced, d->n_replaced, d->replaced_room)) return -1;
        d->replaced[d->n_replaced++] = (replaced_operand){&values[k], values[k]};
        values[k] = other;
        moved++;
    }
    return moved;
}

/* Moves all operands in the root, but those of step `copy`. False: a step cannot use its operand at
 * the new position, or nothing writes the root any more: a cat may have an input twice. */
static bool move_root(direct_pass *d, int root, int copy, const relayout *r) {
    int written = 0;
    for (int i = d->writer[root]; i < d->p->n_steps; i++) {
        gd_pstep *s = &d->p->steps[i];
        if (i == copy || s->removed || s->view) continue;
        const int in = move_operands(d, s->in, s->n_in, root, r),
                  out = move_operands(d, s->out, s->n_out, root, r);
        if (in < 0 || out < 0) return false;
        if (in + out > 0 && (s->each || !has_strided_kernel(d, s, out > 0))) return false;
        written += out;
    }
    return written > 0;
}

/* Puts back what has moved since `mark`. */
static void undo_moves(direct_pass *d, int mark) {
    while (d->n_replaced > mark) {
        const replaced_operand *o = &d->replaced[--d->n_replaced];
        *o->slot = o->before;
    }
}

/* --- copies ----------------------------------------------------------------------------------- */

/* Whether one step before the copy computes the value's root, which is free to move. Elementwise
 * steps are left alone: they are fastest where all operands have one layout. */
static bool is_free_result(const direct_pass *d, int value, int copy) {
    const int root = gd_value_root(d->p, value);
    if (root < 0 || d->pinned[root] || d->writes[root] != 1 || d->writer[root] >= copy)
        return false;
    const gd_pstep *s = &d->p->steps[d->writer[root]];
    return !s->op->ir && !s->op->fusion && !(s->op->flags & GD_OP_OPAQUE);
}

/* Whether only this step writes the root. */
static bool is_result_of(const direct_pass *d, int root, int step) {
    return gd_root_is_temporary(d->p, root) && d->writes[root] == 1 && d->writer[root] == step;
}

/* Lets the producer of an input write to `to`, which has the input's elements. */
static bool write_directly(direct_pass *d, int input, const gd_pvalue *to, int copy) {
    const gd_pvalue from = d->p->values[input];
    relayout r;
    return from.dtype == to->dtype && is_free_result(d, input, copy) &&
           find_layout(d->p, &from, to, &r) && move_root(d, from.root, copy, &r);
}

/* A reshape that copies: of a permuted value. */
static bool skip_reshape(direct_pass *d, int at) {
    const gd_pstep *s = &d->p->steps[at];
    const gd_pvalue to = d->p->values[s->out[0]];
    return is_result_of(d, to.root, at) && gd_value_is_row_major(&to) &&
           write_directly(d, s->in[0], &to, at);
}

/* Each input is written to its part of the result. */
static bool skip_cat(direct_pass *d, int at) {
    const gd_pstep *s = &d->p->steps[at];
    const gd_pvalue joined = d->p->values[s->out[0]];
    const gd_pvalue *first = &d->p->values[s->in[0]];
    if (!is_result_of(d, joined.root, at) || first->rank != joined.rank) return false;
    int axis = 0; /* the one in which an input is smaller */
    while (axis < joined.rank && first->dims[axis] == joined.dims[axis]) axis++;
    if (axis == joined.rank) return false;
    gd_pvalue part = joined;
    for (int k = 0; k < s->n_in; k++) {
        part.dims[axis] = d->p->values[s->in[k]].dims[axis];
        if (!write_directly(d, s->in[k], &part, at)) return false;
        part.offset += part.dims[axis] * part.strides[axis];
    }
    return true;
}

/* Whether the step copies all elements of its input in row-major order. Of the ops whose result may be a
 * view, these copy where strides allow none. */
static bool copies_in_order(const gd_pstep *s) {
    static const char *const names[] = {"reshape", "flatten", "contiguous"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (s->n_in == 1 && strcmp(s->op->name, names[i]) == 0) return true;
    return false;
}

/* Removes a copy whose operands can be written directly. */
static bool remove_copy(direct_pass *d, int at) {
    gd_pstep *s = &d->p->steps[at];
    if (s->removed || s->view || s->each || s->n_out != 1 || s->out[0] < 0 || s->n_in < 1)
        return false;
    for (int k = 0; k < s->n_in; k++)
        if (s->in[k] < 0) return false;
    const bool reshapes = copies_in_order(s);
    if (!reshapes && strcmp(s->op->name, "cat") != 0) return false;
    const int root = d->p->values[s->out[0]].root, mark = d->n_replaced;
    if (!(reshapes ? skip_reshape(d, at) : skip_cat(d, at))) {
        undo_moves(d, mark);
        return false;
    }
    s->removed = true;
    d->writes[root] = reshapes ? 1 : s->n_in;
    d->writer[root] = d->writer[d->p->values[s->in[0]].root];
    return true;
}

static void find_writers(direct_pass *d) {
    const gd_program *p = d->p;
    for (int i = 0; i < p->n_steps; i++) {
        const gd_pstep *s = &p->steps[i];
        for (int k = 0; k < s->n_out && !s->removed && !s->view; k++) {
            const int root = gd_value_root(p, s->out[k]);
            if (root >= 0) d->writes[root]++, d->writer[root] = i;
        }
    }
    for (int r = 0; r < p->n_roots; r++) d->pinned[r] = !gd_root_is_temporary(p, r);
    for (int i = 0; i < p->n_fetches; i++) d->pinned[p->values[p->fetches[i]].root] = true;
    for (int i = 0; i < p->n_commits; i++) d->pinned[p->values[p->commits[i].value].root] = true;
}

gd_status gd_pass_direct_results(gd_rewrite *r) {
    gd_program *p = r->program;
    const size_t roots = (size_t)p->n_roots + 1;
    int *counts = gd_calloc(2 * roots, sizeof *counts);
    direct_pass d = {.p = p,
                     .device = r->device,
                     .writes = counts,
                     .writer = counts ? counts + roots : NULL,
                     .pinned = gd_calloc(roots, sizeof *d.pinned)};
    gd_status status = counts && d.pinned ? GD_OK : gd_no_memory(NULL, "to plan a run");
    if (status == GD_OK) find_writers(&d);
    for (int i = 0; i < p->n_steps && status == GD_OK; i++) r->changes += remove_copy(&d, i);
    gd_free(counts);
    gd_free(d.pinned);
    gd_free(d.replaced);
    return status;
}
