/* control_models.c - functions with branches and loops, for the tests of control flow. */
#include "control_models.h"

static gd_tensor *noise(gd_shape dims, gd_dtype dtype) { return gd_cast(gd_randn(dims), dtype); }

/* --- models: functions of values or symbols --------------------------------------------------- */

gd_tensor *fold_step(gd_tensors in, void *w) { return gd_mul(gd_add(in.at[0], in.at[1]), w); }
static gd_tensor *folded(gd_tensors in, void *user) {
    (void)user;
    return gd_foldl(fold_step, in.at[0], gd_list(in.at[1]), in.at[2]);
}
static gd_tensor *folded_by_hand(gd_tensors in, void *user) {
    gd_tensor *y = in.at[0];
    for (int64_t t = 0; t < gd_tensor_dim(in.at[1], 0); t++)
        y = gd_mul(gd_add(y, gd_select(in.at[1], 0, t)), in.at[2]);
    (void)user;
    return y;
}

gd_tensors two_step(gd_tensors in, void *w) {
    gd_tensor *a = in.at[0], *b = in.at[1], *x = in.at[2], *z = in.at[3];
    gd_tensor *next = gd_tanh(gd_add(gd_mul(a, x), gd_mul(b, w)));
    return gd_listed(next, gd_add(b, gd_sum(z)), gd_mul(next, z), gd_sin(b));
}
static gd_tensor *two_joined(gd_scanned s) {
    return gd_add(
        gd_add(gd_sum(gd_mul(s.state.at[0], s.state.at[1])), gd_sum(gd_square(s.ys.at[0]))),
        gd_sum(s.ys.at[1]));
}
static gd_tensor *two_scanned(gd_tensors in, void *user) {
    return two_joined(gd_scan(two_step, gd_list(in.at[0], in.at[0]), gd_list(in.at[1], in.at[1]),
                              in.at[2], .reverse = user != NULL));
}

gd_tensors with_sine(gd_tensors in, void *w) {
    return gd_listed(gd_mul(gd_sin(in.at[0]), w), in.at[0]);
}
gd_tensors with_square(gd_tensors in, void *w) {
    return gd_listed(gd_square(gd_add(in.at[0], w)), gd_exp(w));
}
static gd_tensor *branched(gd_tensors in, void *user) {
    gd_tensor *positive = gd_gt(gd_sum(in.at[1]), gd_scalar_of(0, gd_tensor_dtype(in.at[1])));
    if (user) positive = gd_logical_not(positive);
    gd_tensors r = gd_cond(positive, with_sine, with_square, gd_list(in.at[0]), in.at[2]);
    return gd_mul(gd_add(r.at[0], gd_mul(r.at[1], in.at[0])), gd_sum(in.at[1]));
}

gd_tensors is_small(gd_tensors in, void *w) {
    (void)w;
    return gd_listed(
        gd_lt(gd_sum(gd_square(in.at[0])), gd_scalar_of(1000, gd_tensor_dtype(in.at[0]))));
}
gd_tensors grow(gd_tensors in, void *w) {
    return gd_listed(
        gd_mul(in.at[0], gd_add(gd_square(w), gd_scalar_of(1.5, gd_tensor_dtype(in.at[0])))));
}
static gd_tensor *grown(gd_tensors in, void *user) {
    (void)user;
    return gd_while_loop(is_small, grow, gd_list(gd_mul(in.at[0], gd_sin(gd_sum(in.at[1])))),
                         in.at[2])
        .at[0];
}

/* A scan in a branch in a loop, all of which capture w and x. */
typedef struct outside {
    gd_tensor *x, *w;
} outside;
static gd_tensors inner_fold(gd_tensors in, void *user) {
    outside *o = user;
    return gd_listed(gd_foldl(fold_step, in.at[0], gd_list(o->x), o->w),
                     gd_add(in.at[1], gd_ones_like(in.at[1])));
}
static gd_tensors inner_sine(gd_tensors in, void *user) {
    outside *o = user;
    return gd_listed(gd_mul(gd_sin(in.at[0]), o->w), gd_add(in.at[1], gd_ones_like(in.at[1])));
}
static gd_tensors below_five(gd_tensors in, void *user) {
    (void)user;
    return gd_listed(gd_lt(in.at[1], gd_scalar_of(5, GD_I64)));
}
static gd_tensors nested_body(gd_tensors in, void *user) {
    gd_tensor *even =
        gd_eq(gd_remainder(in.at[1], gd_scalar_of(2, GD_I64)), gd_scalar_of(0, GD_I64));
    return gd_cond(even, inner_fold, inner_sine, in, user);
}
static gd_tensor *nested(gd_tensors in, void *user) {
    (void)user;
    outside o = {in.at[1], in.at[2]};
    return gd_while_loop(below_five, nested_body,
                         gd_list(in.at[0], gd_zeros(gd_dims(), .dtype = GD_I64)), &o)
        .at[0];
}
static gd_tensor *nested_by_hand(gd_tensors in, void *user) {
    gd_tensor *y = in.at[0];
    for (int i = 0; i < 5; i++)
        y = i % 2 == 0 ? folded_by_hand(gd_list(y, in.at[1], in.at[2]), user)
                       : gd_mul(gd_sin(y), in.at[2]);
    return y;
}

/* A scan in a scan. */
static gd_tensors outer_step(gd_tensors in, void *user) {
    outside *o = user;
    gd_tensor *y = gd_foldl(fold_step, gd_mul(in.at[0], in.at[1]), gd_list(o->x), o->w);
    return gd_listed(gd_tanh(y), y);
}
static gd_tensor *scan_in_scan(gd_tensors in, void *user) {
    (void)user;
    outside o = {in.at[1], in.at[2]};
    gd_scanned s = gd_scan(outer_step, gd_list(in.at[0]), gd_list(in.at[1]), &o);
    return gd_add(s.state.at[0], gd_sum(s.ys.at[0], .axis = 0));
}

/* Captured tensors that depend on other captured tensors. */
static gd_tensor *entangled(gd_tensors in, void *user) {
    gd_tensor *v = gd_sin(gd_mul(in.at[2], in.at[0]));
    outside o = {gd_mul(in.at[1], v), gd_tanh(gd_add(v, in.at[2]))};
    gd_scanned s = gd_scan(outer_step, gd_list(v), gd_list(in.at[1]), &o);
    gd_tensor *positive =
        gd_gt(gd_sum(in.at[1]), gd_scalar_of(user ? 1e9 : -1e9, gd_tensor_dtype(in.at[1])));
    gd_tensors r = gd_cond(positive, with_sine, with_square, gd_list(s.state.at[0]), o.w);
    return gd_mul(gd_add(r.at[0], r.at[1]), v);
}

/* Branches that return a captured tensor: a transposed view that is also used before and after. */
static gd_tensors as_it_is(gd_tensors in, void *w) {
    (void)in;
    return gd_listed(w);
}
static gd_tensor *given_back(gd_tensors in, void *user) {
    gd_tensor *m = gd_matmul(gd_permute(in.at[1], gd_dims(1, 0)), gd_mul(in.at[1], in.at[2]));
    gd_tensor *transposed = gd_permute(m, gd_dims(1, 0));
    gd_tensor *before = gd_mul(transposed, in.at[0]);
    gd_tensor *yes = gd_lt(gd_sum(in.at[0]), gd_scalar_of(1e9, gd_tensor_dtype(in.at[0])));
    gd_tensor *r = gd_cond(yes, as_it_is, as_it_is, gd_list(before), transposed).at[0];
    gd_tensor *each = gd_mean(gd_sin(gd_mean(r, .axis = gd_dims(1), .keepdim = true)));
    (void)user;
    return gd_add(gd_add(gd_mul(gd_tanh(r), each), before), gd_sin(transposed));
}

static int some;
const model control_models[] = {
    {"foldl", folded, NULL, folded_by_hand},
    {"scan", two_scanned, NULL, NULL},
    {"scan from the end", two_scanned, &some, NULL},
    {"cond", branched, NULL, NULL},
    {"cond, the other", branched, &some, NULL},
    {"while", grown, NULL, NULL},
    {"nested", nested, NULL, nested_by_hand},
    {"scan in scan", scan_in_scan, NULL, NULL},
    {"entangled", entangled, NULL, NULL},
    {"entangled, the other", entangled, &some, NULL},
    {"given back", given_back, NULL, NULL},
};
const int control_model_count = sizeof control_models / sizeof *control_models;

void control_inputs(gd_dtype dtype, gd_tensor **in) {
    gd_seed(5);
    in[0] = noise(gd_dims(4), dtype);
    in[1] = noise(gd_dims(3, 4), dtype);
    in[2] = gd_add(noise(gd_dims(4), dtype), gd_scalar_of(0.5, dtype));
}
