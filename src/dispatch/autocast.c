/* autocast.c - the settings of GD_AUTOCAST and gd_allow_tf32, and which inputs the dispatcher casts
 * under GD_AUTOCAST. */
#include "dispatch/autocast.h"

#include "gradus/ops.h"

gd_dtype gd_autocast_dtype(void) { return (gd_dtype)gd_this_thread.autocast; }

gd_dtype gd_autocast_begin_at(const char *site, gd_dtype dtype) {
    gd_thread *thread = &gd_this_thread;
    const gd_dtype before = (gd_dtype)thread->autocast;
    if (dtype == GD_BF16 || dtype == GD_F16 || dtype == GD_DTYPE_NONE)
        thread->autocast = (int)dtype;
    else
        gd_report(site, gd_fail(GD_E_DTYPE,
                                "GD_AUTOCAST takes bf16, f16, or GD_DTYPE_NONE for no casts, "
                                "not %s",
                                gd_dtype_size(dtype) ? gd_dtype_name(dtype) : "an unknown dtype"));
    return before;
}

void gd_autocast_end(gd_dtype *before) {
    if (before) gd_this_thread.autocast = (int)*before;
}

bool gd_tf32_allowed(void) { return gd_this_thread.tf32; }

bool gd_allow_tf32(bool allow) {
    gd_thread *thread = &gd_this_thread;
    const bool before = thread->tf32;
    thread->tf32 = allow;
    return before;
}

/* --- casts of inputs -------------------------------------------------------------------------- */

static bool is_narrow(const gd_tensor *t) { return t->dtype == GD_F16 || t->dtype == GD_BF16; }
static bool is_written(const gd_op *op, int i) {
    return op->n_mutated > 0 && i < op->n_inputs && op->inputs[i].mutated;
}
/* Only f16, bf16 and f32 are cast, and no input that the op writes. */
static bool is_castable(const gd_invocation *call, int i) {
    const gd_tensor *t = call->in[i];
    return t && (is_narrow(t) || t->dtype == GD_F32) && !is_written(call->op, i);
}

/* An op without a precision class needs f32 for inputs of mixed dtypes. Elementwise ops promote by
 * themselves. */
static bool needs_one_dtype(const gd_op *op) {
    return !(op->flags & (GD_OP_ELEMENTWISE | GD_OP_VIEW | GD_OP_INTERNAL)) && op->n_mutated == 0;
}

gd_dtype gd_autocast_target(const gd_invocation *call, gd_dtype low) {
    const gd_op *op = call->op;
    const bool has_class = op->flags & (GD_OP_LOW_PRECISION | GD_OP_FULL_PRECISION);
    if (op->base || (!has_class && !needs_one_dtype(op))) return GD_DTYPE_NONE;
    const gd_dtype target = op->flags & GD_OP_LOW_PRECISION ? low : GD_F32;
    bool any_narrow = false, any_f32 = false, any_cast = false;
    for (int i = 0; i < call->n_in; i++) {
        const gd_tensor *t = call->in[i];
        if (!t) continue;
        if (t->dtype == GD_F64 || t->kind == GD_FAILED || t->kind == GD_META) return GD_DTYPE_NONE;
        if (is_written(op, i) && is_narrow(t))
            return GD_DTYPE_NONE; /* the network itself is f16 or bf16 */
        if (!is_castable(call, i)) continue;
        any_narrow |= is_narrow(t);
        any_f32 |= t->dtype == GD_F32;
        any_cast |= t->dtype != target;
    }
    if (!has_class && !(any_narrow && any_f32)) return GD_DTYPE_NONE;
    return any_cast ? target : GD_DTYPE_NONE;
}

gd_status gd_autocast_inputs(const gd_invocation *call, gd_dtype target, gd_tensor **cast) {
    for (int i = 0; i < call->n_in; i++) {
        gd_tensor *t = cast[i] = call->in[i];
        if (!is_castable(call, i) || t->dtype == target) continue;
        for (int k = 0; k < i && cast[i] == t; k++) /* gd_matmul(x, x): one cast serves both */
            if (call->in[k] == t) cast[i] = cast[k];
        if (cast[i] == t) cast[i] = gd_cast(t, target);
        if (cast[i]->kind == GD_FAILED) return gd_failure();
    }
    return GD_OK;
}
