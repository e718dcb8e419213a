/* operand.c - calls of elementwise ops with numbers among their operands. */
#include "dispatch/operand.h"

#include "core/tensor.h"
#include "dispatch/body.h"
#include "dispatch/infer.h"

enum { MAX_OPERANDS = 8 };

static bool is_number(const gd_operand *o) { return !o->tensor && o->kind != GD_DTYPE_NONE; }

static int kind_of(gd_dtype dtype) {
    return gd_dtype_is_float(dtype) ? 2 : gd_dtype_is_int(dtype) ? 1 : 0;
}

/* The promoted dtype of the tensors that decide; without any, the dtype of a number of the highest
 * kind. */
static gd_dtype deciding_dtype(int n, gd_operand *const *operands, unsigned deciding) {
    gd_tensor *tensors[MAX_OPERANDS];
    int n_tensors = 0;
    gd_dtype highest = GD_BOOL;
    for (int i = 0; i < n; i++) {
        if (!(deciding >> i & 1)) continue;
        if (operands[i]->tensor) tensors[n_tensors++] = operands[i]->tensor;
        else if (kind_of(operands[i]->kind) > kind_of(highest))
            highest = kind_of(operands[i]->kind) == 2 ? GD_F32 : GD_I64;
    }
    return n_tensors ? gd_result_dtype(tensors, n_tensors) : highest;
}

/* The dtype of a number: that of the tensors, unless the number is of a higher kind. */
static gd_dtype number_dtype(const gd_operand *o, gd_dtype others) {
    if (kind_of(o->kind) <= kind_of(others)) return others;
    return kind_of(o->kind) == 2 ? GD_F32 : GD_I64;
}

/* Unlike the value of gd_full, an operand does not wrap: -1 < x must not be 255 < x. */
static gd_status check_number(gd_number value, gd_dtype dtype) {
    if (dtype == GD_U8 && value.value < 0)
        return gd_fail(GD_E_ARGUMENT, "the value %g does not fit u8", value.value);
    return gd_need_fits(value, dtype);
}

/* A tensor of rank 0 where the call runs; in a graph a constant. `beside` is a tensor of the call,
 * or NULL. */
static gd_tensor *make_number(gd_number value, gd_dtype dtype, const gd_tensor *beside) {
    gd_thread *thread = &gd_this_thread;
    gd_device *before = thread->device;
    if (beside) thread->device = beside->device;
    gd_tensor *t = thread->tracer || (beside && beside->kind == GD_SYMBOL)
                       ? gd_constant_for(beside ? beside : &gd_error_tensor, gd_shape_of(0, NULL),
                                         value, dtype)
                       : gd_scalar_of(value, dtype);
    thread->device = before;
    return t;
}

gd_scope *gd_operands_begin(const gd_op *op, const char *site, gd_operand *const *operands,
                            unsigned deciding) {
    gd_scope *scope = gd_scope_open();
    GD_CALLED_FROM(site);
    const int n = op->n_inputs;
    const gd_dtype others = deciding_dtype(n, operands, deciding);
    const gd_tensor *beside = NULL;
    for (int i = 0; i < n; i++)
        if (operands[i]->tensor && (!beside || operands[i]->tensor->kind == GD_SYMBOL))
            beside = operands[i]->tensor;
    if (beside && beside->kind == GD_FAILED) beside = NULL;
    for (int i = 0; i < n; i++) {
        gd_operand *o = operands[i];
        if (!is_number(o)) continue;
        const gd_dtype dtype =
            deciding >> i & 1 ? number_dtype(o, others) : number_dtype(o, o->kind);
        const gd_status status = check_number(o->number, dtype);
        if (status == GD_OK) o->tensor = make_number(o->number, dtype, beside);
        else {
            gd_error_prefix("%s: operand '%s': ", op->name, op->inputs[i].name);
            gd_error_location(site);
            o->tensor = gd_tensor_fail(status);
        }
    }
    return scope;
}

gd_tensor *gd_operands_end(gd_scope *scope, gd_tensor *result) {
    gd_keep(result);
    gd_scope_close(&scope);
    return result;
}
