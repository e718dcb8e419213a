/* conv_reference.c - the reference kernel of all convolutions and their gradients. */
#include "ops/conv/conv.h"

enum { AXES = GD_CONV_AXES };

/* Adds all products of the bilinear form (conv_problem.h) to the tensor that `to` names. All
 * tensors are row-major. Integers wrap. */
#define DEFINE_ADD_PRODUCTS(name, type)                                                         \
    static void name(const gd_conv *c, gd_conv_direction to, type *x, type *w, type *y) {       \
        const int64_t in = gd_conv_positions(c->in), out = gd_conv_positions(c->out),           \
                      taps = gd_conv_positions(c->kernel);                                      \
        for (int64_t n = 0; n < c->batch; n++)                                                  \
            for (int64_t o = 0; o < c->groups * c->co; o++)                                     \
                for (int64_t ci = 0; ci < c->ci; ci++)                                          \
                    for (int64_t t = 0; t < taps; t++)                                          \
                        for (int64_t p = 0; p < out; p++) {                                     \
                            const int64_t at = element_under(c, t, p);                          \
                            if (at < 0) continue;                                               \
                            type *xe =                                                          \
                                x + (n * c->groups * c->ci + o / c->co * c->ci + ci) * in + at; \
                            type *we = w + (o * c->ci + ci) * taps + t;                         \
                            type *ye = y + (n * c->groups * c->co + o) * out + p;               \
                            if (to == GD_CONV_TO_OUTPUT) *ye += *xe * *we;                      \
                            else if (to == GD_CONV_TO_INPUT) *xe += *ye * *we;                  \
                            else *we += *xe * *ye;                                              \
                        }                                                                       \
    }

/* The element of a channel of x at tap t of window p; -1: it is in the padding. */
static int64_t element_under(const gd_conv *c, int64_t t, int64_t p) {
    int64_t at = 0, step = 1;
    for (int a = AXES - 1; a >= 0; a--) {
        int64_t i = p % c->out[a] * c->stride[a] - c->before[a] + t % c->kernel[a] * c->dilation[a];
        if (i < 0 || i >= c->in[a]) return -1;
        at += i * step;
        step *= c->in[a];
        p /= c->out[a];
        t /= c->kernel[a];
    }
    return at;
}

DEFINE_ADD_PRODUCTS(add_products_f64, double)
DEFINE_ADD_PRODUCTS(add_products_i64, uint64_t)

/* Fills the result with the bias of each channel, or with zeros. f64 and i64 elements have 8
 * bytes. */
static void fill_with_bias(gd_view *y, const gd_view *bias, int64_t batch, int64_t channels,
                           int64_t places) {
    uint64_t *to = y->data;
    for (int64_t i = 0; i < batch * channels; i++)
        for (int64_t p = 0; p < places; p++)
            to[i * places + p] = bias ? ((const uint64_t *)bias->data)[i % channels] : 0;
}

gd_status gd_conv_reference(gd_kernel_call *k, gd_conv_direction to) {
    gd_view *r = &k->out[0];
    const gd_view *x = to == GD_CONV_TO_INPUT ? r : &k->in[0],
                  *w = to == GD_CONV_TO_WEIGHT ? r : &k->in[1];
    const gd_view *y = to == GD_CONV_TO_OUTPUT ? r : to == GD_CONV_TO_INPUT ? &k->in[0] : &k->in[1];
    const gd_view *bias = k->n_in > 2 && k->in[2].data ? &k->in[2] : NULL;
    const gd_conv c = gd_conv_of(k, x, w, y);
    if (to == GD_CONV_TO_OUTPUT)
        fill_with_bias(r, bias, c.batch, c.groups * c.co, gd_conv_positions(c.out));
    else if (to == GD_CONV_TO_INPUT)
        fill_with_bias(r, bias, c.batch, c.groups * c.ci, gd_conv_positions(c.in));
    else fill_with_bias(r, NULL, c.groups * c.co, c.ci, gd_conv_positions(c.kernel));
    if (r->dtype == GD_F64) add_products_f64(&c, to, x->data, w->data, y->data);
    else add_products_i64(&c, to, x->data, w->data, y->data);
    return GD_OK;
}
