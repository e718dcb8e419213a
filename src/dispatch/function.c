/* function.c - functions of the program as ops: nodes that call the program when they run. gd_apply
 * (autograd.h) creates them. */
#include "dispatch/function.h"

#include <string.h>

#include "gradus/ops.h"
#include "dispatch/infer.h"

gd_function_rules gd_function_hooks;

/*op function_call(tensors*) -> ys*  internal calls fallible
 * Calls `forward` of a function of the program. Returns its results, then the tensors that it saved
 * for its gradient and that are neither inputs nor results.
 *   name     string = none
 *   function int = 0        its number among the functions of all graphs
 *   results  int = 1
 *   keeps    string = none  the saved tensors, in order: x0 an input, y0 a result, s another tensor
 *   saves tensors, ys
 */
static gd_status function_call_infer(gd_infer *i) { return gd_function_hooks.infer(i); }
static gd_status function_call_raw(gd_kernel_call *k) { return gd_function_hooks.forward(k); }
static void function_call_vjp(gd_vjp *v) { gd_function_hooks.vjp(v); }

/*op function_gradient(tensors*) -> gx*  internal calls fallible
 * Calls `backward` of a function of the program. The tensors are its `inputs` inputs (only their
 * shapes are used), the gradients of its results, and the tensors that `forward` saved. Returns the
 * gradients of those inputs that need one.
 *   name      string = none
 *   function  int = 0
 *   inputs    int = 0
 *   gradients string = none  for each result: 1 if it has a gradient, else 0
 *   needs     string = none  for each input: 1 if its gradient is needed, else 0
 *   saves nothing
 */
static gd_status function_gradient_infer(gd_infer *i) {
    const gd_function_gradient_options *o = i->attrs;
    int n = 0;
    if (!o->needs || !o->gradients || o->inputs < 0 || o->inputs > i->n_in ||
        (int64_t)strlen(o->needs) != o->inputs)
        return gd_op_fail(GD_E_ARGUMENT, "invalid options; call gd_apply instead");
    for (int64_t k = 0; k < o->inputs; k++) n += o->needs[k] == '1';
    GD_TRY(gd_infer_outputs(i, n));
    for (int64_t k = 0, at = 0; k < o->inputs; k++)
        if (o->needs[k] == '1') gd_meta_like(&i->out[at++], i->in[k]);
    return GD_OK;
}
static gd_status function_gradient_raw(gd_kernel_call *k) { return gd_function_hooks.backward(k); }
static void function_gradient_vjp(gd_vjp *v) {
    const gd_function_gradient_options *o = v->attrs;
    gd_error_record(gd_fail(GD_E_UNSUPPORTED,
                            "the gradient of '%s' has no gradient in a graph, because its backward "
                            "is C code. If backward calls ops only, set .backward_of_ops = true in "
                            "its gd_function",
                            o->name));
    for (int i = 0; i < v->n_in; i++)
        if (v->needs[i]) v->gx[i] = &gd_error_tensor;
}

#include "dispatch/function.gen.h"
