/* recurrent.c - one direction of a recurrent layer over all steps, and its gradient.
 *
 * The input's part of all steps is one product (matmul_input_cublaslt.c). All steps, or all steps of the
 * gradient, are one cooperative kernel, whose blocks, one on each multiprocessor, stay for all steps.
 * Those of 16-bit and tf32 layers keep the weights in registers (recurrent_resident.cuh) if
 * all blocks together have enough; recurrent.cu computes the others.
 */
#include "ops/recurrent/cuda/recurrent_args.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "backend/cuda/kernels.h"
#include "ops/matmul/cuda/matmul_input_cublaslt.h"
#include "gradus/ops.h"

#define KERNELS(name) GD_CUDA_FLOAT_KERNELS("recurrent/recurrent", name, "", GD_CUDA_ALL_SHARED)
static gd_cuda_kernel forward_kernels[GD_CUDA_FLOATS] = KERNELS("gd_recurrent");
static gd_cuda_kernel backward_kernels[GD_CUDA_FLOATS] = KERNELS("gd_recurrent_grad");

/* With the weights in the registers of all blocks, on tensor cores. The numbers are those of m-tiles
 * and of words of a lane in each warp. */
enum { ROWS_4X4, ROWS_2X8, COLUMNS_2X8, COLUMNS_1X16, RESIDENTS };
#define RESIDENT(image, name)                                                 \
    GD_CUDA_KERNEL_SHARED("recurrent/recurrent_" image, "gd_recurrent_" name, \
                          GD_CUDA_RESIDENT_SHARED)
#define RESIDENTS_OF(dtype)                                                      \
    {                                                                            \
        [ROWS_4X4] = RESIDENT("resident", "resident_4x4_" dtype),                \
        [ROWS_2X8] = RESIDENT("resident", "resident_2x8_" dtype),                \
        [COLUMNS_2X8] = RESIDENT("resident_grad", "resident_grad_2x8_" dtype),   \
        [COLUMNS_1X16] = RESIDENT("resident_grad", "resident_grad_1x16_" dtype), \
    }
static gd_cuda_kernel resident_kernels[][RESIDENTS] = {RESIDENTS_OF("tf32"), RESIDENTS_OF("f16"),
                                                       RESIDENTS_OF("bf16")};

static gd_cuda_cell cell_of(gd_word cell) {
    return cell == GD_LSTM   ? GD_CUDA_CELL_LSTM
           : cell == GD_GRU  ? GD_CUDA_CELL_GRU
           : cell == GD_RELU ? GD_CUDA_CELL_RELU
                             : GD_CUDA_CELL_TANH;
}

/* The inputs of op recurrent, and those of op recurrent_grad before and after them. */
enum { X, H0, C0, LENGTHS, W_IH, W_HH, B_IH, B_HH, INPUTS };
enum { GY, GH, GC, LAYER, Y = LAYER + INPUTS, SAVED, CELLS };

static const void *input_data(const gd_kernel_call *call, int i) {
    return i < call->n_in ? call->in[i].data : NULL;
}

/* --- work of the blocks ----------------------------------------------------------------------- */

static int64_t tiles_of(int64_t size, int64_t tile) { return (size + tile - 1) / tile; }

/* Blocks that run at the same time: one on each multiprocessor. */
static int64_t max_blocks(const gd_device *d) { return gd_cuda_state_of(d)->processors; }

static size_t shared_bytes(const gd_device *d) { return (size_t)gd_cuda_state_of(d)->shared_bytes; }

/* How the work of a call is divided, and offsets into the workspace. */
typedef struct work_layout {
    gd_cuda_kernel *kernel;
    int threads;
    int64_t unit_tiles, batch_tiles, padded;
    bool packs; /* weights are packed in the workspace: they do not fit into shared memory */
    bool resident;
    int groups, sequence_groups, row_bytes, slots; /* of a resident kernel (recurrent_args.h) */
    size_t cleared;                                /* bytes at the start that are initialized */
    size_t exchange, state, carry, packed, bytes;
} work_layout;

/* The shape of the tiles of recurrent.cu. */
typedef struct tile_shape {
    int64_t units, batch;
    int64_t columns, depth; /* of the weights of a tile */
    size_t partials;        /* bytes of the partial sums in shared memory, before the weights */
    size_t exchanged;       /* elements that each sequence exchanges */
} tile_shape;

static size_t wide_size(const gd_view *x) { return x->dtype == GD_F64 ? 8 : 4; }

/* The bytes of a tile's partial sums: each slice of the depth has a thread for 8 x 4 of them. */
static size_t partial_bytes(const gd_view *x, int columns, int batch) {
    const int slices = GD_CUDA_RECURRENT_THREADS / (columns / 8 * (batch / 4));
    return wide_size(x) * (size_t)(slices * columns * (batch + GD_CUDA_RECURRENT_PAD));
}
static size_t forward_partials(const gd_view *x) {
    return partial_bytes(x, GD_CUDA_FORWARD_COLUMNS, GD_CUDA_FORWARD_BATCH);
}
static size_t backward_partials(const gd_view *x) {
    return partial_bytes(x, GD_CUDA_BACKWARD_COLUMNS, GD_CUDA_BACKWARD_BATCH);
}

/* Reserves a part of the workspace and returns its offset. */
static size_t reserve_bytes(work_layout *w, size_t bytes) {
    const size_t at = w->bytes;
    w->bytes += (bytes + 255) / 256 * 256;
    return at;
}

static void reserve_states(work_layout *w, const gd_view *x, int64_t hidden) {
    const size_t bytes = (size_t)(x->dims[1] * hidden) * wide_size(x);
    w->state = reserve_bytes(w, bytes);
    w->carry = reserve_bytes(w, bytes);
}

static work_layout layout_tiles(const gd_device *d, const gd_view *x, int64_t hidden,
                                const tile_shape *s, gd_cuda_kernel *kernels) {
    work_layout w = {.kernel = &kernels[gd_cuda_float_number(x->dtype)],
                     .threads = GD_CUDA_RECURRENT_THREADS,
                     .unit_tiles = tiles_of(hidden, s->units),
                     .batch_tiles = tiles_of(x->dims[1], s->batch)};
    const int64_t tiles = w.unit_tiles * w.batch_tiles;
    w.padded = w.batch_tiles * s->batch;
    w.packs = tiles > max_blocks(d) ||
              s->partials + (size_t)(s->depth * s->columns) * wide_size(x) > shared_bytes(d);
    reserve_bytes(&w, (size_t)w.batch_tiles * 128); /* counters */
    w.cleared = w.bytes;
    w.exchange = reserve_bytes(&w, 2 * s->exchanged * (size_t)w.padded * wide_size(x));
    reserve_states(&w, x, hidden);
    w.packed =
        reserve_bytes(&w, w.packs ? (size_t)(tiles * s->depth * s->columns) * wide_size(x) : 0);
    return w;
}

/* A layout of the resident kernels: the units of a block, and the most bytes of a row of the
 * exchange whose products have weights that fit into registers. */
typedef struct resident_shape {
    int kernel, units, groups, most_bytes;
} resident_shape;
static const resident_shape resident_rows[] = {{ROWS_4X4, 32, 2, 16 * GD_CUDA_RESIDENT_PAIR},
                                               {ROWS_4X4, 16, 1, 32 * GD_CUDA_RESIDENT_PAIR},
                                               {ROWS_2X8, 8, 1, 64 * GD_CUDA_RESIDENT_PAIR}};
static const resident_shape resident_columns[] = {
    {COLUMNS_2X8, 32, 1, 64 * GD_CUDA_RESIDENT_PAIR},
    {COLUMNS_1X16, 16, 1, 128 * GD_CUDA_RESIDENT_PAIR}};

/* Slots of the exchange. A thread waits for its stores after half of them, so many are better. 0: a
 * slot is too large for 32-bit offsets. */
static int slots_of(int64_t slot_bytes) {
    enum { MIN_SLOTS = 8, MAX_SLOTS = 32, ENOUGH_BYTES = 16 << 20 };
    int slots = MAX_SLOTS;
    while (slots > MIN_SLOTS && slots * slot_bytes > ENOUGH_BYTES) slots /= 2;
    return slots * slot_bytes < INT32_MAX ? slots : 0;
}

/* Resident kernels compute f16, bf16, and f32 if tf32 is allowed. `elements` are those that a unit
 * sends to other blocks. False: the weights do not fit, or the dtype has none. */
static bool layout_resident(const gd_kernel_call *call, const gd_view *x, int64_t hidden,
                            int elements, const resident_shape *shapes, int count, work_layout *w) {
    const int64_t most = max_blocks(call->device), size = (int64_t)gd_cuda_element_size(x->dtype);
    if (x->dtype == GD_F64 || (x->dtype == GD_F32 && !gd_cuda_tf32(call))) return false;
    for (int i = 0; i < count; i++) {
        const resident_shape *s = &shapes[i];
        const int64_t unit_tiles = tiles_of(hidden, s->units),
                      row_bytes = unit_tiles * s->units * elements * size,
                      parts = tiles_of(x->dims[1], 8); /* of the batch */
        if (row_bytes > s->most_bytes || unit_tiles > most) continue;
        const int64_t groups = tiles_of(parts, most / unit_tiles);
        *w = (work_layout){
            .kernel = &resident_kernels[gd_cuda_float_number(x->dtype) - GD_CUDA_IN_F32][s->kernel],
            .threads = GD_CUDA_RESIDENT_THREADS,
            .unit_tiles = unit_tiles,
            .batch_tiles = tiles_of(parts, groups),
            .resident = true,
            .groups = s->groups,
            .sequence_groups = (int)groups,
            .row_bytes = (int)row_bytes,
        };
        w->padded = w->batch_tiles * groups * 8;
        w->slots = slots_of(w->padded * row_bytes);
        if (w->slots == 0) return false;
        w->exchange = reserve_bytes(w, (size_t)(w->slots * w->padded * row_bytes));
        w->cleared = w->bytes;
        reserve_states(w, x, hidden);
        return true;
    }
    return false;
}

/* `inputs` is 0 if a product computes the input's part. */
static work_layout layout_forward(const gd_kernel_call *call, int64_t inputs) {
    const gd_view *x = &call->in[X];
    const gd_recurrent_options *o = call->attrs;
    const int64_t hidden = call->in[W_HH].dims[1];
    const int per_unit = o->cell == GD_LSTM || o->cell == GD_GRU ? 4 : 1;
    const tile_shape s = {.units = GD_CUDA_FORWARD_COLUMNS / per_unit,
                          .batch = GD_CUDA_FORWARD_BATCH,
                          .columns = GD_CUDA_FORWARD_COLUMNS,
                          .depth = inputs + hidden,
                          .partials = forward_partials(x),
                          .exchanged = (size_t)hidden};
    work_layout w;
    if (inputs == 0 && x->dims[2] > 0 && layout_resident(call, x, hidden, 1, resident_rows, 3, &w))
        return w;
    return layout_tiles(call->device, x, hidden, &s, forward_kernels);
}

static work_layout layout_backward(const gd_kernel_call *call) {
    const gd_view *x = &call->in[LAYER + X], *w_hh = &call->in[LAYER + W_HH];
    const int64_t hidden = w_hh->dims[1], depth = w_hh->dims[0];
    const tile_shape s = {.units = GD_CUDA_BACKWARD_COLUMNS,
                          .batch = GD_CUDA_BACKWARD_BATCH,
                          .columns = GD_CUDA_BACKWARD_COLUMNS,
                          .depth = depth,
                          .partials = backward_partials(x),
                          .exchanged = (size_t)depth};
    work_layout w;
    if (layout_resident(call, x, hidden, 4, resident_columns, 2, &w)) return w;
    return layout_tiles(call->device, x, hidden, &s, backward_kernels);
}
static size_t backward_bytes(const gd_kernel_call *call) { return layout_backward(call).bytes; }

/* --- launches --------------------------------------------------------------------------------- */

/* `partials`: bytes of shared memory that the kernels need at least. */
static bool is_supported(const gd_kernel_call *call, const gd_view *x, int64_t hidden,
                         size_t partials) {
    return x->dims[0] > 0 && x->dims[1] > 0 && hidden > 0 &&
           x->dims[0] < INT32_MAX / (hidden + 1) && partials <= shared_bytes(call->device);
}
static bool match_forward(const gd_kernel_call *call) {
    const gd_view *x = &call->in[X];
    return is_supported(call, x, call->in[W_HH].dims[1], forward_partials(x));
}
static bool match_backward(const gd_kernel_call *call) {
    const gd_view *x = &call->in[LAYER + X];
    return is_supported(call, x, call->in[LAYER + W_HH].dims[1], backward_partials(x));
}

static gd_cuda_recurrent recurrent_of(const gd_kernel_call *call, int first, gd_word cell,
                                      bool reverse, const work_layout *w) {
    const gd_view *x = &call->in[first + X], *w_hh = &call->in[first + W_HH];
    char *work = call->workspace;
    return (gd_cuda_recurrent){
        .call = gd_cuda_call_of(call),
        .cell = (int)cell_of(cell),
        .reverse = reverse,
        .dtype = (int)x->dtype,
        .steps = x->dims[0],
        .batch = x->dims[1],
        .inputs = x->dims[2],
        .hidden = w_hh->dims[1],
        .depth = w_hh->dims[0],
        .x = x->data,
        .h0 = input_data(call, first + H0),
        .c0 = input_data(call, first + C0),
        .lengths = input_data(call, first + LENGTHS),
        .w_ih = call->in[first + W_IH].data,
        .w_hh = w_hh->data,
        .b_ih = input_data(call, first + B_IH),
        .b_hh = input_data(call, first + B_HH),
        .unit_tiles = (int)w->unit_tiles,
        .batch_tiles = (int)w->batch_tiles,
        .padded = w->padded,
        .exchange = work + w->exchange,
        .state = work + w->state,
        .carry = work + w->carry,
        .packed = w->packs ? work + w->packed : NULL,
        .counters = (unsigned *)work,
        .groups = w->groups,
        .sequence_groups = w->sequence_groups,
        .row_bytes = w->row_bytes,
        .slots = w->slots,
    };
}

/* The workspace begins with the counters, 0, or with the exchange of a resident kernel, empty. */
static gd_status launch_recurrent(gd_kernel_call *call, const gd_cuda_recurrent *p,
                                  const work_layout *w) {
    const gd_cuda_state *s = gd_cuda_state_of(call->device);
    const int64_t tiles = w->unit_tiles * w->batch_tiles, most = max_blocks(call->device);
    GD_CUDA_TRY(call->device,
                cuMemsetD8Async((CUdeviceptr)(uintptr_t)call->workspace, w->resident ? 0xff : 0,
                                w->cleared, s->streams[GD_QUEUE_COMPUTE]));
    return gd_cuda_launch_together(call->device, w->kernel, tiles < most ? tiles : most, w->threads,
                                   p);
}

/* The product of the input, and its part of the workspace. */
typedef struct forward_plan {
    gd_input_product *product; /* NULL: the kernel computes the input's part */
    work_layout work;
    size_t sums, scratch, scratch_bytes; /* offsets of the product's result and workspace */
} forward_plan;

static gd_status prepare_forward(const gd_kernel_call *call, void **prepared, size_t *workspace) {
    const gd_view *x = &call->in[X], *w_ih = &call->in[W_IH];
    const int64_t rows = x->dims[0] * x->dims[1];
    forward_plan *plan = gd_cuda_host->allocate(sizeof *plan);
    if (!plan) return gd_cuda_host->fail(GD_E_MEMORY, "no memory to prepare a recurrent layer");
    memset(plan, 0, sizeof *plan);
    if (gd_input_product_new) /* the build has cuBLASLt's header */
        plan->product = gd_input_product_new(call, x->dtype, rows, w_ih->dims[0], x->dims[2],
                                             &plan->scratch_bytes);
    plan->work = layout_forward(call, plan->product ? 0 : x->dims[2]);
    *workspace = plan->work.bytes;
    if (plan->product) {
        plan->sums = *workspace;
        plan->scratch = plan->sums + (size_t)(rows * w_ih->dims[0]) * wide_size(x);
        plan->scratch = (plan->scratch + 255) / 256 * 256;
        *workspace = plan->scratch + plan->scratch_bytes;
    }
    *prepared = plan;
    return GD_OK;
}

static void release_forward(gd_device *d, void *prepared) {
    (void)d;
    forward_plan *plan = prepared;
    if (plan->product) gd_input_product_free(plan->product);
    gd_cuda_host->release(prepared);
}

/* The outputs are y, h, c, gates and cells. */
static gd_status run_forward(gd_kernel_call *call) {
    const gd_recurrent_options *o = call->attrs;
    const forward_plan *plan = call->prepared;
    gd_cuda_recurrent p = recurrent_of(call, 0, o->cell, o->reverse, &plan->work);
    p.y = call->out[0].data;
    p.h = call->out[1].data;
    p.c = call->out[2].data;
    p.gates = call->out[3].dims[2] > 0 ? call->out[3].data : NULL;
    p.cells = call->out[4].dims[2] > 0 ? call->out[4].data : NULL;
    gd_status status = gd_cuda_enter_context(call->device);
    if (plan->product && status == GD_OK) {
        char *work = call->workspace;
        p.input_sums = work + plan->sums;
        status = gd_input_product_queue(call, plan->product, p.x, p.w_ih, work + plan->sums,
                                        work + plan->scratch, plan->scratch_bytes);
    }
    if (status != GD_OK) return status;
    return launch_recurrent(call, &p, &plan->work);
}

/* The outputs are the gradients of the gates, of h0 and of c0. */
static gd_status run_backward(gd_kernel_call *call) {
    const gd_recurrent_grad_options *o = call->attrs;
    const work_layout w = layout_backward(call);
    gd_cuda_recurrent p = recurrent_of(call, LAYER, o->cell, o->reverse, &w);
    p.gy = call->in[GY].data;
    p.gh = call->in[GH].data;
    p.gc = call->in[GC].data;
    p.saved = call->in[SAVED].data;
    p.saved_y = call->in[Y].data;
    p.saved_c = call->in[CELLS].data;
    if (o->cell == GD_TANH && call->in[SAVED].dims[2] > 0) {
        p.saved_y = p.saved;
        p.wide_y = true;
    }
    p.gradients = call->out[0].data;
    p.parts = o->cell == GD_GRU || o->cell == GD_LSTM ? 4 : 1;
    p.gh0 = call->out[1].data;
    p.gc0 = call->out[2].data;
    gd_status status = gd_cuda_enter_context(call->device);
    if (status != GD_OK) return status;
    return launch_recurrent(call, &p, &w);
}

/* Where the weights are while all steps run. */
static const char *weights_text(const work_layout *w) {
    return w->resident ? "weights in registers"
           : w->packs  ? "weights in global memory"
                       : "weights in shared memory";
}
static void describe_forward(const gd_kernel_call *call, char *text, size_t size) {
    const forward_plan *plan = call->prepared;
    snprintf(text, size, "%s%s", weights_text(&plan->work),
             plan->product ? ", input by cuBLASLt" : "");
}
static void describe_backward(const gd_kernel_call *call, char *text, size_t size) {
    const work_layout w = layout_backward(call);
    snprintf(text, size, "%s", weights_text(&w));
}

/*kernel recurrent.steps  dtypes f16 bf16 f32 f64  checked  contiguous  run run_forward
 *        match match_forward  prepare prepare_forward  release release_forward
 *        describe describe_forward
 * All steps in one launch; blocks keep their weights, and exchange the hidden state after each
 * step.
 */
/*kernel recurrent_grad.steps  dtypes f16 bf16 f32 f64  checked  contiguous  run run_backward
 *        match match_backward  workspace backward_bytes  describe describe_backward
 * All steps from the last to the first in one launch, in the same way.
 */

#include "ops/recurrent/cuda/recurrent.gen.h"
