/* norm_fold.c - folds a batch norm into the weights and bias of the layer before it. */
#include <math.h>
#include <string.h>

#include "dispatch/infer.h"
#include "ops/windows/windows_spatial.h"
#include "gradus/ops.h"

/*op norm_fold(w, b?, weight?, bias?, mean, var, momentum:float, eps:float) -> w2, b2  nograd internal
 * The weights and bias of a convolution or linear layer with the batch norm after it folded in:
 * w2[o] = w[o] s[o] and b2 = (b - mean) s + bias, where s = weight / sqrt(var + eps). Plans use it
 * where there are fewer weights than results. momentum is an option of the batch norm and not used.
 *   folds batch_norm(conv1d|conv2d|conv3d|linear (x, w, b), weight, bias, mean, var)
 */
static gd_status norm_fold_infer(gd_infer *i) {
    static const char *const names[] = {"w", "b", "weight", "bias", "mean", "var"};
    const gd_tensor *w = i->in[0];
    char text[128];
    GD_TRY(gd_need_float(w, "w"));
    if (w->rank < 1) return gd_op_fail(GD_E_SHAPE, "'w' must have a dimension of channels");
    for (int k = 1; k < 6; k++) {
        const gd_tensor *t = k < i->n_in ? i->in[k] : NULL;
        if (!t) continue;
        if (t->dtype != w->dtype)
            return gd_op_fail(GD_E_DTYPE, "'%s' is %s and 'w' %s; they must be the same", names[k],
                              gd_dtype_name((gd_dtype)t->dtype), gd_dtype_name((gd_dtype)w->dtype));
        if (t->rank != 1 || t->dims[0] != w->dims[0])
            return gd_op_fail(GD_E_SHAPE, "'%s' must have shape [%lld], not %s", names[k],
                              (long long)w->dims[0],
                              gd_shape_text(t->rank, t->dims, text, sizeof text));
    }
    gd_meta_like(&i->out[0], w);
    gd_meta_like(&i->out[1], i->in[4]);
    return GD_OK;
}

/* Element i, or `otherwise` if the optional operand is absent. */
static double element_or(const gd_view *v, int64_t i, double otherwise) {
    return v->data ? ((const double *)v->data)[i] : otherwise;
}

static gd_status norm_fold_reference(gd_kernel_call *k) {
    const gd_norm_fold_options *o = k->attrs;
    const int64_t channels = k->in[0].dims[0], n = gd_numel(k->in[0].rank - 1, k->in[0].dims + 1);
    for (int64_t c = 0; c < channels; c++) {
        const double s = element_or(&k->in[2], c, 1) / sqrt(element_or(&k->in[5], c, 0) + o->eps);
        for (int64_t i = 0; i < n; i++)
            ((double *)k->out[0].data)[c * n + i] = element_or(&k->in[0], c * n + i, 0) * s;
        ((double *)k->out[1].data)[c] =
            (element_or(&k->in[1], c, 0) - element_or(&k->in[4], c, 0)) * s +
            element_or(&k->in[3], c, 0);
    }
    return GD_OK;
}

static void norm_fold_expand(gd_expansion *e) {
    const gd_norm_fold_options *o = e->attrs;
    gd_tensor *in[6];
    for (int i = 0; i < 6; i++) in[i] = i < e->n_in && e->x[i] ? gd_widen(e->x[i]) : NULL;
    gd_tensor *w = in[0], *b = in[1], *weight = in[2], *bias = in[3], *mean = in[4], *var = in[5];
    const gd_dtype wide = gd_tensor_dtype(w), dtype = (gd_dtype)e->x[0]->dtype;
    gd_shape dims = {.rank = e->x[0]->rank, .form = 1, .at = {e->x[0]->dims[0]}};
    for (int d = 1; d < dims.rank; d++) dims.at[d] = 1;
    gd_tensor *root = gd_sqrt(gd_add(var, gd_scalar_of(o->eps, wide)));
    gd_tensor *scale = weight ? gd_div(weight, root) : gd_reciprocal(root);
    gd_tensor *b2 = gd_mul(b ? gd_sub(b, mean) : gd_neg(mean), scale);
    e->y[0] = gd_as_dtype(gd_mul(w, gd_reshape(scale, dims)), dtype);
    e->y[1] = gd_as_dtype(bias ? gd_add(b2, bias) : b2, dtype);
}

#include "ops/norm/norm_fold.gen.h"
