/* conv.c - convolution and transposed convolution over one, two or three axes.
 *
 * All ops compute the bilinear form of conv_problem.h. Its three directions are the internal ops
 * conv_forward, conv_grad_input and conv_grad_weight. The gradients of each are the other two, so
 * these three express gradients of any order.
 */
#include <string.h>

#include "core/checked.h"
#include "gradus/ops.h"
#include "ops/conv/conv.h"
#include "dispatch/infer.h"
#include "dispatch/macs.h"

enum { AXES = GD_CONV_AXES };

/* --- options ---------------------------------------------------------------------------------- */

/* Reads an op's options struct by the names in its record. */
static gd_status read_options(const gd_op *op, const void *attrs, int n, gd_conv_options *o) {
    *o = gd_conv_default_options();
    for (int i = 0; i < op->n_attrs; i++) {
        int64_t *list = gd_conv_list_of(o, op->attrs[i].name);
        if (list) GD_TRY(gd_spatial_read(&op->attrs[i], attrs, n, list));
        else gd_conv_read_scalar(&op->attrs[i], attrs, o);
    }
    return GD_OK;
}

static gd_status check_options(const gd_conv_options *o, int n) {
    for (int a = AXES - n; a < AXES; a++) {
        if (o->stride[a] < 1)
            return gd_op_fail(GD_E_ARGUMENT, "stride is %lld; it must be at least 1",
                              (long long)o->stride[a]);
        if (o->dilation[a] < 1)
            return gd_op_fail(GD_E_ARGUMENT, "dilation is %lld; it must be at least 1",
                              (long long)o->dilation[a]);
        if (o->padding[a] < 0)
            return gd_op_fail(GD_E_ARGUMENT, "padding is %lld; it must not be negative",
                              (long long)o->padding[a]);
        if (o->pad_mode != GD_EXPLICIT && o->padding[a] != 0)
            return gd_op_fail(GD_E_ARGUMENT,
                              "both padding and pad_mode are given; give one of them");
        if (o->pad_mode == GD_SAME && o->stride[a] != 1)
            return gd_op_fail(GD_E_ARGUMENT, "pad_mode same needs stride 1, not %lld",
                              (long long)o->stride[a]);
    }
    if (o->groups < 1)
        return gd_op_fail(GD_E_ARGUMENT, "groups is %lld; it must be at least 1",
                          (long long)o->groups);
    return GD_OK;
}

gd_conv gd_conv_of(const gd_kernel_call *k, const gd_view *x, const gd_view *w, const gd_view *y) {
    gd_conv_options o = gd_conv_default_options();
    for (int i = 0; i < k->op->n_attrs; i++)
        gd_conv_read_option(&k->op->attrs[i], k->attrs, w->rank - 2, &o);
    return gd_conv_with(&o, x, w, y);
}

/* --- shapes ----------------------------------------------------------------------------------- */

static gd_status need_weight(const gd_tensor *w, int n, int64_t groups) {
    GD_TRY(gd_need_rank(w, "w", n + 2));
    if (w->dims[0] % groups != 0)
        return gd_op_fail(GD_E_SHAPE, "%lld groups do not divide dimension 0 of 'w', which is %lld",
                          (long long)groups, (long long)w->dims[0]);
    for (int d = 2; d < w->rank; d++)
        if (w->dims[d] < 1)
            return gd_op_fail(GD_E_SHAPE, "dimension %d of 'w', a kernel size, is 0", d);
    return GD_OK;
}

static gd_status need_channels(const gd_tensor *x, const char *name, int n, int64_t channels) {
    int axis = x->rank - n - 1;
    if (x->dims[axis] == channels) return GD_OK;
    return gd_op_fail(GD_E_SHAPE, "'%s' has %lld channels (dimension %d); 'w' and groups need %lld",
                      name, (long long)x->dims[axis], axis, (long long)channels);
}

static gd_status need_bias(const gd_tensor *b, const gd_tensor *x, int64_t channels) {
    GD_TRY(gd_need_same_dtype(x, b, "x", "b"));
    if (b->rank == 1 && b->dims[0] == channels) return GD_OK;
    return gd_op_fail(
        GD_E_SHAPE,
        "'b' must have one dimension of size %lld, one number for each channel of the result",
        (long long)channels);
}

static gd_status fail_overflow(void) { return gd_op_fail(GD_E_OVERFLOW, "sizes overflow"); }

/* dilation * (kernel - 1) + 1: the elements of x that a window spans. */
static bool window_span(const gd_conv_options *o, int axis, int64_t kernel, int64_t *span) {
    return gd_mul_i64(o->dilation[axis], kernel - 1, span) && gd_add_i64(*span, 1, span);
}

/* Checks that positions in x up to the last tap of the last window do not overflow. The limit
 * leaves room for the address arithmetic of vector kernels. */
static gd_status check_reach(const gd_conv_options *o, int axis, int64_t windows, int64_t kernel) {
    const int64_t limit = INT64_C(1) << 50;
    int64_t begin = 0, span = 0;
    if ((windows > 1 && !gd_mul_i64(windows - 1, o->stride[axis], &begin)) ||
        (kernel > 1 && !gd_mul_i64(kernel - 1, o->dilation[axis], &span)) || begin > limit ||
        span > limit || o->padding[axis] > limit)
        return fail_overflow();
    return GD_OK;
}

/* The number of windows in `in` elements and their padding. */
static gd_status output_size(const gd_conv_options *o, int axis, int64_t in, int64_t kernel,
                             int64_t *out) {
    int64_t span, padding;
    if (!window_span(o, axis, kernel, &span)) return fail_overflow();
    if (o->pad_mode == GD_SAME) padding = span - 1;
    else if (!gd_mul_i64(2, o->padding[axis], &padding)) return fail_overflow();
    if (!gd_add_i64(in, padding, &padding)) return fail_overflow();
    if (span > padding)
        return gd_op_fail(
            GD_E_SHAPE,
            "a window of %lld elements (kernel %lld, dilation %lld) does not fit into %lld "
            "(%lld and the padding)",
            (long long)span, (long long)kernel, (long long)o->dilation[axis], (long long)padding,
            (long long)in);
    *out = (padding - span) / o->stride[axis] + 1;
    return check_reach(o, axis, *out, kernel);
}

static gd_status infer_forward(gd_infer *i, int n) {
    const gd_tensor *x = i->in[0], *w = i->in[1], *b = i->n_in > 2 ? i->in[2] : NULL;
    gd_meta *y = &i->out[0];
    gd_conv_options o;
    int64_t channels;
    GD_TRY(read_options(i->op, i->attrs, n, &o));
    GD_TRY(check_options(&o, n));
    GD_TRY(gd_need_spatial(x, "x", n));
    GD_TRY(gd_need_same_dtype(x, w, "x", "w"));
    GD_TRY(need_weight(w, n, o.groups));
    if (!gd_mul_i64(w->dims[1], o.groups, &channels)) return fail_overflow();
    GD_TRY(need_channels(x, "x", n, channels));
    if (b) GD_TRY(need_bias(b, x, w->dims[0]));
    gd_meta_like(y, x);
    y->dims[x->rank - n - 1] = w->dims[0];
    for (int d = 0; d < n; d++)
        GD_TRY(output_size(&o, AXES - n + d, x->dims[x->rank - n + d], w->dims[2 + d],
                           &y->dims[x->rank - n + d]));
    return GD_OK;
}

static gd_status infer_transposed(gd_infer *i, int n) {
    const gd_tensor *x = i->in[0], *w = i->in[1], *b = i->n_in > 2 ? i->in[2] : NULL;
    gd_meta *y = &i->out[0];
    gd_conv_options o;
    int64_t channels;
    GD_TRY(read_options(i->op, i->attrs, n, &o));
    GD_TRY(check_options(&o, n));
    GD_TRY(gd_need_spatial(x, "x", n));
    GD_TRY(gd_need_same_dtype(x, w, "x", "w"));
    GD_TRY(need_weight(w, n, o.groups));
    GD_TRY(need_channels(x, "x", n, w->dims[0]));
    if (!gd_mul_i64(w->dims[1], o.groups, &channels)) return fail_overflow();
    if (b) GD_TRY(need_bias(b, x, channels));
    gd_meta_like(y, x);
    y->dims[x->rank - n - 1] = channels;
    for (int d = 0; d < n; d++) {
        int a = AXES - n + d;
        int64_t in = x->dims[x->rank - n + d], extra = o.output_padding[a], span, cut,
                *out = &y->dims[x->rank - n + d];
        if (extra < 0 || (extra >= o.stride[a] && extra >= o.dilation[a]))
            return gd_op_fail(
                GD_E_ARGUMENT,
                "output_padding is %lld; it must be less than stride (%lld) or dilation (%lld)",
                (long long)extra, (long long)o.stride[a], (long long)o.dilation[a]);
        if (in < 1) return gd_op_fail(GD_E_SHAPE, "'x' is empty along axis %d", x->rank - n + d);
        if (!window_span(&o, a, w->dims[2 + d], &span) || !gd_mul_i64(2, o.padding[a], &cut) ||
            !gd_mul_i64(in - 1, o.stride[a], out) || !gd_add_i64(*out, span, out) ||
            !gd_add_i64(*out, extra, out))
            return fail_overflow();
        *out -= cut;
        GD_TRY(check_reach(&o, a, in, w->dims[2 + d]));
        if (*out < 1)
            return gd_op_fail(GD_E_SHAPE,
                              "the result would have size %lld: 'x' is too small for this padding",
                              (long long)*out);
    }
    return GD_OK;
}

/* Reads and checks the options of an internal op, whose `dims` are the spatial sizes of the
 * result. */
static gd_status read_internal_options(gd_infer *i, gd_conv_options *o, int *n) {
    const gd_shape *dims = i->attrs; /* the first attribute of each internal op */
    *n = dims->rank;
    if (*n < 1 || *n > AXES)
        return gd_op_fail(GD_E_ARGUMENT, "dims has %d numbers; it must have one to three", *n);
    GD_TRY(read_options(i->op, i->attrs, *n, o));
    GD_TRY(check_options(o, *n));
    for (int d = 0; d < *n; d++)
        if (dims->at[d] < 0)
            return gd_op_fail(GD_E_ARGUMENT, "dims has the negative size %lld",
                              (long long)dims->at[d]);
    GD_TRY(gd_need_spatial(i->in[0], i->op->inputs[0].name, *n));
    return gd_need_same_dtype(i->in[0], i->in[1], i->op->inputs[0].name, i->op->inputs[1].name);
}

/* The result has the rank and dtype of `like`, these channels, and the spatial sizes of o->dims. */
static void set_result_meta(gd_meta *y, const gd_tensor *like, int n, int64_t channels,
                            const gd_conv_options *o) {
    gd_meta_like(y, like);
    y->dims[like->rank - n - 1] = channels;
    memcpy(y->dims + like->rank - n, o->dims + AXES - n, (size_t)n * sizeof *y->dims);
}

/* --- gradients -------------------------------------------------------------------------------- */

/* The options of a call with pad_mode resolved: `padding` is that before the first element. */
static gd_conv_options resolved_options(const gd_op *op, const void *attrs, const gd_tensor *w,
                                        int n) {
    gd_conv_options o;
    read_options(op, attrs, n, &o);
    for (int d = 0; o.pad_mode == GD_SAME && d < n; d++)
        o.padding[AXES - n + d] = gd_conv_zeros_before(&o, AXES - n + d, w->dims[2 + d]);
    return o;
}

/* The three directions as calls; the result has the spatial sizes of `like`. */
static gd_tensor *call_forward(gd_tensor *x, gd_tensor *w, const gd_tensor *like,
                               const gd_conv_options *o, int n) {
    return gd_conv_forward(x, w, gd_spatial_dims(like, n), gd_spatial_list(o->stride, n),
                           gd_spatial_list(o->padding, n), gd_spatial_list(o->dilation, n),
                           o->groups);
}
static gd_tensor *call_grad_input(gd_tensor *y, gd_tensor *w, const gd_tensor *like,
                                  const gd_conv_options *o, int n) {
    return gd_conv_grad_input(y, w, gd_spatial_dims(like, n), gd_spatial_list(o->stride, n),
                              gd_spatial_list(o->padding, n), gd_spatial_list(o->dilation, n),
                              o->groups);
}
static gd_tensor *call_grad_weight(gd_tensor *x, gd_tensor *y, const gd_tensor *like,
                                   const gd_conv_options *o, int n) {
    return gd_conv_grad_weight(x, y, gd_spatial_dims(like, n), gd_spatial_list(o->stride, n),
                               gd_spatial_list(o->padding, n), gd_spatial_list(o->dilation, n),
                               o->groups);
}

/* The gradient of the bias: the sum of gy over all axes but the channels. */
static gd_tensor *bias_gradient(gd_tensor *gy, int n) {
    gd_shape axes = {.form = 1};
    for (int d = 0; d < gy->rank; d++)
        if (d != gy->rank - n - 1) axes.at[axes.rank++] = d;
    return gd_sum(gy, .axis = axes);
}

/* With w (O, C/groups, K...), each element of the result is a sum over C/groups channels and K
 * taps. */
static double forward_macs(const gd_op_shapes *s) {
    return gd_shape_elements(&s->out[0]) * gd_shape_elements_from(&s->in[1], 1);
}

/* Each element of the first input is multiplied by all weights of one entry of axis 0 of w. */
static double transposed_macs(const gd_op_shapes *s) {
    return gd_shape_elements(&s->in[0]) * gd_shape_elements_from(&s->in[1], 1);
}

/* --- bodies ----------------------------------------------------------------------------------- */

/* The windows of x: `out` of them along each axis, with the kernel sizes of w, or of o->dims if
 * w is NULL. */
static gd_window_form window_form(const gd_conv_options *o, const gd_tensor *w, const int64_t *out,
                                  int n) {
    gd_window_form f;
    memcpy(f.before, o->padding, sizeof f.before);
    memcpy(f.step, o->stride, sizeof f.step);
    memcpy(f.dilation, o->dilation, sizeof f.dilation);
    for (int a = AXES - n; a < AXES; a++) {
        f.count[a] = out[a - AXES + n];
        f.size[a] = w ? w->dims[2 + a - AXES + n] : o->dims[a];
    }
    return f;
}

/* y plus the bias, if there is one, cast to the dtype of x. */
static gd_tensor *add_bias(gd_tensor *y, gd_tensor *b, const gd_tensor *x, int n) {
    gd_shape dims = {.rank = n + 1, .form = 1, .at = {b ? b->dims[0] : 0, 1, 1, 1}};
    if (b) y = gd_add(y, gd_reshape(gd_widen(b), dims));
    return gd_as_dtype(y, (gd_dtype)x->dtype);
}

static gd_tensor *forward_body(const gd_expansion *e, int n) {
    gd_tensor *x = e->x[0], *w = e->x[1];
    const gd_conv_options o = resolved_options(e->op, e->attrs, w, n);
    int64_t out[AXES];
    for (int d = 0; d < n; d++) /* the infer rule has checked them */
        output_size(&o, AXES - n + d, x->dims[x->rank - n + d], w->dims[2 + d], &out[d]);
    const gd_window_form f = window_form(&o, w, out, n);
    return add_bias(gd_conv_output_body(x, w, &f, o.groups), gd_optional_input(e->x, e->n_in, 2), x,
                    n);
}

/* --- convolution ------------------------------------------------------------------------------ */

/*op conv{1,2,3}d(x, w, b?) -> y  heavy lowp
 * {}-d convolution: x (N,C,{L|H,W|D,H,W}), w (O,C/groups,{K|KH,KW|KD,KH,KW}), b (O) give
 * y (N,O,{M|OH,OW|OD,OH,OW}). x may lack N.
 *   stride    int[{}] = 1  step between windows
 *   padding   int[{}] = 0  zeros on each side
 *   pad_mode  {explicit, same, valid} = explicit  same: zeros that keep the size, with stride 1; valid: no zeros
 *   dilation  int[{}] = 1  step between the elements of a window
 *   groups    int = 1     groups of channels that do not mix
 *   saves x, w
 *   onnx Conv
 *   python (x, weight=w, bias=b, stride, padding|pad_mode, dilation, groups)
 */
static gd_status convNd_infer(gd_infer *i) {
    return infer_forward(i, gd_spatial_axes(i->op, i->attrs));
}
static void convNd_vjp(gd_vjp *v) {
    const int n = gd_spatial_axes(v->op, v->attrs);
    const gd_conv_options o = resolved_options(v->op, v->attrs, v->x[1], n);
    if (v->needs[0]) v->gx[0] = call_grad_input(v->gy[0], v->x[1], v->x[0], &o, n);
    if (v->needs[1]) v->gx[1] = call_grad_weight(v->x[0], v->gy[0], v->x[1], &o, n);
    if (v->n_in > 2 && v->needs[2]) v->gx[2] = bias_gradient(v->gy[0], n);
}
static double convNd_macs(const gd_op_shapes *s) { return forward_macs(s); }
static gd_status convNd_reference(gd_kernel_call *k) {
    return gd_conv_reference(k, GD_CONV_TO_OUTPUT);
}
static void convNd_expand(gd_expansion *e) {
    e->y[0] = forward_body(e, gd_spatial_axes(e->op, e->attrs));
}

/* --- transposed convolution ------------------------------------------------------------------- */

/*op conv_transpose{1,2,3}d(x, w, b?) -> y  heavy lowp
 * Transposed {}-d convolution, which is the gradient of conv{}d by its input: x
 * (N,C,{L|H,W|D,H,W}), w (C,O/groups,{K|KH,KW|KD,KH,KW}), b (O) give y (N,O,{M|OH,OW|OD,OH,OW})
 * with {M|OH|OD} = ({L|H|D}-1) stride - 2 padding + dilation ({K|KH|KD}-1) + output_padding + 1.
 *   stride          int[{}] = 1  step between the windows of y
 *   padding         int[{}] = 0  elements cut off each side of y
 *   output_padding  int[{}] = 0  added to the size of y, at its end
 *   dilation        int[{}] = 1  step between the elements of a window
 *   groups          int = 1     groups of channels that do not mix
 *   saves x, w
 *   onnx ConvTranspose
 *   python (x, weight=w, bias=b, stride, padding, output_padding, groups, dilation)
 */
static gd_status conv_transposeNd_infer(gd_infer *i) {
    return infer_transposed(i, gd_spatial_axes(i->op, i->attrs));
}
static void conv_transposeNd_vjp(gd_vjp *v) {
    const int n = gd_spatial_axes(v->op, v->attrs);
    const gd_conv_options o = resolved_options(v->op, v->attrs, v->x[1], n);
    if (v->needs[0]) v->gx[0] = call_forward(v->gy[0], v->x[1], v->x[0], &o, n);
    if (v->needs[1]) v->gx[1] = call_grad_weight(v->gy[0], v->x[0], v->x[1], &o, n);
    if (v->n_in > 2 && v->needs[2]) v->gx[2] = bias_gradient(v->gy[0], n);
}
static double conv_transposeNd_macs(const gd_op_shapes *s) { return transposed_macs(s); }
static gd_status conv_transposeNd_reference(gd_kernel_call *k) {
    return gd_conv_reference(k, GD_CONV_TO_INPUT);
}
static void conv_transposeNd_expand(gd_expansion *e) {
    const int n = gd_spatial_axes(e->op, e->attrs);
    gd_tensor *x = e->x[0], *w = e->x[1];
    const gd_conv_options o = resolved_options(e->op, e->attrs, w, n);
    const int64_t *in = x->dims + x->rank - n;
    const gd_window_form f = window_form(&o, w, in, n);
    gd_shape out = {.rank = n, .form = 1};
    for (int d = 0; d < n; d++) {
        const int a = AXES - n + d;
        out.at[d] = (in[d] - 1) * o.stride[a] - 2 * o.padding[a] +
                    o.dilation[a] * (w->dims[2 + d] - 1) + o.output_padding[a] + 1;
    }
    e->y[0] = add_bias(gd_conv_input_body(x, w, &f, o.groups, out),
                       gd_optional_input(e->x, e->n_in, 2), x, n);
}

/* --- the three directions --------------------------------------------------------------------- */

/*op conv_forward(x, w, dims:int[], stride:int[], padding:int[], dilation:int[], groups:int) -> y  internal heavy
 * The convolution whose result has the spatial sizes dims. `padding` is that before x only.
 *   saves x, w
 */
static gd_status conv_forward_infer(gd_infer *i) {
    gd_conv_options o;
    int n;
    int64_t channels;
    GD_TRY(read_internal_options(i, &o, &n));
    GD_TRY(need_weight(i->in[1], n, o.groups));
    if (!gd_mul_i64(i->in[1]->dims[1], o.groups, &channels)) return fail_overflow();
    GD_TRY(need_channels(i->in[0], "x", n, channels));
    for (int d = 0; d < n; d++)
        GD_TRY(check_reach(&o, AXES - n + d, o.dims[AXES - n + d], i->in[1]->dims[2 + d]));
    set_result_meta(&i->out[0], i->in[0], n, i->in[1]->dims[0], &o);
    return GD_OK;
}
static void conv_forward_vjp(gd_vjp *v) {
    int n = v->x[1]->rank - 2;
    const gd_conv_options o = resolved_options(v->op, v->attrs, v->x[1], n);
    if (v->needs[0]) v->gx[0] = call_grad_input(v->gy[0], v->x[1], v->x[0], &o, n);
    if (v->needs[1]) v->gx[1] = call_grad_weight(v->x[0], v->gy[0], v->x[1], &o, n);
}
static double conv_forward_macs(const gd_op_shapes *s) { return forward_macs(s); }
static gd_status conv_forward_reference(gd_kernel_call *k) {
    return gd_conv_reference(k, GD_CONV_TO_OUTPUT);
}
static void conv_forward_expand(gd_expansion *e) {
    const int n = gd_spatial_axes(e->op, e->attrs);
    gd_tensor *x = e->x[0], *w = e->x[1];
    const gd_conv_options o = resolved_options(e->op, e->attrs, w, n);
    const gd_window_form f = window_form(&o, w, o.dims + AXES - n, n);
    e->y[0] = gd_as_dtype(gd_conv_output_body(x, w, &f, o.groups), (gd_dtype)x->dtype);
}

/*op conv_relu(x, w, b?, stride:int[], padding:int[], pad_mode:{explicit, same, valid}, dilation:int[], groups:int) -> y  nograd internal heavy
 * relu of a convolution with as many spatial axes as w has. Plans fuse the two.
 *   fuses relu(conv1d|conv2d|conv3d (x, w, b))
 */
static gd_status conv_relu_infer(gd_infer *i) {
    const int n = i->in[1]->rank - 2;
    if (n < 1 || n > AXES)
        return gd_op_fail(GD_E_SHAPE, "'w' must have one to three axes after its channels");
    return infer_forward(i, n);
}
static double conv_relu_macs(const gd_op_shapes *s) { return forward_macs(s); }
static void conv_relu_expand(gd_expansion *e) {
    e->y[0] = gd_relu(forward_body(e, e->x[1]->rank - 2));
}

/*op conv_grad_input(gy, w, dims:int[], stride:int[], padding:int[], dilation:int[], groups:int) -> gx  internal heavy
 * The gradient of a convolution by its input, which has the spatial sizes dims.
 *   saves gy, w
 */
static gd_status conv_grad_input_infer(gd_infer *i) {
    gd_conv_options o;
    int n;
    int64_t channels;
    GD_TRY(read_internal_options(i, &o, &n));
    GD_TRY(need_weight(i->in[1], n, o.groups));
    GD_TRY(need_channels(i->in[0], "gy", n, i->in[1]->dims[0]));
    if (!gd_mul_i64(i->in[1]->dims[1], o.groups, &channels)) return fail_overflow();
    const gd_tensor *gy = i->in[0];
    for (int d = 0; d < n; d++)
        GD_TRY(check_reach(&o, AXES - n + d, gy->dims[gy->rank - n + d], i->in[1]->dims[2 + d]));
    set_result_meta(&i->out[0], gy, n, channels, &o);
    return GD_OK;
}
static void conv_grad_input_vjp(gd_vjp *v) {
    int n = v->x[1]->rank - 2;
    const gd_conv_options o = resolved_options(v->op, v->attrs, v->x[1], n);
    if (v->needs[0]) v->gx[0] = call_forward(v->gy[0], v->x[1], v->x[0], &o, n);
    if (v->needs[1]) v->gx[1] = call_grad_weight(v->gy[0], v->x[0], v->x[1], &o, n);
}
static double conv_grad_input_macs(const gd_op_shapes *s) { return transposed_macs(s); }
static gd_status conv_grad_input_reference(gd_kernel_call *k) {
    return gd_conv_reference(k, GD_CONV_TO_INPUT);
}
static void conv_grad_input_expand(gd_expansion *e) {
    const int n = gd_spatial_axes(e->op, e->attrs);
    gd_tensor *gy = e->x[0], *w = e->x[1];
    const gd_conv_options o = resolved_options(e->op, e->attrs, w, n);
    const gd_window_form f = window_form(&o, w, gy->dims + gy->rank - n, n);
    e->y[0] = gd_as_dtype(gd_conv_input_body(gy, w, &f, o.groups, gd_spatial_list(o.dims, n)),
                          (gd_dtype)gy->dtype);
}

/*op conv_grad_weight(x, gy, dims:int[], stride:int[], padding:int[], dilation:int[], groups:int) -> gw  internal heavy
 * The gradient of a convolution by its weight, whose kernel has the sizes dims.
 *   saves x, gy
 */
static gd_status conv_grad_weight_infer(gd_infer *i) {
    const gd_tensor *x = i->in[0], *gy = i->in[1];
    gd_meta *gw = &i->out[0];
    gd_conv_options o;
    int n;
    GD_TRY(read_internal_options(i, &o, &n));
    int channels = x->rank - n - 1;
    if (gy->rank != x->rank || (channels == 1 && gy->dims[0] != x->dims[0]))
        return gd_op_fail(GD_E_SHAPE, "'x' and 'gy' must be batches of the same size");
    if (x->dims[channels] % o.groups != 0 || gy->dims[channels] % o.groups != 0)
        return gd_op_fail(GD_E_SHAPE, "%lld groups do not divide the channels",
                          (long long)o.groups);
    for (int d = 0; d < n; d++) {
        if (o.dims[AXES - n + d] < 1)
            return gd_op_fail(GD_E_ARGUMENT, "entry %d of dims, a kernel size, is 0", d);
        GD_TRY(check_reach(&o, AXES - n + d, gy->dims[gy->rank - n + d], o.dims[AXES - n + d]));
    }
    gw->dtype = (gd_dtype)x->dtype;
    gw->rank = n + 2;
    gw->dims[0] = gy->dims[channels];
    gw->dims[1] = x->dims[channels] / o.groups;
    memcpy(gw->dims + 2, o.dims + AXES - n, (size_t)n * sizeof *gw->dims);
    return GD_OK;
}
static void conv_grad_weight_vjp(gd_vjp *v) {
    int n = gd_spatial_axes(v->op, v->attrs);
    const gd_conv_options o = resolved_options(v->op, v->attrs, NULL, n);
    if (v->needs[0]) v->gx[0] = call_grad_input(v->x[1], v->gy[0], v->x[0], &o, n);
    if (v->needs[1]) v->gx[1] = call_forward(v->x[0], v->gy[0], v->x[1], &o, n);
}
static double conv_grad_weight_macs(const gd_op_shapes *s) {
    return gd_shape_elements(&s->in[1]) * gd_shape_elements_from(&s->out[0], 1);
}
static gd_status conv_grad_weight_reference(gd_kernel_call *k) {
    return gd_conv_reference(k, GD_CONV_TO_WEIGHT);
}
static void conv_grad_weight_expand(gd_expansion *e) {
    const int n = gd_spatial_axes(e->op, e->attrs);
    gd_tensor *x = e->x[0], *gy = e->x[1];
    const gd_conv_options o = resolved_options(e->op, e->attrs, NULL, n);
    const gd_window_form f = window_form(&o, NULL, gy->dims + gy->rank - n, n);
    e->y[0] = gd_as_dtype(gd_conv_weight_body(x, gy, &f, o.groups, n), (gd_dtype)x->dtype);
}

/*op conv_grad_weight_bias(x, gy, dims:int[], stride:int[], padding:int[], dilation:int[], groups:int) -> gw, gb  nograd internal heavy
 * The gradients of a convolution by its weight and by its bias, the sum of gy over all axes but the
 * channels. Plans join conv_grad_weight and sum into it.
 */
static gd_status conv_grad_weight_bias_infer(gd_infer *i) {
    const gd_tensor *gy = i->in[1];
    GD_TRY(conv_grad_weight_infer(i));
    i->out[1].dtype = (gd_dtype)gy->dtype;
    i->out[1].rank = 1;
    i->out[1].dims[0] = i->out[0].dims[0];
    return GD_OK;
}
static double conv_grad_weight_bias_macs(const gd_op_shapes *s) { return conv_grad_weight_macs(s); }
static void conv_grad_weight_bias_expand(gd_expansion *e) {
    const gd_conv_grad_weight_bias_options *o = e->attrs;
    e->y[0] = gd_conv_grad_weight(e->x[0], e->x[1], o->dims, o->stride, o->padding, o->dilation,
                                  o->groups);
    e->y[1] = bias_gradient(e->x[1], o->dims.rank);
}

#include "ops/conv/conv.gen.h"
