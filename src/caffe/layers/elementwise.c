/* elementwise.c - layers that compute each element by a formula: Power, Exp, Log, Threshold, Swish, and
 * Eltwise for several bottoms.
 */
#include <math.h>
#include <string.h>

#include "caffe/layers/bottoms.h"
#include "caffe/save/save.h"

/* --- one bottom ------------------------------------------------------------------------------- */

typedef struct formula {
    double scale, shift; /* x scale + shift */
    double power;        /* of that, */
    double factor;       /* or the factor of its logarithm */
} formula;

static gd_tensor *scaled(const formula *m, gd_tensor *x) {
    return m->scale == 1 && m->shift == 0 ? x : gd_affine(x, m->scale, m->shift);
}

static gd_tensors power_forward(gd_tensors in, void *self) {
    const formula *m = self;
    gd_tensor *z = scaled(m, in.at[0]);
    return gd_listed(m->power == 1 ? z : m->power == 2 ? gd_square(z) : gd_pow(z, m->power));
}

gd_status gd_caffe_make_Power(gd_caffe_layer *l) {
    formula *m = gd_caffe_module(l, power_forward, sizeof *m);
    if (!m) return gd_failure();
    m->power = gd_pb_float_of(l->message, "power_param.power");
    m->scale = gd_pb_float_of(l->message, "power_param.scale");
    m->shift = gd_pb_float_of(l->message, "power_param.shift");
    return GD_OK;
}

/* The natural logarithm of a base; -1 stands for e. */
static gd_status log_of_base(const gd_caffe_layer *l, const char *path, double *log_base) {
    const double base = gd_pb_float_of(l->message, path);
    *log_base = base == -1 ? 1 : log(base);
    if (base == -1 || (base > 0 && isfinite(base))) return GD_OK;
    return gd_caffe_fail(l, "base is %g; it must be positive, or -1 for e", base);
}

static gd_tensors exp_forward(gd_tensors in, void *self) {
    return gd_listed(gd_exp(scaled(self, in.at[0])));
}

gd_status gd_caffe_make_Exp(gd_caffe_layer *l) {
    double log_base;
    GD_TRY(log_of_base(l, "exp_param.base", &log_base));
    formula *m = gd_caffe_module(l, exp_forward, sizeof *m);
    if (!m) return gd_failure();
    m->scale = log_base * gd_pb_float_of(l->message, "exp_param.scale");
    m->shift = log_base * gd_pb_float_of(l->message, "exp_param.shift");
    return GD_OK;
}

static gd_tensors log_forward(gd_tensors in, void *self) {
    const formula *m = self;
    gd_tensor *y = gd_log(scaled(m, in.at[0]));
    return gd_listed(m->factor == 1 ? y : gd_affine(y, m->factor, 0));
}

gd_status gd_caffe_make_Log(gd_caffe_layer *l) {
    double log_base;
    GD_TRY(log_of_base(l, "log_param.base", &log_base));
    if (log_base == 0) return gd_caffe_fail(l, "base is 1, which has no logarithms");
    formula *m = gd_caffe_module(l, log_forward, sizeof *m);
    if (!m) return gd_failure();
    m->factor = 1 / log_base;
    m->scale = gd_pb_float_of(l->message, "log_param.scale");
    m->shift = gd_pb_float_of(l->message, "log_param.shift");
    return GD_OK;
}

static gd_tensors threshold_forward(gd_tensors in, void *self) {
    const formula *m = self;
    gd_tensor *x = in.at[0];
    return gd_listed(gd_cast(gd_gt(x, m->shift), gd_tensor_dtype(x)));
}

gd_status gd_caffe_make_Threshold(gd_caffe_layer *l) {
    formula *m = gd_caffe_module(l, threshold_forward, sizeof *m);
    if (!m) return gd_failure();
    m->shift = gd_pb_float_of(l->message, "threshold_param.threshold");
    return GD_OK;
}

static gd_tensors swish_forward(gd_tensors in, void *self) {
    const formula *m = self;
    gd_tensor *x = in.at[0];
    return gd_listed(m->scale == 1 ? gd_silu(x) : gd_mul(x, gd_sigmoid(scaled(m, x))));
}

gd_status gd_caffe_make_Swish(gd_caffe_layer *l) {
    formula *m = gd_caffe_module(l, swish_forward, sizeof *m);
    if (!m) return gd_failure();
    m->scale = gd_pb_float_of(l->message, "swish_param.beta");
    return GD_OK;
}

/* --- several bottoms -------------------------------------------------------------------------- */

enum { PROD, SUM, MAX }; /* the numbers of EltwiseOp */

typedef struct eltwise {
    int64_t operation;
    int n_coeff; /* 0: all are 1 */
    double coeff[];
} eltwise;

/* At a tie the second bottom has the maximum, and of further ones the first: it gets the gradient. */
static gd_tensor *larger(gd_tensor *most, gd_tensor *x, int number) {
    return number == 1 ? gd_where(gd_gt(most, x), most, x) : gd_where(gd_gt(x, most), x, most);
}

static gd_tensor *term(const eltwise *m, gd_tensors in, int i) {
    const double by = i < m->n_coeff ? m->coeff[i] : 1;
    return by == 1 ? in.at[i] : gd_affine(in.at[i], by, 0);
}

static gd_tensors eltwise_forward(gd_tensors in, void *self) {
    const eltwise *m = self;
    gd_tensor *y = term(m, in, 0);
    for (int i = 1; i < in.count; i++)
        y = m->operation == PROD  ? gd_mul(y, in.at[i])
            : m->operation == MAX ? larger(y, in.at[i], i)
                                  : gd_add(y, term(m, in, i));
    return gd_listed(y);
}

gd_status gd_caffe_make_Eltwise(gd_caffe_layer *l) {
    const gd_pb_list *coeff = gd_pb_list_of(l->message, "eltwise_param.coeff");
    const int64_t operation = gd_pb_int_of(l->message, "eltwise_param.operation");
    const int count = coeff ? (int)coeff->count : 0;
    if (count > 0 && count != l->n_bottoms)
        return gd_caffe_fail(l, "it has %d bottoms, but %d coeff; each bottom needs one",
                             l->n_bottoms, count);
    if (count > 0 && operation == PROD)
        return gd_caffe_fail(l, "coeff is for the operation SUM, not PROD");
    for (int i = 1; i < l->n_bottoms; i++) GD_TRY(gd_caffe_need_shape_of_first(l, i));
    eltwise *m = gd_caffe_module(l, eltwise_forward, sizeof *m + (size_t)count * sizeof(double));
    if (!m) return gd_failure();
    m->operation = operation;
    m->n_coeff = operation == SUM ? count : 0; /* MAX ignores them */
    for (int i = 0; i < m->n_coeff; i++) m->coeff[i] = coeff->floats[i];
    return GD_OK;
}

/* --- saving ----------------------------------------------------------------------------------- */

void gd_caffe_put_power(gd_caffe_call *c, int from, double power, double scale, double shift,
                        int to) {
    gd_caffe_out(c, "Power", from, to);
    gd_caffe_put_float(c, "power", power);
    gd_caffe_put_float(c, "scale", scale);
    gd_caffe_put_float(c, "shift", shift);
}

static bool is_op(const gd_caffe_call *c, const char *name) {
    return strcmp(c->op->name, name) == 0;
}

/* The number of a constant input; NAN: it is none, or a tensor. */
static double number_of(gd_caffe_call *c, int i) {
    GD_EAGER;
    gd_tensor *t = gd_caffe_constant(c, i);
    return t && gd_tensor_numel(t) == 1 ? gd_item(t) : NAN;
}

gd_status gd_caffe_save_power(gd_caffe_call *c) {
    const double power = is_op(c, "square")       ? 2
                         : is_op(c, "sqrt")       ? 0.5
                         : is_op(c, "rsqrt")      ? -0.5
                         : is_op(c, "reciprocal") ? -1
                         : is_op(c, "pow")        ? number_of(c, 1)
                                                  : 1;
    const bool affine = is_op(c, "affine");
    if (isnan(power))
        return gd_caffe_cannot(c, "its exponent is no number, and Caffe's Power has one");
    gd_caffe_put_power(c, gd_caffe_bottom(c, 0), power,
                       affine            ? gd_caffe_option(c, "by")
                       : is_op(c, "neg") ? -1
                                         : 1,
                       affine ? gd_caffe_option(c, "plus") : 0, gd_caffe_top(c, 0));
    return c->saver->status;
}

static gd_status save_alone(gd_caffe_call *c, const char *type) {
    gd_caffe_out(c, type, gd_caffe_bottom(c, 0), gd_caffe_top(c, 0));
    return c->saver->status;
}

gd_status gd_caffe_save_exp(gd_caffe_call *c) { return save_alone(c, "Exp"); }
gd_status gd_caffe_save_log(gd_caffe_call *c) { return save_alone(c, "Log"); }
gd_status gd_caffe_save_silu(gd_caffe_call *c) { return save_alone(c, "Swish"); }

/* x with a number: (scale x + shift)^power. */
static gd_status save_with_number(gd_caffe_call *c, int x, double n, bool first) {
    const int top = gd_caffe_top(c, 0);
    if (is_op(c, "add")) gd_caffe_put_power(c, x, 1, 1, n, top);
    else if (is_op(c, "mul")) gd_caffe_put_power(c, x, 1, n, 0, top);
    else if (is_op(c, "sub")) gd_caffe_put_power(c, x, 1, first ? -1 : 1, first ? n : -n, top);
    else if (is_op(c, "div")) gd_caffe_put_power(c, x, first ? -1 : 1, 1 / n, 0, top);
    else if (n == 0) gd_caffe_out(c, "ReLU", x, top);
    else return gd_caffe_cannot(c, "Caffe has no layer for the maximum of x and %g", n);
    return c->saver->status;
}

/* x with a constant tensor t: a - t is a + (-t), a / t is a times its inverse, and the other way round
 * first the bottom changes. */
static gd_status save_with_tensor(gd_caffe_call *c, int x, gd_tensor *t, bool first) {
    const bool minus = is_op(c, "sub"), over = is_op(c, "div"), times = over || is_op(c, "mul");
    const int top = gd_caffe_top(c, 0);
    if (is_op(c, "maximum"))
        return gd_caffe_cannot(c, "Caffe has no layer for the maximum with a constant");
    if ((minus || over) && first) {
        const int turned = gd_caffe_between(c, gd_caffe_slot_shape(&c->in[1]));
        gd_caffe_put_power(c, x, over ? -1 : 1, minus ? -1 : 1, 0, turned);
        x = turned;
    } else if (minus || over) {
        GD_EAGER;
        t = minus ? gd_neg(t) : gd_reciprocal(t);
    }
    return gd_caffe_save_with_constant(c, x, t, times, top);
}

static bool same_shape(const gd_slot *a, const gd_slot *b) {
    bool same = a->rank == b->rank;
    for (int i = 0; i < a->rank && same; i++) same = a->dims[i] == b->dims[i];
    return same;
}

/* Of two bottoms with one shape. */
static gd_status save_eltwise(gd_caffe_call *c) {
    int a = gd_caffe_bottom(c, 0), b = gd_caffe_bottom(c, 1);
    if (is_op(c, "div")) {
        const int inverse = gd_caffe_between(c, gd_caffe_slot_shape(&c->in[1]));
        gd_caffe_put_power(c, b, -1, 1, 0, inverse);
        b = inverse;
    }
    gd_caffe_out(c, "Eltwise", a, gd_caffe_top(c, 0));
    gd_caffe_put_bottom(c->saver, b);
    gd_caffe_put_int(c, "operation",
                     is_op(c, "add") || is_op(c, "sub") ? SUM
                     : is_op(c, "maximum")              ? MAX
                                                        : PROD);
    if (is_op(c, "sub")) {
        gd_caffe_put_float(c, "coeff", 1);
        gd_caffe_put_float(c, "coeff", -1);
    }
    return c->saver->status;
}

gd_status gd_caffe_save_arithmetic(gd_caffe_call *c) {
    gd_tensor *const constants[] = {gd_caffe_constant(c, 0), gd_caffe_constant(c, 1)};
    for (int i = 0; i < 2; i++) {
        if (!constants[i]) continue;
        if (!same_shape(&c->in[1 - i], &c->out[0]))
            return gd_caffe_cannot(
                c, "a constant makes its input larger, and Caffe has no layer for that");
        const double n = number_of(c, i);
        const int x = gd_caffe_bottom(c, 1 - i);
        return isnan(n) ? save_with_tensor(c, x, constants[i], i == 0)
                        : save_with_number(c, x, n, i == 0);
    }
    if (same_shape(&c->in[0], &c->in[1])) return save_eltwise(c);
    const int larger = same_shape(&c->in[0], &c->out[0]) ? 0 : 1;
    if (!same_shape(&c->in[larger], &c->out[0]) || !(is_op(c, "add") || is_op(c, "mul")))
        return gd_caffe_cannot(
            c, "its inputs have different shapes; Caffe has layers for that only if "
               "one is added to or multiplies the other");
    return gd_caffe_save_broadcast(c, larger, 1 - larger, is_op(c, "mul"));
}
