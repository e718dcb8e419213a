/* autocast.h - mixed precision: products in bf16 or f16, everything that needs range in f32.
 *
 *     {
 *         GD_AUTOCAST(GD_BF16);                        // for the rest of this block
 *         loss = gd_cross_entropy(gd_module_forward(net, x), y);
 *     }
 *     gd_backward(loss);                               // gradients of f32 parameters are f32
 *
 * Inside the block an op computes in a dtype that its record chooses (docs/ops.md says which ops are of
 * which class; docs/precision.md has the reasons):
 *
 *   low    matrix products, convolutions, attention, recurrent layers, einsum: inputs of f32, f16 and
 *          bf16 are cast to the dtype of the block
 *   full   softmax, losses, norms, exp, log, pow, sums, means, variances, cumulative sums: inputs of
 *          f16 and bf16 are cast to f32
 *   other  the dtype of its inputs. Where f16 or bf16 meets f32, the result is f32
 *
 * f64, integers and bools are never cast, and a call that has an f64 input is left as it is. So are ops
 * that write in place (gd_exp_), gd_op_run_into, and gd_batch_norm where its statistics are bf16 or f16:
 * their dtype is that of the tensor they write.
 * Parameters stay f32: a cast is an op like any other, and its gradient casts back.
 *
 * Gradient rules and hooks, functions of gd_apply, optimizer steps and runs of sessions compute in the
 * dtypes that they find. gd_recompute runs its function again under the setting of the first time. A
 * gd_jit makes a plan for each setting that it is called under; a graph that is built inside the block
 * contains the casts.
 *
 * Threads: each thread has its own setting, which is off at first. A thread that is started inside the
 * block does not inherit it.
 */
#ifndef GRADUS_AUTOCAST_H
#define GRADUS_AUTOCAST_H

#include "gradus/scope.h"

#ifdef __cplusplus
extern "C" {
#endif

/* For the rest of the block: GD_AUTOCAST(GD_BF16); or GD_F16, or GD_DTYPE_NONE, which turns it off.
 * Any other dtype is a failure, and changes nothing. */
#define GD_AUTOCAST(dtype)                                                                   \
    __attribute__((cleanup(gd_autocast_end), unused)) gd_dtype GD_SCOPE_NAME_(__COUNTER__) = \
        gd_autocast_begin(dtype)

/* By hand: begin returns the setting before, which end restores. */
#define gd_autocast_begin(dtype) gd_autocast_begin_at(GD_HERE, dtype)
GD_API gd_dtype gd_autocast_begin_at(const char *site, gd_dtype dtype);
GD_API void gd_autocast_end(gd_dtype *before);

/* The setting of this thread: GD_BF16, GD_F16, or GD_DTYPE_NONE where it is off. */
GD_API gd_dtype gd_autocast_dtype(void);

#ifdef __cplusplus
}
#endif
#endif
