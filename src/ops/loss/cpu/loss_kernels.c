/* loss_kernels.c - classification losses in f32: cross-entropy fused with log-softmax, and negative
 * log likelihood.
 *
 * Work is partitioned into items: a row of logits, or some positions (columns) of one sample. Each
 * task adds the losses of its items in order in f64, and the sums of the tasks are added in order,
 * so the bits do not depend on the number of threads.
 */
#include "core/tile.h"
#include "ops/loss/cpu/loss.h"

#include <string.h>

#include "core/pool.h"
#include "gradus/ops.h"
#include "ops/loss/loss_class.h"

enum {
    TASK_LOGITS = 32768, /* logits of a task, roughly */
    MAX_ITEM_POSITIONS = 256,
    FEW_CLASSES = 48, /* rows of at most this many classes are computed in batches ... */
    ROW_BATCH = 64,   /* ... of this many rows */
};

/* The partition of the positions of x. */
typedef struct {
    gd_class_shape s;
    int64_t width;           /* positions of an item */
    int64_t items_per_outer; /* 1 if a sample is one item */
    int64_t items, items_per_task, tasks;
} partition;

static partition partition_positions(const gd_view *x) {
    partition c = {.s = gd_class_shape_of(x->rank, x->dims)};
    c.width = c.s.inner < MAX_ITEM_POSITIONS ? c.s.inner : MAX_ITEM_POSITIONS;
    if (c.width == 0) return c;
    c.items_per_outer = (c.s.inner + c.width - 1) / c.width;
    c.items = c.s.outer * c.items_per_outer;
    int64_t logits = c.s.classes * c.width;
    c.items_per_task = logits >= TASK_LOGITS || logits == 0 ? 1 : TASK_LOGITS / logits;
    c.tasks = (c.items + c.items_per_task - 1) / c.items_per_task;
    return c;
}

/* The operands of all kernels in this file. */
typedef struct {
    partition partition;
    const float *x, *weight; /* weight NULL: all 1 */
    gd_view target;
    int64_t ignore, first_bad; /* first_bad: the first position with an invalid class */
    gd_word reduction;
    double smoothing, weight_sum; /* weight_sum: of all classes */
    float *y, *shift, *scale;     /* any may be NULL: not stored */
    struct {
        double loss, weight;
    } * sums; /* of each task */
    const float *gy;
    double mean_scale; /* scale of the gradient of a mean: 1 / sum of the targets' weights */
    float *gx;
} loss_job;

/* An item: `n` positions from `first` on; their logits start at `at`. */
typedef struct {
    int64_t first, n, at;
} item;

static item item_at(const partition *c, int64_t i) {
    int64_t outer = i / c->items_per_outer, column = i % c->items_per_outer * c->width;
    int64_t left = c->s.inner - column;
    return (item){outer * c->s.inner + column, left < c->width ? left : c->width,
                  outer * c->s.classes * c->s.inner + column};
}

/* Atomically sets *first = min(*first, i). */
static void store_minimum(int64_t *first, int64_t i) {
    int64_t seen = __atomic_load_n(first, __ATOMIC_RELAXED);
    while (i < seen && !__atomic_compare_exchange_n(first, &seen, i, true, __ATOMIC_RELAXED,
                                                    __ATOMIC_RELAXED)) {
    }
}

/* The target class of a position; -1 if it is ignored or invalid (which is recorded in
 * first_bad). */
static int64_t target_class(loss_job *j, int64_t position) {
    size_t size = gd_dtype_size(j->target.dtype);
    int64_t class =
        gd_load_i64(j->target.dtype, (const char *)j->target.data + (size_t)position * size);
    if (class == j->ignore) return -1;
    if (class >= 0 && class < j->partition.s.classes) return class;
    store_minimum(&j->first_bad, position);
    return -1;
}

static bool is_absent_or_f32(const gd_kernel_call *k, int i) {
    return i >= k->n_in || !k->in[i].data || k->in[i].dtype == GD_F32;
}

static bool has_classes(const gd_view *x) {
    return gd_class_shape_of(x->rank, x->dims).classes > 0;
}

/* Initializes what is the same forward and backward. */
static loss_job init_loss(const gd_view *x, const gd_view *target, gd_view weight,
                          gd_word reduction, int64_t ignore) {
    loss_job j = {.partition = partition_positions(x),
                  .weight = weight.data,
                  .target = *target,
                  .ignore = ignore,
                  .first_bad = INT64_MAX,
                  .reduction = reduction,
                  .mean_scale = 1};
    j.weight_sum = (double)j.partition.s.classes;
    if (j.weight) {
        j.weight_sum = 0;
        for (int64_t c = 0; c < j.partition.s.classes; c++) j.weight_sum += j.weight[c];
    }
    return j;
}

static gd_status check_targets(const loss_job *j) {
    return j->first_bad == INT64_MAX
               ? GD_OK
               : gd_fail_class(&j->target, j->first_bad, j->partition.s.classes, j->ignore);
}

/* Adds the sums of the tasks, and stores the loss (unless each position has its own) and the sum of
 * weights.
 */
static gd_status reduce_losses(const loss_job *j, double *total_out) {
    double loss = 0, total = 0;
    GD_TRY(check_targets(j));
    for (int64_t p = 0; p < j->partition.tasks; p++)
        loss += j->sums[p].loss, total += j->sums[p].weight;
    if (j->reduction != GD_NONE) *j->y = (float)(j->reduction == GD_MEAN ? loss / total : loss);
    if (total_out) *total_out = total;
    return GD_OK;
}

static size_t partial_sums_bytes(const gd_view *x) {
    return (size_t)partition_positions(x).tasks * 2 * sizeof(double);
}

/* --- cross-entropy ---------------------------------------------------------------------------- */

/* Computes the statistics of an item. A batch of rows of few classes is transposed first, so that a
 * vector holds one class of many rows. */
static void compute_stats(const loss_job *j, item at, gd_logit_stats s) {
    const gd_class_shape *shape = &j->partition.s;
    const float *x = j->x + at.at;
    if (shape->inner > 1) {
        GD_ISA_CALL(gd_logits_columns_f32)(shape->classes, shape->inner, at.n, x, j->weight, s);
    } else if (at.n == 1) {
        GD_ISA_CALL(gd_logits_row_f32)(shape->classes, x, j->weight, s);
    } else {
        GD_TILE(float, transposed, FEW_CLASSES *ROW_BATCH);
        for (int64_t i = 0; i < at.n; i++)
            for (int64_t c = 0; c < shape->classes; c++)
                transposed[c * ROW_BATCH + i] = x[i * shape->classes + c];
        GD_ISA_CALL(gd_logits_columns_f32)
        (shape->classes, ROW_BATCH, at.n, transposed, j->weight, s);
    }
}

static void cross_entropy_item(loss_job *j, int64_t task, item at) {
    float stats[4][MAX_ITEM_POSITIONS];
    gd_logit_stats s = {stats[0], stats[1], stats[2], j->smoothing > 0 ? stats[3] : NULL};
    const gd_class_shape *shape = &j->partition.s;
    const int64_t step = shape->inner > 1 ? 1 : shape->classes; /* stride of positions */
    compute_stats(j, at, s);
    for (int64_t i = 0; i < at.n; i++) {
        int64_t class = target_class(j, at.first + i);
        double loss = 0;
        if (class >= 0) {
            double weight = j->weight ? j->weight[class] : 1, logsum = s.logsum[i],
                   shift = s.shift[i];
            loss = (1 - j->smoothing) * weight *
                   (logsum - ((double)j->x[at.at + class * shape->inner + i * step] - shift));
            if (s.weighted_sum)
                loss += j->smoothing / (double)shape->classes *
                        (j->weight_sum * (logsum + shift) - s.weighted_sum[i]);
            j->sums[task].weight += weight;
        }
        j->sums[task].loss += loss;
        if (j->reduction == GD_NONE) j->y[at.first + i] = (float)loss;
    }
    if (j->shift) memcpy(j->shift + at.first, s.shift, (size_t)at.n * sizeof *j->shift);
    if (j->scale) memcpy(j->scale + at.first, s.scale, (size_t)at.n * sizeof *j->scale);
}

static void cross_entropy_task(void *arg, int64_t task) {
    loss_job *j = arg;
    int64_t first = task * j->partition.items_per_task, last = first + j->partition.items_per_task;
    const bool batch_rows = j->partition.s.inner == 1 && j->partition.s.classes <= FEW_CLASSES;
    if (last > j->partition.items) last = j->partition.items;
    j->sums[task].loss = j->sums[task].weight = 0;
    for (int64_t i = first; i < last; i += batch_rows ? ROW_BATCH : 1) {
        item at = item_at(&j->partition, i);
        if (batch_rows) at.n = last - i < ROW_BATCH ? last - i : ROW_BATCH;
        cross_entropy_item(j, task, at);
    }
}

/*kernel index_cross_entropy.fused  rank 10  wide  dtypes f16 bf16 f32
 * Log-softmax and loss in one pass over each row.
 */
static bool index_cross_entropy_fused_match(const gd_kernel_call *k) {
    return has_classes(&k->in[0]);
}
static size_t index_cross_entropy_fused_workspace(const gd_kernel_call *k) {
    return partial_sums_bytes(&k->in[0]);
}
static gd_status index_cross_entropy_fused_run(gd_kernel_call *k) {
    const gd_index_cross_entropy_options *o = k->attrs;
    loss_job j =
        init_loss(&k->in[0], &k->in[1], gd_optional_view(k, 2), o->reduction, o->ignore_index);
    j.x = k->in[0].data;
    j.smoothing = o->label_smoothing;
    j.y = k->out[0].data;
    j.shift = k->out[1].data;
    j.scale = k->out[2].data;
    j.sums = k->workspace;
    gd_parallel_for(j.partition.tasks, cross_entropy_task, &j);
    return reduce_losses(&j, k->out[3].data);
}

static void cross_entropy_grad_item(loss_job *j, item at) {
    float softmax_scale[MAX_ITEM_POSITIONS], class_scale[MAX_ITEM_POSITIONS],
        target_scale[MAX_ITEM_POSITIONS];
    int64_t class[MAX_ITEM_POSITIONS];
    const gd_class_shape *s = &j->partition.s;
    double smoothing_share = j->smoothing / (double)s->classes;
    /* gx = softmax_scale * exp(x - shift) - class_scale * weight, minus target_scale at the
     * target. */
    for (int64_t i = 0; i < at.n; i++) {
        double g = j->mean_scale * j->gy[j->reduction == GD_NONE ? at.first + i : 0];
        class[i] = target_class(j, at.first + i);
        double target_weight =
            (1 - j->smoothing) * (j->weight && class[i] >= 0 ? j->weight[class[i]] : 1);
        if (class[i] < 0) g = 0;
        softmax_scale[i] =
            (float)(g * (target_weight + smoothing_share * j->weight_sum) * j->scale[at.first + i]);
        class_scale[i] = (float)(g * smoothing_share);
        target_scale[i] = (float)(g * target_weight);
    }
    const float *x = j->x + at.at;
    float *gx = j->gx + at.at;
    if (s->inner == 1) GD_ISA_CALL(gd_logits_row_grad_f32)
    (s->classes, x, j->weight, j->shift[at.first], softmax_scale[0], class_scale[0], gx);
    else GD_ISA_CALL(gd_logits_columns_grad_f32)(s->classes, s->inner, at.n, x, j->weight,
                                                 j->shift + at.first, softmax_scale, class_scale,
                                                 gx);
    for (int64_t i = 0; i < at.n; i++) {
        if (class[i] >= 0) gx[class[i] * s -> inner + i] -= target_scale[i];
        else
            for (int64_t c = 0; c < s->classes; c++) gx[c * s->inner + i] = 0; /* not 0 * NaN */
    }
}

static void cross_entropy_grad_task(void *arg, int64_t task) {
    loss_job *j = arg;
    int64_t first = task * j->partition.items_per_task, last = first + j->partition.items_per_task;
    for (int64_t i = first; i < last && i < j->partition.items; i++)
        cross_entropy_grad_item(j, item_at(&j->partition, i));
}

/*kernel index_cross_entropy_grad.fused  rank 10  wide  dtypes f16 bf16 f32
 * Softmax and the gradient in one pass over each row.
 */
static bool index_cross_entropy_grad_fused_match(const gd_kernel_call *k) {
    return has_classes(&k->in[1]);
}
static gd_status index_cross_entropy_grad_fused_run(gd_kernel_call *k) {
    const gd_index_cross_entropy_grad_options *o = k->attrs;
    loss_job j =
        init_loss(&k->in[1], &k->in[2], gd_optional_view(k, 6), o->reduction, o->ignore_index);
    j.gy = k->in[0].data;
    j.x = k->in[1].data;
    j.shift = k->in[3].data;
    j.scale = k->in[4].data;
    if (o->reduction == GD_MEAN) j.mean_scale = 1 / gd_load_f64(k->in[5].dtype, k->in[5].data);
    j.smoothing = o->label_smoothing;
    j.gx = k->out[0].data;
    gd_parallel_for(j.partition.tasks, cross_entropy_grad_task, &j);
    return check_targets(&j);
}

/* --- negative log likelihood ------------------------------------------------------------------ */

static void nll_task(void *arg, int64_t task) {
    loss_job *j = arg;
    int64_t first = task * j->partition.items_per_task, last = first + j->partition.items_per_task;
    double sum = 0, total = 0;
    for (int64_t k = first; k < last && k < j->partition.items; k++) {
        item at = item_at(&j->partition, k);
        for (int64_t i = 0; i < at.n; i++) {
            int64_t class = target_class(j, at.first + i);
            double weight = class < 0 ? 0 : j->weight ? j->weight[class] : 1;
            double loss = class < 0 ? 0 : -weight * j->x[at.at + class * j->partition.s.inner + i];
            sum += loss;
            total += weight;
            if (j->reduction == GD_NONE) j->y[at.first + i] = (float)loss;
        }
    }
    j->sums[task].loss = sum;
    j->sums[task].weight = total;
}

/*kernel nll_loss.threaded  rank 10  contiguous  dtypes f32
 * f32 only: the reference kernel handles f16 and bf16, because widening all logits would cost more.
 */
static bool nll_loss_threaded_match(const gd_kernel_call *k) {
    return is_absent_or_f32(k, 2) && has_classes(&k->in[0]);
}
static size_t nll_loss_threaded_workspace(const gd_kernel_call *k) {
    return partial_sums_bytes(&k->in[0]);
}
static gd_status nll_loss_threaded_run(gd_kernel_call *k) {
    const gd_nll_loss_options *o = k->attrs;
    loss_job j =
        init_loss(&k->in[0], &k->in[1], gd_optional_view(k, 2), o->reduction, o->ignore_index);
    j.x = k->in[0].data;
    j.y = k->out[0].data;
    j.sums = k->workspace;
    gd_parallel_for(j.partition.tasks, nll_task, &j);
    return reduce_losses(&j, k->out[1].data);
}

static void nll_grad_task(void *arg, int64_t task) {
    loss_job *j = arg;
    const gd_class_shape *s = &j->partition.s;
    int64_t first = task * j->partition.items_per_task, last = first + j->partition.items_per_task;
    for (int64_t k = first; k < last && k < j->partition.items; k++) {
        item at = item_at(&j->partition, k);
        float *gx = j->gx + at.at;
        if (s->inner == 1) memset(gx, 0, (size_t)s->classes * sizeof *gx);
        else
            for (int64_t c = 0; c < s->classes; c++)
                memset(gx + c * s->inner, 0, (size_t)at.n * sizeof *gx);
        for (int64_t i = 0; i < at.n; i++) {
            int64_t class = target_class(j, at.first + i);
            if (class < 0) continue;
            double g = j->mean_scale * j->gy[j->reduction == GD_NONE ? at.first + i : 0];
            gx[class * s->inner + i] = (float)(-g * (j->weight ? j->weight[class] : 1));
        }
    }
}

/*kernel nll_loss_grad.threaded  rank 10  contiguous  dtypes f32
 * A task writes rows of the gradient.
 */
static bool nll_loss_grad_threaded_match(const gd_kernel_call *k) {
    return is_absent_or_f32(k, 3) && has_classes(&k->out[0]);
}
static gd_status nll_loss_grad_threaded_run(gd_kernel_call *k) {
    const gd_nll_loss_grad_options *o = k->attrs;
    loss_job j =
        init_loss(&k->out[0], &k->in[1], gd_optional_view(k, 3), o->reduction, o->ignore_index);
    j.gy = k->in[0].data;
    j.gx = k->out[0].data;
    if (o->reduction == GD_MEAN) j.mean_scale = 1 / gd_load_f64(k->in[2].dtype, k->in[2].data);
    gd_parallel_for(j.partition.tasks, nll_grad_task, &j);
    return check_targets(&j);
}

#include "ops/loss/cpu/loss_kernels.gen.h"
