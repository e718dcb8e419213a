/* layout_channels.c - stores images with channels last where the device's kernels prefer that.
 *
 * The tensor cores of a GPU multiply vectors of channels, so its convolutions are fastest on images
 * (N, C, H, W) whose channels are the innermost axis in memory. A temporary (8, 64, 56, 56) then has
 * the strides (200704, 1, 3584, 64). Which calls are faster in that layout is known to their kernels
 * (gd_kernel.prefers_channels_last); a device without such kernels is not affected.
 *
 * The pass begins with the temporaries around these calls, and spreads over the steps between them:
 * batch norm, pooling, elementwise steps. It then takes back the layout of temporaries around steps
 * that would be slower or would copy operands. Conversions remain at the border of a region:
 *
 * - a convolution takes operands in both layouts, and converts those in the other one;
 * - a cast, such as that of f32 weights to bf16, may read one layout and write the other.
 *
 * Feeds, fetches, variables and captured tensors keep their layout.
 */
#include "core/alloc.h"
#include "graph/passes/layout.h"

/* With fewer channels, vectors of them do not fill the 16 bytes that a thread reads at once. */
enum { MIN_CHANNELS = 8 };

typedef struct channel_layout {
    gd_layout *l;
    int *base;           /* per root: the value that a step writes; -1: its layout is fixed */
    bool *moved;         /* per root: it has channels last */
    gd_pvalue *original; /* the values before the pass */
} channel_layout;

static void set_channels_last(const gd_pvalue *v, int64_t *strides) {
    int64_t stride = 1;
    for (int k = 0; k < v->rank; k++) { /* axes from the innermost: 1, rank - 1, ..., 2, 0 */
        const int d = k == 0 ? 1 : k == v->rank - 1 ? 0 : v->rank - k;
        strides[d] = stride;
        stride *= v->dims[d];
    }
}

/* --- temporaries whose layout can change ------------------------------------------------------ */

static bool is_idle(const gd_pstep *s) {
    return s->removed || s->view || (s->op->flags & GD_OP_AWAITS);
}

/* Whether the value is a tensor of images that both layouts store differently. */
static bool has_images(const gd_pvalue *v) {
    if (v->rank < 4 || v->dims[1] < MIN_CHANNELS || gd_value_elements(v) == 0) return false;
    for (int d = 2; d < v->rank; d++)
        if (v->dims[d] > 1) return true;
    return false;
}

/* Finds the values that steps write and whose roots can get another layout. */
static void find_bases(channel_layout *c) {
    const gd_program *p = c->l->p;
    for (int r = 0; r < p->n_roots; r++) c->base[r] = -1;
    for (int i = 0; i < p->n_steps; i++) {
        const gd_pstep *s = &p->steps[i];
        for (int k = 0; k < s->n_out && !is_idle(s); k++) {
            const gd_pvalue *v = s->out[k] < 0 ? NULL : &p->values[s->out[k]];
            if (v && has_images(v) && gd_layout_can_change(c->l, v->root) &&
                gd_value_fills_root(p, v))
                c->base[v->root] = s->out[k];
        }
    }
    for (int v = 0; v < p->n_values; v++) { /* views that cannot get new strides */
        const int root = p->values[v].root, base = c->base[root];
        gd_pvalue to;
        int64_t strides[GD_MAX_RANK];
        if (base < 0) continue;
        set_channels_last(&p->values[base], strides);
        if (!gd_layout_restride_view(&p->values[base], strides, &p->values[v], &to))
            c->base[root] = -1;
    }
}

static void move_root(channel_layout *c, int root, bool last) {
    gd_program *p = c->l->p;
    int64_t strides[GD_MAX_RANK];
    c->moved[root] = last;
    if (last) {
        set_channels_last(&p->values[c->base[root]], strides);
        gd_layout_set_strides(c->l, p->values[c->base[root]], strides);
        return;
    }
    for (int v = gd_uses_values(&c->l->uses, root); v >= 0; v = c->l->uses.next_value[v])
        p->values[v] = c->original[v];
}

/* --- the steps of a region -------------------------------------------------------------------- */

static int operand_of(const gd_pstep *s, int k) {
    return k < s->n_in ? s->in[k] : s->out[k - s->n_in];
}

/* The root of an operand that the pass moves together with the other ones of the step; -1: none. An
 * elementwise step has operands of other dims, which are broadcast. */
static int movable_root(const channel_layout *c, const gd_pstep *s, int k) {
    const gd_program *p = c->l->p;
    const int value = operand_of(s, k), root = gd_value_root(p, value);
    if (root < 0 || c->base[root] < 0 ||
        !gd_values_have_same_dims(&p->values[value], &p->values[c->base[root]]))
        return -1;
    return !s->op->ir || gd_values_have_same_dims(&p->values[value], &p->values[s->out[0]]) ? root
                                                                                            : -1;
}

static bool touches_moved(const channel_layout *c, const gd_pstep *s) {
    for (int k = 0; k < s->n_in + s->n_out; k++) {
        const int root = gd_value_root(c->l->p, operand_of(s, k));
        if (root >= 0 && c->moved[root]) return true;
    }
    return false;
}

/* An update of a variable keeps the variable's layout. */
static bool spreads_layout(const gd_pstep *s) {
    return !is_idle(s) && s->n_out > 0 && s->out[0] >= 0 && !(s->op->ir && s->op->n_mutated > 0);
}

static bool has_movable(const channel_layout *c, const gd_pstep *s) {
    for (int k = 0; k < s->n_in + s->n_out; k++)
        if (movable_root(c, s, k) >= 0) return true;
    return false;
}

static bool move_operands(channel_layout *c, const gd_pstep *s) {
    bool any = false;
    for (int k = 0; k < s->n_in + s->n_out; k++) {
        const int root = movable_root(c, s, k);
        if (root < 0 || c->moved[root]) continue;
        move_root(c, root, true);
        any = true;
    }
    return any;
}

/* Moves the operands of all steps that prefer it, and of the steps connected to them. */
static bool spread_region(channel_layout *c) {
    const gd_program *p = c->l->p;
    bool any = false;
    for (int i = 0; i < p->n_steps; i++) {
        const gd_pstep *s = &p->steps[i];
        if (spreads_layout(s) && !s->op->ir && has_movable(c, s) &&
            gd_step_prefers_channels_last(p, s, c->l->device))
            any = move_operands(c, s) || any;
    }
    for (bool more = any; more;) {
        more = false;
        for (int i = 0; i < p->n_steps; i++)
            if (spreads_layout(&p->steps[i]) && touches_moved(c, &p->steps[i]))
                more = move_operands(c, &p->steps[i]) || more;
    }
    return any;
}

/* --- steps that keep their layout ------------------------------------------------------------- */

static bool is_broadcast(const gd_pvalue *v) {
    for (int d = 0; d < v->rank; d++)
        if (v->dims[d] > 1 && v->strides[d] == 0) return true;
    return false;
}

/* An elementwise step runs fast if all operands of its shape lie alike. A copy may convert. */
static bool elementwise_agrees(const gd_program *p, const gd_pstep *s) {
    const gd_pvalue *y = s->out[0] < 0 ? NULL : &p->values[s->out[0]];
    if (!y) return false;
    if (gd_op_copies(s->op)) return true;
    for (int k = 0; k < s->n_in + s->n_out; k++) {
        const int value = operand_of(s, k);
        const gd_pvalue *v = value < 0 ? NULL : &p->values[value];
        if (v && gd_values_have_same_dims(v, y) && !is_broadcast(v) && !gd_values_lie_alike(v, y))
            return false;
    }
    return true;
}

/* Whether the step runs in the chosen layouts without copies of operands. */
static bool step_agrees(const channel_layout *c, const gd_pstep *s) {
    const gd_program *p = c->l->p;
    if (s->op->ir) return elementwise_agrees(p, s);
    const gd_kernel *kernel = gd_step_kernel(p, s, c->l->device);
    if (!kernel || (kernel->flags & GD_KERNEL_STAGED)) return false;
    if (kernel->flags & GD_KERNEL_STRIDED_RESULTS) return true;
    for (int k = 0; k < s->n_out; k++) {
        const int root = gd_value_root(p, s->out[k]);
        if (root >= 0 && c->moved[root]) return false;
    }
    return true;
}

static void restore_operands(channel_layout *c, const gd_pstep *s) {
    for (int k = 0; k < s->n_in + s->n_out; k++) {
        const int root = gd_value_root(c->l->p, operand_of(s, k));
        if (root >= 0 && c->moved[root]) move_root(c, root, false);
    }
}

/* Restores the layout around steps that do not agree, until all others do. */
static void shrink_region(channel_layout *c) {
    const gd_program *p = c->l->p;
    for (bool more = true; more;) {
        more = false;
        for (int i = 0; i < p->n_steps; i++) {
            const gd_pstep *s = &p->steps[i];
            if (is_idle(s) || !touches_moved(c, s) || step_agrees(c, s)) continue;
            restore_operands(c, s);
            more = true;
        }
    }
}

gd_status gd_layout_move_channels(gd_layout *l) {
    const gd_program *p = l->p;
    channel_layout c = {
        .l = l,
        .base = gd_malloc(((size_t)p->n_roots + 1) * sizeof *c.base),
        .moved = gd_calloc((size_t)p->n_roots + 1, sizeof *c.moved),
        .original = gd_malloc(((size_t)p->n_values + 1) * sizeof *c.original),
    };
    const bool room = c.base && c.moved && c.original;
    if (room) {
        if (p->n_values > 0)
            memcpy(c.original, p->values, (size_t)p->n_values * sizeof *c.original);
        find_bases(&c);
        if (spread_region(&c)) shrink_region(&c);
        for (int r = 0; r < p->n_roots; r++) l->changes += c.moved[r];
    }
    gd_free(c.base);
    gd_free(c.moved);
    gd_free(c.original);
    return room ? GD_OK : gd_no_memory(NULL, "to plan a run");
}
