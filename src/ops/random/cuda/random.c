/* random.c - random numbers: keys, distributions, dropout and multinomial. */
#include "ops/random/cuda/random_args.h"

#include "backend/cuda/kernels.h"
#include "gradus/ops.h"
#include "ops/random/random_uniform.h"

static gd_cuda_kernel random_key = GD_CUDA_KERNEL("random/random", "gd_draw_key"),
                      random_words = GD_CUDA_KERNEL("random/random", "gd_draw_words"),
                      random_mask = GD_CUDA_KERNEL("random/random", "gd_draw_mask"),
                      random_normal = GD_CUDA_KERNEL("random/random", "gd_draw_normal"),
                      random_uniform = GD_CUDA_KERNEL("random/random", "gd_draw_uniform"),
                      random_integers = GD_CUDA_KERNEL("random/random", "gd_draw_integers"),
                      check_probabilities = GD_CUDA_KERNEL("random/random", "gd_draw_check"),
                      random_bernoulli = GD_CUDA_KERNEL("random/random", "gd_draw_bernoulli"),
                      random_dropout = GD_CUDA_KERNEL("random/random", "gd_draw_dropout"),
                      multinomial_sums = GD_CUDA_KERNEL("random/random", "gd_multinomial_sums"),
                      multinomial_draw = GD_CUDA_KERNEL("random/random", "gd_multinomial_draw"),
                      multinomial_arrivals =
                          GD_CUDA_KERNEL("random/random", "gd_multinomial_arrivals"),
                      multinomial_select = GD_CUDA_KERNEL("random/random", "gd_multinomial_select"),
                      multinomial_rank = GD_CUDA_KERNEL("random/random", "gd_multinomial_rank");

static gd_cuda_rng rng_of_call(const gd_kernel_call *call) {
    return (gd_cuda_rng){
        .seed = call->rng.seed, .call = call->rng.call, .rng_offset = call->rng_offset};
}

static gd_cuda_rng rng_of_key(const gd_view *key) {
    return (gd_cuda_rng){.key = key->data, .key_stride = key->strides[0]};
}

/* A contiguous view gets rank 1. */
static gd_cuda_view flat_view_of(const gd_view *v) {
    gd_cuda_view view = gd_cuda_view_of(v);
    if (!gd_cuda_is_contiguous(v)) return view;
    view.rank = 1;
    view.dims[0] = view.count;
    view.strides[0] = 1;
    return view;
}

static gd_cuda_draw draw_of(const gd_kernel_call *call, gd_cuda_rng rng) {
    return (gd_cuda_draw){
        .call = gd_cuda_call_of(call), .rng = rng, .y = flat_view_of(&call->out[0])};
}

/* A thread computes two or four elements. */
static gd_status queue_draw(const gd_kernel_call *call, gd_cuda_kernel *kernel,
                            const gd_cuda_draw *p) {
    return gd_cuda_launch_each(call->device, kernel, (p->y.count + 1) / 2, p);
}

/* --- keys ------------------------------------------------------------------------------------- */

static gd_status run_random_key(gd_kernel_call *call) {
    gd_cuda_draw p = draw_of(call, rng_of_call(call));
    return queue_draw(call, &random_key, &p);
}

static gd_status run_key_words(gd_kernel_call *call) {
    const gd_cuda_draw p = draw_of(call, rng_of_key(&call->in[0]));
    return queue_draw(call, &random_words, &p);
}

static gd_status run_key_normals(gd_kernel_call *call) {
    gd_cuda_draw p = draw_of(call, rng_of_key(&call->in[0]));
    p.std = 1;
    return queue_draw(call, &random_normal, &p);
}

static gd_status run_key_mask(gd_kernel_call *call) {
    const gd_key_mask_options *o = call->attrs;
    gd_cuda_draw p = draw_of(call, rng_of_key(&call->in[0]));
    p.limit = gd_chance_limit(o->p);
    return queue_draw(call, &random_mask, &p);
}

/* --- distributions ---------------------------------------------------------------------------- */

static gd_status queue_uniform(const gd_kernel_call *call, double low, double high) {
    const gd_uniform_params u = gd_uniform_prepare(call->out[0].dtype, low, high);
    gd_cuda_draw p = draw_of(call, rng_of_call(call));
    p.low = u.low;
    p.range = u.range;
    p.below = u.below;
    p.shift = u.shift;
    p.unit = u.unit;
    return queue_draw(call, &random_uniform, &p);
}

static gd_status run_uniform(gd_kernel_call *call) {
    const gd_uniform_options *o = call->attrs;
    return queue_uniform(call, o->low, o->high);
}

static gd_status run_rand_like(gd_kernel_call *call) { return queue_uniform(call, 0, 1); }

static gd_status queue_normal(const gd_kernel_call *call, double mean, double std) {
    gd_cuda_draw p = draw_of(call, rng_of_call(call));
    p.mean = mean;
    p.std = std;
    return queue_draw(call, &random_normal, &p);
}

static gd_status run_normal(gd_kernel_call *call) {
    const gd_normal_options *o = call->attrs;
    return queue_normal(call, o->mean, o->std);
}

static gd_status run_randn_like(gd_kernel_call *call) { return queue_normal(call, 0, 1); }

static gd_status run_randint(gd_kernel_call *call) {
    const gd_randint_options *o = call->attrs;
    gd_cuda_draw p = draw_of(call, rng_of_call(call));
    p.first = (unsigned long long)o->low;
    p.span = (unsigned long long)o->high - (unsigned long long)o->low;
    return queue_draw(call, &random_integers, &p);
}

/* A tensor that existed before the call must not change if a probability is bad, so all are checked
 * before it is written. */
static gd_status run_bernoulli(gd_kernel_call *call) {
    gd_cuda_draw p = draw_of(call, rng_of_call(call));
    p.x = flat_view_of(&call->in[0]);
    if (call->overwrites) {
        const gd_status status =
            gd_cuda_launch_each(call->device, &check_probabilities, p.x.count, &p);
        if (status != GD_OK) return status;
    }
    return queue_draw(call, &random_bernoulli, &p);
}

static gd_status run_dropout_train(gd_kernel_call *call) {
    const gd_dropout_train_options *o = call->attrs;
    gd_cuda_draw p = draw_of(call, rng_of_call(call));
    p.x = flat_view_of(&call->in[0]);
    p.mask = flat_view_of(&call->out[1]);
    p.limit = gd_chance_limit(1 - o->p);
    p.scale = o->p < 1 ? 1 / (1 - o->p) : 0;
    return queue_draw(call, &random_dropout, &p);
}

/* --- multinomial ------------------------------------------------------------------------------ */

enum {
    FEW_DRAWS = 32,     /* without replacement: up to here they are found one after the other */
    MAX_ROWS = 1 << 16, /* blocks loop over the rest */
};

/* A tensor of rank 1 becomes one row. */
static gd_cuda_view rows_of(const gd_view *v) {
    gd_cuda_view view = gd_cuda_view_of(v);
    if (v->rank == 2) return view;
    view.rank = 2;
    view.dims[1] = view.dims[0];
    view.strides[1] = view.strides[0];
    view.dims[0] = 1;
    view.strides[0] = 0;
    return view;
}

static size_t multinomial_workspace(const gd_kernel_call *call) {
    return (size_t)gd_cuda_count(&call->in[0]) * sizeof(double);
}

static gd_status draw_classes(gd_kernel_call *call, gd_cuda_rng rng, int64_t draws,
                              bool replacement) {
    gd_device *d = call->device;
    gd_cuda_multinomial p = {.call = gd_cuda_call_of(call),
                             .rng = rng,
                             .weights = rows_of(&call->in[0]),
                             .y = rows_of(&call->out[0]),
                             .draws = draws,
                             .replacement = replacement,
                             .sums = call->workspace,
                             .arrivals = call->workspace};
    p.rows = p.weights.dims[0];
    p.classes = p.weights.dims[1];
    const long long blocks = p.rows < MAX_ROWS ? p.rows : MAX_ROWS;
    gd_status status = gd_cuda_launch(d, &multinomial_sums, blocks, GD_CUDA_ROW_THREADS, &p);
    if (status != GD_OK) return status;
    if (replacement) return gd_cuda_launch_each(d, &multinomial_draw, p.rows * p.draws, &p);
    status = gd_cuda_launch_each(d, &multinomial_arrivals, p.rows * p.classes, &p);
    if (status != GD_OK) return status;
    if (p.draws <= FEW_DRAWS)
        return gd_cuda_launch(d, &multinomial_select, blocks, GD_CUDA_ROW_THREADS, &p);
    return gd_cuda_launch_each(d, &multinomial_rank, p.rows * p.classes, &p);
}

static gd_status run_multinomial(gd_kernel_call *call) {
    const gd_multinomial_options *o = call->attrs;
    return draw_classes(call, rng_of_call(call), o->n, o->replacement);
}

static gd_status run_key_multinomial(gd_kernel_call *call) {
    const gd_key_multinomial_options *o = call->attrs;
    return draw_classes(call, rng_of_key(&call->in[1]), o->n, o->replacement);
}

/*kernel random_key.elements, key_words.elements, key_normals.elements, key_mask.elements,
 *        uniform.elements, rand_like.elements, normal.elements, randn_like.elements,
 *        randint.elements, bernoulli.elements, dropout_train.elements  checked  run run_OP
 * A thread computes a block of four random words and the elements that use them.
 */
/*kernel multinomial.elements, key_multinomial.elements  checked  run run_OP
 *        workspace multinomial_workspace
 * Draws from the running sums of each row.
 */

#include "ops/random/cuda/random.gen.h"
