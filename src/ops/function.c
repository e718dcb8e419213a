/* function.c - functions of the program as ops: nodes of a graph that call back when they run.
 * gd_apply (autograd.h) makes them. */
#include "ops/function.h"

#include <string.h>

#include "gradus/ops.h"
#include "ops/infer.h"

gd_function_rules gd_function_hooks;

/*op function_call(tensors*) -> ys*  internal calls refuses
 * Calls forward of a function of the program. Gives its results, then what it has saved for its
 * gradient that is neither an input nor a result.
 *   name     string = none
 *   function int = 0        its number among all that graphs call
 *   results  int = 1
 *   keeps    string = none  what it saves, in order: x0 an input, y0 a result, s another tensor
 *   saves tensors, ys
 */
static gd_status function_call_infer(gd_infer *i) { return gd_function_hooks.infer(i); }
static gd_status function_call_raw(gd_kernel_call *k) { return gd_function_hooks.forward(k); }
static void function_call_vjp(gd_vjp *v) { gd_function_hooks.vjp(v); }

/*op function_gradient(tensors*) -> gx*  internal calls refuses
 * Calls backward of a function of the program: with its `inputs` inputs, of which only the shapes
 * count, the gradients of its results, and what forward has saved. Gives the gradients that are
 * needed.
 *   name      string = none
 *   function  int = 0
 *   inputs    int = 0
 *   gradients string = none  of each result: 1, or 0 where it has none
 *   needs     string = none  of each input: 1, or 0
 *   saves nothing
 */
static gd_status function_gradient_infer(gd_infer *i) {
    const gd_function_gradient_options *o = i->attrs;
    int n = 0;
    if (!o->needs || !o->gradients || o->inputs < 0 || o->inputs > i->n_in ||
        (int64_t)strlen(o->needs) != o->inputs)
        return gd_op_fail(GD_E_ARGUMENT, "such nodes are made by gd_apply");
    for (int64_t k = 0; k < o->inputs; k++) n += o->needs[k] == '1';
    GD_TRY(gd_infer_outputs(i, n));
    for (int64_t k = 0, at = 0; k < o->inputs; k++)
        if (o->needs[k] == '1') gd_meta_like(&i->out[at++], i->in[k]);
    return GD_OK;
}
static gd_status function_gradient_raw(gd_kernel_call *k) { return gd_function_hooks.backward(k); }
static void function_gradient_vjp(gd_vjp *v) {
    const gd_function_gradient_options *o = v->attrs;
    gd_error_stick(gd_fail(GD_E_UNSUPPORTED,
                           "the gradient of '%s' has no gradient in a graph: its backward computes "
                           "in C. If it is made of ops, set "
                           ".backward_of_ops = true in its gd_function",
                           o->name));
    for (int i = 0; i < v->n_in; i++)
        if (v->needs[i]) v->gx[i] = &gd_error_tensor;
}

#include "function.gen.h"
