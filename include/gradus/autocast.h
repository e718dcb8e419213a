/* autocast.h - mixed precision: matrix products in bf16 or f16, ops that need range in f32.
 *
 *     {
 *         GD_AUTOCAST(GD_BF16);                        // for the rest of this block
 *         loss = gd_cross_entropy(gd_module_forward(net, x), y);
 *     }
 *     gd_backward(loss);                               // gradients of f32 parameters are f32
 *
 * Inside the block the class of an op, which its record gives, chooses the dtype that it computes
 * in (docs/reference/ops.md lists the classes, docs/guide/precision.md gives the reasons):
 *
 *   low    matrix products, convolutions, attention, recurrent layers, einsum: f32, f16 and bf16
 *          inputs are cast to the dtype of the block
 *   full   softmax, losses, norms, exp, log, pow, sums, means, variances, cumulative sums: f16 and
 *          bf16 inputs are cast to f32
 *   other  the promoted dtype of the inputs; f16 or bf16 with f32 gives f32
 *
 * f64, integers and bools are never cast, and a call with an f64 input is left unchanged. So are
 * calls whose dtype is that of a tensor they write: in-place ops (gd_exp_), gd_op_run_into, and
 * gd_batch_norm with bf16 or f16 statistics. Parameters stay f32: a cast is an op, and its gradient
 * casts back.
 *
 * The setting does not apply to gradient rules, hooks, functions of gd_apply, optimizer steps and
 * session runs. gd_recompute restores the setting of the first call when it calls its function
 * again. A gd_jit builds a plan for each setting under which it is called. A graph that is built
 * inside the block contains the casts.
 *
 * Threads: each thread has its own setting, off by default. A thread that is started inside the
 * block does not inherit it.
 */
#ifndef GRADUS_AUTOCAST_H
#define GRADUS_AUTOCAST_H

#include "gradus/scope.h"

#ifdef __cplusplus
extern "C" {
#endif

/* For the rest of the block: GD_AUTOCAST(GD_BF16); or GD_F16, or GD_DTYPE_NONE, which turns
 * autocast off. Any other dtype fails and changes nothing. */
#define GD_AUTOCAST(dtype)                                                                   \
    __attribute__((cleanup(gd_autocast_end), unused)) gd_dtype GD_SCOPE_NAME_(__COUNTER__) = \
        gd_autocast_begin(dtype)

/* Without the macro: begin returns the previous setting, which end restores. */
#define gd_autocast_begin(dtype) gd_autocast_begin_at(GD_HERE, dtype)
GD_API gd_dtype gd_autocast_begin_at(const char *site, gd_dtype dtype);
GD_API void gd_autocast_end(gd_dtype *before);

/* The setting of this thread: GD_BF16, GD_F16, or GD_DTYPE_NONE for off. */
GD_API gd_dtype gd_autocast_dtype(void);

/* --- tf32 ------------------------------------------------------------------------------------- */

/* Whether f32 matrix products, convolutions and recurrent layers may round their operands to tf32,
 * the format of NVIDIA's tensor cores: the range of f32 with 10 bits of mantissa instead of 23. Sums
 * are still f32. It is much faster there, has no effect on other devices, and is off by default.
 * Returns the previous setting.
 *
 * The setting is per thread and also applies to gradient rules. A session keeps the setting with
 * which it was created (.tf32 in session.h); a gd_jit builds a plan for each setting. */
GD_API bool gd_allow_tf32(bool allow);
GD_API bool gd_tf32_allowed(void);

#ifdef __cplusplus
}
#endif
#endif
