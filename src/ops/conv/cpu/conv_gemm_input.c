/* conv_gemm_input.c - the gradient of x (and transposed convolution) as implicit GEMM.
 *
 * The gradient of x is a convolution of the gradient of y. With stride 1 it is a convolution by the
 * flipped kernel. With a larger stride the positions of x are divided into phases (position modulo
 * stride along each axis): all positions of a phase use the same taps, and each phase is a
 * convolution with stride 1 by these taps alone.
 */
#include "ops/conv/cpu/conv_gemm.h"

#include "core/error.h"
#include "core/pool.h"

/* Phase `number` along one axis: the positions i of x with i + before = number + stride * q. */
typedef struct {
    int64_t count;               /* positions in the phase */
    int64_t first, first_q;      /* the first position, and its q */
    int64_t taps, tap, tap_step; /* `taps` taps contribute: tap, tap + tap_step, ... */
    int64_t dilation, before;    /* of the convolution by these taps, flipped */
} axis_phase;

static int64_t common_divisor(int64_t a, int64_t b) {
    while (b) {
        const int64_t remainder = a % b;
        a = b;
        b = remainder;
    }
    return a;
}

static axis_phase phase_along_axis(const gd_conv *c, int a, int64_t number) {
    const int64_t stride = c->stride[a], dilation = c->dilation[a],
                  divisor = common_divisor(stride, dilation);
    axis_phase p = {.tap_step = stride / divisor, .dilation = dilation / divisor};
    /* Positions are inside x: 0 <= number - before + stride * q < in. */
    const int64_t deficit = c->before[a] - number;
    p.first_q = deficit > 0 ? gd_divide_up(deficit, stride) : -(-deficit / stride);
    p.first = number - c->before[a] + stride * p.first_q;
    p.count = p.first < c->in[a] ? (c->in[a] - 1 - p.first) / stride + 1 : 0;
    if (number % divisor == 0)
        for (p.tap = 0; p.tap < p.tap_step && p.tap < c->kernel[a]; p.tap++)
            if (p.tap * dilation % stride == number) {
                p.taps = (c->kernel[a] - 1 - p.tap) / p.tap_step + 1;
                p.before =
                    (p.tap * dilation - number) / stride + (p.taps - 1) * p.dilation - p.first_q;
                break;
            }
    return p;
}

/* The convolution of y that computes phase `number` of x, counted over all axes, and the phases of
 * the axes. Returns false if the phase has no positions, or no tap contributes to them. */
static bool phase_form(const gd_conv *c, int64_t number, gd_conv *form,
                       axis_phase axes[GD_CONV_AXES]) {
    *form = *c;
    form->ci = c->co;
    form->co = c->ci;
    bool nonempty = true;
    for (int a = GD_CONV_AXES - 1; a >= 0; a--) {
        axes[a] = phase_along_axis(c, a, number % c->stride[a]);
        number /= c->stride[a];
        form->in[a] = c->out[a];
        form->out[a] = axes[a].count;
        form->kernel[a] = axes[a].taps;
        form->stride[a] = 1;
        form->dilation[a] = axes[a].dilation;
        form->before[a] = axes[a].before;
        nonempty = nonempty && axes[a].taps > 0 && axes[a].count > 0;
    }
    return nonempty;
}

typedef struct {
    const gd_conv *c;
    const axis_phase *axes;
    gd_dtype dtype;
    const void *w;
    void *phase_w;
} phase_weight_job;

/* Gathers the taps of one phase, flipped: w (groups, co, ci, taps) -> (groups, ci, co, taps of the
 * phase), for one input channel of one group. */
static void gather_phase_weights(void *arg, int64_t i) {
    const phase_weight_job *t = arg;
    const gd_conv *c = t->c;
    const axis_phase *p = t->axes;
    const int64_t taps = gd_conv_positions(c->kernel), group = i / c->ci, channel = i % c->ci;
    int64_t to = i * c->co * p[0].taps * p[1].taps * p[2].taps;
    for (int64_t o = 0; o < c->co; o++) {
        const int64_t from = ((group * c->co + o) * c->ci + channel) * taps;
        for (int64_t d = p[0].taps; d-- > 0;)
            for (int64_t h = p[1].taps; h-- > 0;)
                for (int64_t w = p[2].taps; w-- > 0; to++) {
                    const int64_t tap = ((p[0].tap + d * p[0].tap_step) * c->kernel[1] + p[1].tap +
                                         h * p[1].tap_step) *
                                            c->kernel[2] +
                                        p[2].tap + w * p[2].tap_step;
                    if (t->dtype == GD_F64)
                        ((double *)t->phase_w)[to] = ((const double *)t->w)[from + tap];
                    else ((float *)t->phase_w)[to] = ((const float *)t->w)[from + tap];
                }
    }
}

static int64_t phase_count(const gd_conv *c) {
    int64_t phases = 1;
    for (int a = 0; a < GD_CONV_AXES; a++) phases *= c->stride[a];
    return phases;
}

static bool has_empty_phase(const gd_conv *c) {
    for (int64_t i = 0; i < phase_count(c); i++) {
        gd_conv form;
        axis_phase axes[GD_CONV_AXES];
        if (!phase_form(c, i, &form, axes)) return true;
    }
    return false;
}

/* With larger strides most phases are empty; the reference kernel handles them. */
enum { MAX_PHASES = 64 };
bool gd_conv_gemm_input_matches(const gd_conv *c) {
    return c->stride[0] <= MAX_PHASES && c->stride[1] <= MAX_PHASES && c->stride[2] <= MAX_PHASES &&
           phase_count(c) <= MAX_PHASES;
}

static size_t weight_bytes(const gd_conv *c, gd_dtype dtype) {
    return (size_t)(c->groups * c->co * c->ci * gd_conv_positions(c->kernel)) *
           gd_conv_dtype_size(dtype);
}

size_t gd_conv_gemm_input_bytes(const gd_conv *c, gd_dtype dtype) {
    if (gd_conv_is_matmul(c)) return 0;
    size_t max_bytes = 0;
    for (int64_t i = 0; i < phase_count(c); i++) {
        gd_conv form;
        axis_phase axes[GD_CONV_AXES];
        if (!phase_form(c, i, &form, axes)) continue;
        const gd_conv_output_plan p = gd_conv_plan_output(&form, dtype, gd_conv_has_stride_1(c));
        const size_t bytes = gd_conv_slots_bytes(0, p.slot, p.tasks);
        if (bytes > max_bytes) max_bytes = bytes;
    }
    return gd_round_to_cache_line(weight_bytes(c, dtype)) + max_bytes;
}

typedef struct {
    const gd_conv_call *call;
    int64_t plane;
} plane_fill_job;

/* Fills a plane of x with the bias or zero, for elements that no phase writes. */
static void fill_plane(void *arg, int64_t i) {
    const plane_fill_job *b = arg;
    const gd_conv_call *call = b->call;
    const int64_t channel = i % (call->c.groups * call->c.ci);
    if (call->dtype == GD_F64) {
        double *x = (double *)call->x + i * b->plane;
        const double bias = call->bias ? ((const double *)call->bias)[channel] : 0;
        for (int64_t p = 0; p < b->plane; p++) x[p] = bias;
    } else {
        float *x = (float *)call->x + i * b->plane;
        const float bias = call->bias ? ((const float *)call->bias)[channel] : 0;
        for (int64_t p = 0; p < b->plane; p++) x[p] = bias;
    }
}

gd_status gd_conv_gemm_input(const gd_conv_call *call) {
    const gd_conv *c = &call->c;
    if (gd_conv_is_matmul(c)) return gd_conv_run_matmul(call, true);
    const bool direct = gd_conv_has_stride_1(c);
    const size_t shared = weight_bytes(c, call->dtype);
    if (has_empty_phase(c))
        gd_parallel_for(c->batch * c->groups * c->ci, fill_plane,
                        &(plane_fill_job){call, gd_conv_positions(c->in)});
    for (int64_t i = 0; i < phase_count(c); i++) {
        gd_conv form;
        axis_phase axes[GD_CONV_AXES];
        if (!phase_form(c, i, &form, axes)) continue;
        gd_parallel_for(c->groups * c->ci, gather_phase_weights,
                        &(phase_weight_job){c, axes, call->dtype, call->w, call->workspace});
        gd_conv_output_plan p = gd_conv_plan_output(&form, call->dtype, direct);
        p.x = call->y;
        p.w = call->workspace;
        p.bias = call->bias;
        p.y.data = call->x;
        for (int a = 0; a < GD_CONV_AXES; a++) {
            p.y.size[a] = c->in[a];
            p.y.first[a] = axes[a].first;
            p.y.step[a] = c->stride[a];
        }
        GD_TRY(gd_conv_run_tasks(call, shared, p.slot, p.tasks, gd_conv_output_task, &p));
    }
    return GD_OK;
}
