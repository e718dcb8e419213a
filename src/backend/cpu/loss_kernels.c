/* loss_kernels.c - losses over classes in f32: cross-entropy in one pass over the logits, and what
 * is picked by class numbers, threaded.
 *
 * Work is cut into items: a row of logits, or some of the positions (columns) of one case. Each
 * piece adds up its items' losses in f64, in order, and the pieces' sums are added in order: the
 * bits do not depend on the number of threads.
 */
#include "core/tile.h"
#include "backend/cpu/loss.h"

#include <string.h>

#include "core/pool.h"
#include "gradus/ops.h"
#include "ops/loss_class.h"

enum {
    PIECE = 32768,    /* logits of a piece of work for one thread */
    COLUMNS = 256,    /* most positions of an item */
    FEW_CLASSES = 48, /* rows of no more are looked at together, */
    ROWS = 64,        /* so many of them */
};

/* How the positions of x are cut. */
typedef struct {
    gd_class_shape s;
    int64_t width;           /* positions of an item */
    int64_t items_per_outer; /* 1 where a case is one item */
    int64_t items, items_per_piece, pieces;
} cut;

static cut cut_positions(const gd_view *x) {
    cut c = {.s = gd_class_shape_of(x->rank, x->dims)};
    c.width = c.s.inner < COLUMNS ? c.s.inner : COLUMNS;
    if (c.width == 0) return c;
    c.items_per_outer = (c.s.inner + c.width - 1) / c.width;
    c.items = c.s.outer * c.items_per_outer;
    int64_t logits = c.s.classes * c.width;
    c.items_per_piece = logits >= PIECE || logits == 0 ? 1 : PIECE / logits;
    c.pieces = (c.items + c.items_per_piece - 1) / c.items_per_piece;
    return c;
}

/* What all these kernels are given. */
typedef struct {
    cut cut;
    const float *x, *weight; /* weight NULL: all 1 */
    gd_view target;
    int64_t ignore, bad; /* bad: the first position with no such class */
    gd_word reduction;
    double smoothing, all;    /* the sum of all weights */
    float *y, *shift, *scale; /* any may be NULL: not wanted */
    struct {
        double loss, weight;
    } * sums; /* of each piece */
    const float *gy;
    double share; /* what a mean's gradient is multiplied with: 1 / sum of weights */
    float *gx;
} job;

/* The item at hand: `n` positions from `first` on; their logits begin at `at`. */
typedef struct {
    int64_t first, n, at;
} item;

static item item_at(const cut *c, int64_t i) {
    int64_t outer = i / c->items_per_outer, column = i % c->items_per_outer * c->width;
    int64_t left = c->s.inner - column;
    return (item){outer * c->s.inner + column, left < c->width ? left : c->width,
                  outer * c->s.classes * c->s.inner + column};
}

static void note_first(int64_t *first, int64_t i) {
    int64_t seen = __atomic_load_n(first, __ATOMIC_RELAXED);
    while (i < seen && !__atomic_compare_exchange_n(first, &seen, i, true, __ATOMIC_RELAXED,
                                                    __ATOMIC_RELAXED)) {
    }
}

/* The class of a position; -1: ignored, or there is none such, which is noted. */
static int64_t class_of(job *j, int64_t position) {
    size_t size = gd_dtype_size(j->target.dtype);
    int64_t class =
        gd_load_i64(j->target.dtype, (const char *)j->target.data + (size_t)position * size);
    if (class == j->ignore) return -1;
    if (class >= 0 && class < j->cut.s.classes) return class;
    note_first(&j->bad, position);
    return -1;
}

static bool is_f32(const gd_kernel_call *k, int i) {
    return i >= k->n_in || !k->in[i].data || k->in[i].dtype == GD_F32;
}

/* f32, or a half that comes as f32; and some class. */
static bool takes(const gd_view *x) {
    return x->dtype != GD_F64 && gd_class_shape_of(x->rank, x->dims).classes > 0;
}

/* The part of the job that is the same forward and backward. */
static job prepare(const gd_view *x, const gd_view *target, gd_view weight, gd_word reduction,
                   int64_t ignore) {
    job j = {.cut = cut_positions(x),
             .weight = weight.data,
             .target = *target,
             .ignore = ignore,
             .bad = INT64_MAX,
             .reduction = reduction,
             .share = 1};
    j.all = (double)j.cut.s.classes;
    if (j.weight) {
        j.all = 0;
        for (int64_t c = 0; c < j.cut.s.classes; c++) j.all += j.weight[c];
    }
    return j;
}

static gd_status outcome(const job *j) {
    return j->bad == INT64_MAX ? GD_OK
                               : gd_bad_class(&j->target, j->bad, j->cut.s.classes, j->ignore);
}

/* Adds up the pieces and writes the loss (unless each position has its own) and the sum of weights.
 */
static gd_status finish(const job *j, double *total_out) {
    double loss = 0, total = 0;
    GD_TRY(outcome(j));
    for (int64_t p = 0; p < j->cut.pieces; p++) loss += j->sums[p].loss, total += j->sums[p].weight;
    if (j->reduction != GD_NONE) *j->y = (float)(j->reduction == GD_MEAN ? loss / total : loss);
    if (total_out) *total_out = total;
    return GD_OK;
}

static size_t sums_bytes(const gd_view *x) {
    return (size_t)cut_positions(x).pieces * 2 * sizeof(double);
}

/* --- cross-entropy ---------------------------------------------------------------------------- */

/* The statistics of an item. Rows of few classes have been put together to one: their logits are
 * turned, so that a vector holds one class of many rows. */
static void find_stats(const job *j, item at, gd_logit_stats s) {
    const gd_class_shape *shape = &j->cut.s;
    const float *x = j->x + at.at;
    if (shape->inner > 1) {
        GD_ISA_CALL(gd_logits_columns_f32)(shape->classes, shape->inner, at.n, x, j->weight, s);
    } else if (at.n == 1) {
        GD_ISA_CALL(gd_logits_row_f32)(shape->classes, x, j->weight, s);
    } else {
        GD_TILE(float, turned, FEW_CLASSES *ROWS);
        for (int64_t i = 0; i < at.n; i++)
            for (int64_t c = 0; c < shape->classes; c++)
                turned[c * ROWS + i] = x[i * shape->classes + c];
        GD_ISA_CALL(gd_logits_columns_f32)(shape->classes, ROWS, at.n, turned, j->weight, s);
    }
}

static void cross_entropy_item(job *j, int64_t piece, item at) {
    float stats[4][COLUMNS];
    gd_logit_stats s = {stats[0], stats[1], stats[2], j->smoothing > 0 ? stats[3] : NULL};
    const gd_class_shape *shape = &j->cut.s;
    const int64_t step = shape->inner > 1 ? 1 : shape->classes; /* from one position to the next */
    find_stats(j, at, s);
    for (int64_t i = 0; i < at.n; i++) {
        int64_t class = class_of(j, at.first + i);
        double loss = 0;
        if (class >= 0) {
            double weight = j->weight ? j->weight[class] : 1, logsum = s.logsum[i],
                   shift = s.shift[i];
            loss = (1 - j->smoothing) * weight *
                   (logsum - ((double)j->x[at.at + class * shape->inner + i * step] - shift));
            if (s.even)
                loss +=
                    j->smoothing / (double)shape->classes * (j->all * (logsum + shift) - s.even[i]);
            j->sums[piece].weight += weight;
        }
        j->sums[piece].loss += loss;
        if (j->reduction == GD_NONE) j->y[at.first + i] = (float)loss;
    }
    if (j->shift) memcpy(j->shift + at.first, s.shift, (size_t)at.n * sizeof *j->shift);
    if (j->scale) memcpy(j->scale + at.first, s.scale, (size_t)at.n * sizeof *j->scale);
}

static void cross_entropy_piece(void *arg, int64_t piece) {
    job *j = arg;
    int64_t first = piece * j->cut.items_per_piece, last = first + j->cut.items_per_piece;
    const bool few = j->cut.s.inner == 1 && j->cut.s.classes <= FEW_CLASSES;
    if (last > j->cut.items) last = j->cut.items;
    j->sums[piece].loss = j->sums[piece].weight = 0;
    for (int64_t i = first; i < last; i += few ? ROWS : 1) {
        item at = item_at(&j->cut, i);
        if (few) at.n = last - i < ROWS ? last - i : ROWS;
        cross_entropy_item(j, piece, at);
    }
}

/*kernel index_cross_entropy.fused  rank 10  wide
 * f32 and halves.
 */
static bool index_cross_entropy_fused_match(const gd_kernel_call *k) { return takes(&k->in[0]); }
static size_t index_cross_entropy_fused_workspace(const gd_kernel_call *k) {
    return sums_bytes(&k->in[0]);
}
static gd_status index_cross_entropy_fused_run(gd_kernel_call *k) {
    const gd_index_cross_entropy_options *o = k->attrs;
    job j = prepare(&k->in[0], &k->in[1], gd_optional_view(k, 2), o->reduction, o->ignore_index);
    j.x = k->in[0].data;
    j.smoothing = o->label_smoothing;
    j.y = k->out[0].data;
    j.shift = k->out[1].data;
    j.scale = k->out[2].data;
    j.sums = k->workspace;
    gd_parallel_for(j.cut.pieces, cross_entropy_piece, &j);
    return finish(&j, k->out[3].data);
}

static void cross_entropy_grad_item(job *j, item at) {
    float mass[COLUMNS], even[COLUMNS], named[COLUMNS];
    int64_t class[COLUMNS];
    const gd_class_shape *s = &j->cut.s;
    double each = j->smoothing / (double)s->classes;
    for (int64_t i = 0; i < at.n;
         i++) { /* softmax, all classes, the one named: what each is multiplied with */
        double g = j->share * j->gy[j->reduction == GD_NONE ? at.first + i : 0];
        class[i] = class_of(j, at.first + i);
        double own = (1 - j->smoothing) * (j->weight && class[i] >= 0 ? j->weight[class[i]] : 1);
        if (class[i] < 0) g = 0;
        mass[i] = (float)(g * (own + each * j->all) * j->scale[at.first + i]);
        even[i] = (float)(g * each);
        named[i] = (float)(g * own);
    }
    const float *x = j->x + at.at;
    float *gx = j->gx + at.at;
    if (s->inner == 1) GD_ISA_CALL(gd_logits_row_grad_f32)
    (s->classes, x, j->weight, j->shift[at.first], mass[0], even[0], gx);
    else GD_ISA_CALL(gd_logits_columns_grad_f32)(s->classes, s->inner, at.n, x, j->weight,
                                                 j->shift + at.first, mass, even, gx);
    for (int64_t i = 0; i < at.n; i++) {
        if (class[i] >= 0) gx[class[i] * s -> inner + i] -= named[i];
        else
            for (int64_t c = 0; c < s->classes; c++) gx[c * s->inner + i] = 0; /* not 0 * NaN */
    }
}

static void cross_entropy_grad_piece(void *arg, int64_t piece) {
    job *j = arg;
    int64_t first = piece * j->cut.items_per_piece, last = first + j->cut.items_per_piece;
    for (int64_t i = first; i < last && i < j->cut.items; i++)
        cross_entropy_grad_item(j, item_at(&j->cut, i));
}

/*kernel index_cross_entropy_grad.fused  rank 10  wide
 * f32 and halves.
 */
static bool index_cross_entropy_grad_fused_match(const gd_kernel_call *k) {
    return takes(&k->in[1]);
}
static gd_status index_cross_entropy_grad_fused_run(gd_kernel_call *k) {
    const gd_index_cross_entropy_grad_options *o = k->attrs;
    job j = prepare(&k->in[1], &k->in[2], gd_optional_view(k, 6), o->reduction, o->ignore_index);
    j.gy = k->in[0].data;
    j.x = k->in[1].data;
    j.shift = k->in[3].data;
    j.scale = k->in[4].data;
    if (o->reduction == GD_MEAN) j.share = 1 / gd_load_f64(k->in[5].dtype, k->in[5].data);
    j.smoothing = o->label_smoothing;
    j.gx = k->out[0].data;
    gd_parallel_for(j.cut.pieces, cross_entropy_grad_piece, &j);
    return outcome(&j);
}

/* --- negative log likelihood ------------------------------------------------------------------ */

static void nll_piece(void *arg, int64_t piece) {
    job *j = arg;
    int64_t first = piece * j->cut.items_per_piece, last = first + j->cut.items_per_piece;
    double sum = 0, total = 0;
    for (int64_t k = first; k < last && k < j->cut.items; k++) {
        item at = item_at(&j->cut, k);
        for (int64_t i = 0; i < at.n; i++) {
            int64_t class = class_of(j, at.first + i);
            double weight = class < 0 ? 0 : j->weight ? j->weight[class] : 1;
            double loss = class < 0 ? 0 : -weight * j->x[at.at + class * j->cut.s.inner + i];
            sum += loss;
            total += weight;
            if (j->reduction == GD_NONE) j->y[at.first + i] = (float)loss;
        }
    }
    j->sums[piece].loss = sum;
    j->sums[piece].weight = total;
}

/*kernel nll_loss.threaded  rank 10  contiguous
 * f32. (Halves go the plain way: to convert all logits would cost more than it saves.)
 */
static bool nll_loss_threaded_match(const gd_kernel_call *k) {
    return k->in[0].dtype == GD_F32 && is_f32(k, 2) && takes(&k->in[0]);
}
static size_t nll_loss_threaded_workspace(const gd_kernel_call *k) { return sums_bytes(&k->in[0]); }
static gd_status nll_loss_threaded_run(gd_kernel_call *k) {
    const gd_nll_loss_options *o = k->attrs;
    job j = prepare(&k->in[0], &k->in[1], gd_optional_view(k, 2), o->reduction, o->ignore_index);
    j.x = k->in[0].data;
    j.y = k->out[0].data;
    j.sums = k->workspace;
    gd_parallel_for(j.cut.pieces, nll_piece, &j);
    return finish(&j, k->out[1].data);
}

static void nll_grad_piece(void *arg, int64_t piece) {
    job *j = arg;
    const gd_class_shape *s = &j->cut.s;
    int64_t first = piece * j->cut.items_per_piece, last = first + j->cut.items_per_piece;
    for (int64_t k = first; k < last && k < j->cut.items; k++) {
        item at = item_at(&j->cut, k);
        float *gx = j->gx + at.at;
        if (s->inner == 1) memset(gx, 0, (size_t)s->classes * sizeof *gx);
        else
            for (int64_t c = 0; c < s->classes; c++)
                memset(gx + c * s->inner, 0, (size_t)at.n * sizeof *gx);
        for (int64_t i = 0; i < at.n; i++) {
            int64_t class = class_of(j, at.first + i);
            if (class < 0) continue;
            double g = j->share * j->gy[j->reduction == GD_NONE ? at.first + i : 0];
            gx[class * s->inner + i] = (float)(-g * (j->weight ? j->weight[class] : 1));
        }
    }
}

/*kernel nll_loss_grad.threaded  rank 10  contiguous
 * f32.
 */
static bool nll_loss_grad_threaded_match(const gd_kernel_call *k) {
    return k->in[0].dtype == GD_F32 && is_f32(k, 3) && takes(&k->out[0]);
}
static gd_status nll_loss_grad_threaded_run(gd_kernel_call *k) {
    const gd_nll_loss_grad_options *o = k->attrs;
    job j = prepare(&k->out[0], &k->in[1], gd_optional_view(k, 3), o->reduction, o->ignore_index);
    j.gy = k->in[0].data;
    j.gx = k->out[0].data;
    if (o->reduction == GD_MEAN) j.share = 1 / gd_load_f64(k->in[2].dtype, k->in[2].data);
    gd_parallel_for(j.cut.pieces, nll_grad_piece, &j);
    return outcome(&j);
}

#include "loss_kernels.gen.h"
