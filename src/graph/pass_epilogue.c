/* pass_epilogue.c - what is done to each element of a product is done as the product is stored.
 *
 * linear and relu become linear_relu, a convolution and relu conv_relu; a product whose result goes
 * back through relu is masked; one that is only used to take a step of gradient descent becomes part
 * of that step, and is never in memory as a whole.
 */
#include <string.h>

#include "core/alloc.h"
#include "graph/program.h"
#include "gradus/ops.h"

static bool is(const gd_pstep *s, const char *name) { return !s->removed && strcmp(s->op->name, name) == 0; }

/* linear -> relu, and nobody else reads what is between. */
static bool fold_relu(gd_program *p, int at, const int *readers) {
    gd_pstep *relu = &p->steps[at];
    if (!is(relu, "relu") || readers[p->values[relu->in[0]].root] != 1) return false;
    const int from = gd_program_maker(p, relu->in[0], at);
    if (from < 0 || !is(&p->steps[from], "linear")) return false;
    gd_pstep *linear = &p->steps[from];
    linear->op = gd_op_find("linear_relu");
    linear->attrs = NULL;
    linear->out[0] = relu->out[0];
    relu->removed = true;
    return true;
}

/* The options of a convolution for conv_relu, which has a list of any length where conv2d has two
 * numbers. Both have the same names. */
static const void *conv_relu_options(gd_program *p, const gd_pstep *conv, const gd_op *to) {
    char *options = gd_program_alloc(p, to->attrs_size);
    for (int i = 0; options && i < to->n_attrs; i++) {
        const gd_op_attr *a = &to->attrs[i], *b = NULL;
        for (int k = 0; k < conv->op->n_attrs; k++)
            if (strcmp(conv->op->attrs[k].name, a->name) == 0) b = &conv->op->attrs[k];
        if (!b) return NULL;
        const char *from = (const char *)conv->attrs + b->offset;
        if (a->type == GD_ATTR_SHAPE && b->type == GD_ATTR_INTS)
            *(gd_shape *)(void *)(options + a->offset) = gd_shape_of(b->count, (const int64_t *)(const void *)from);
        else if (a->type == b->type && a->type == GD_ATTR_INT)
            memcpy(options + a->offset, from, sizeof(int64_t));
        else if (a->type == b->type && a->type == GD_ATTR_WORD)
            memcpy(options + a->offset, from, sizeof(gd_word));
        else
            return NULL;
    }
    return options;
}

/* A convolution -> relu: the same. */
static bool fold_conv_relu(gd_program *p, int at, const int *readers) {
    gd_pstep *relu = &p->steps[at];
    if (!is(relu, "relu") || readers[p->values[relu->in[0]].root] != 1) return false;
    const int from = gd_program_maker(p, relu->in[0], at);
    gd_pstep *conv = from < 0 ? NULL : &p->steps[from];
    if (!conv || !(is(conv, "conv1d") || is(conv, "conv2d") || is(conv, "conv3d"))) return false;
    if (!gd_dtype_is_float((gd_dtype)p->values[relu->out[0]].dtype)) return false;
    const gd_op *op = gd_op_find("conv_relu");
    const void *options = conv_relu_options(p, conv, op);
    if (!options) return false;
    conv->op = op;
    conv->attrs = options;
    conv->out[0] = relu->out[0];
    relu->removed = true;
    return true;
}

/* matmul of matrices -> the gradient of relu, and nobody else reads the product. */
static bool fold_mask(gd_program *p, int at, const int *readers) {
    gd_pstep *mask = &p->steps[at];
    if (!is(mask, "relu.gx") || readers[p->values[mask->in[0]].root] != 1) return false;
    const int from = gd_program_maker(p, mask->in[0], at);
    if (from < 0 || !is(&p->steps[from], "matmul")) return false;
    const gd_pstep *product = &p->steps[from];
    const gd_pvalue *a = &p->values[product->in[0]], *b = &p->values[product->in[1]], *y = &p->values[mask->in[1]];
    const bool fits = a->rank == 2 && b->rank == 2 && y->rank == 2 && a->dtype == b->dtype && a->dtype == y->dtype &&
                      (y->dtype == GD_F32 || y->dtype == GD_F64);
    int *in = fits ? gd_program_alloc(p, 3 * sizeof *in) : NULL;
    if (!in) return false;
    in[0] = product->in[0];
    in[1] = product->in[1];
    in[2] = mask->in[1];
    mask->op = gd_op_find("matmul_relu_grad");
    mask->attrs = NULL;
    mask->in = in;
    mask->n_in = 3;
    p->steps[from].removed = true;
    return true;
}

/* matmul of matrices -> sgd_step without weight decay, and nobody else reads the product. The inputs
 * of the product must still be as they were when the step is taken. */
static bool fold_step(gd_program *p, int at, const int *readers) {
    gd_pstep *step = &p->steps[at];
    if (!is(step, "sgd_step") || readers[p->values[step->in[1]].root] != 1) return false;
    if (step->attrs && ((const gd_sgd_step_options *)step->attrs)->weight_decay != 0) return false;
    const int from = gd_program_maker(p, step->in[1], at);
    if (from < 0 || !is(&p->steps[from], "matmul")) return false;
    gd_pstep *product = &p->steps[from];
    const gd_pvalue *a = &p->values[product->in[0]], *b = &p->values[product->in[1]], *w = &p->values[step->in[0]],
                    *lr = &p->values[step->in[2]];
    const bool fits = a->rank == 2 && b->rank == 2 && w->rank == 2 && lr->rank == 0 && a->dtype == b->dtype && a->dtype == w->dtype &&
                      (w->dtype == GD_F32 || w->dtype == GD_F64) && gd_dtype_is_float((gd_dtype)lr->dtype);
    int *in = fits ? gd_program_alloc(p, 4 * sizeof *in) : NULL;
    if (!in) return false;
    in[0] = step->in[0];
    in[1] = product->in[0];
    in[2] = product->in[1];
    in[3] = step->in[2];
    step->op = gd_op_find("matmul_step");
    step->attrs = NULL;
    step->in = in;
    step->n_in = 4;
    product->removed = true;
    return true;
}

int gd_pass_epilogue(gd_program *p) {
    int *readers = gd_program_readers(p), changes = 0;
    if (!readers) return -1;
    for (int i = 0; i < p->n_steps; i++) changes += fold_relu(p, i, readers) || fold_conv_relu(p, i, readers) || fold_mask(p, i, readers) || fold_step(p, i, readers);
    gd_free(readers);
    return changes;
}
