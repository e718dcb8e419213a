/* recurrent.c - one direction of a recurrent layer over all steps, and its gradient.
 *
 * Each is one kernel, whose blocks stay for all steps. A block takes all shared memory of a
 * multiprocessor and there are at most as many blocks as multiprocessors, so all of them run at the
 * same time.
 */
#include "backend/cuda/kernels/recurrent.h"

#include <stdint.h>

#include "backend/cuda/kernels.h"
#include "gradus/ops.h"

enum { F64, F32, F16, BF16, DTYPES };

static int number_of(gd_dtype dtype) {
    return dtype == GD_F64 ? F64 : dtype == GD_F32 ? F32 : dtype == GD_F16 ? F16 : BF16;
}

#define KERNELS(name)                                                                       \
    {                                                                                       \
        [F64] = GD_CUDA_KERNEL_SHARED("recurrent", name "f64", GD_CUDA_RECURRENT_SHARED),   \
        [F32] = GD_CUDA_KERNEL_SHARED("recurrent", name "f32", GD_CUDA_RECURRENT_SHARED),   \
        [F16] = GD_CUDA_KERNEL_SHARED("recurrent", name "f16", GD_CUDA_RECURRENT_SHARED),   \
        [BF16] = GD_CUDA_KERNEL_SHARED("recurrent", name "bf16", GD_CUDA_RECURRENT_SHARED), \
    }
static gd_cuda_kernel forward_kernels[DTYPES] = KERNELS("gd_recurrent_");
static gd_cuda_kernel backward_kernels[DTYPES] = KERNELS("gd_recurrent_grad_");

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

/* A device with few multiprocessors runs one block, which needs no other. */
static int64_t max_blocks(const gd_device *d) {
    enum { MIN_PROCESSORS = 8 };
    const int processors = gd_cuda_state_of(d)->processors;
    return processors < MIN_PROCESSORS ? 1 : processors;
}

/* Tiles, and offsets into the workspace. */
typedef struct work_layout {
    int64_t unit_tiles, batch_tiles, padded;
    bool packs; /* weights are packed in the workspace: they do not fit into shared memory */
    size_t exchange, state, carry, packed, counters, bytes;
} work_layout;

/* Weights of `depth` times `columns` for each tile, which covers `units` units and `batch`
 * sequences; `exchanged` numbers of each sequence are exchanged in a step. */
static work_layout layout_work(const gd_device *d, const gd_view *x, int64_t hidden, int64_t depth,
                               int64_t columns, int64_t units, int64_t batch, int64_t exchanged) {
    const size_t size = x->dtype == GD_F64 ? 8 : 4;
    const size_t cells = (size_t)(x->dims[1] * hidden) * size;
    work_layout w = {.unit_tiles = tiles_of(hidden, units),
                     .batch_tiles = tiles_of(x->dims[1], batch)};
    const int64_t lanes = columns / 8 * (batch / 4), tiles = w.unit_tiles * w.batch_tiles,
                  slices = GD_CUDA_RECURRENT_THREADS / lanes,
                  partials = slices * columns * (batch + GD_CUDA_RECURRENT_PAD);
    w.padded = w.batch_tiles * batch;
    w.packs = tiles > max_blocks(d) ||
              (size_t)(partials + depth * columns) * size > GD_CUDA_RECURRENT_SHARED;
#define RESERVE(field, count) w.field = w.bytes, w.bytes += ((count) + 255) / 256 * 256
    RESERVE(counters, (size_t)w.batch_tiles * 128);
    RESERVE(exchange, 2 * (size_t)(exchanged * w.padded) * size);
    RESERVE(state, cells);
    RESERVE(carry, cells);
    RESERVE(packed, w.packs ? (size_t)(tiles * depth * columns) * size : 0);
#undef RESERVE
    return w;
}

static work_layout layout_forward(const gd_kernel_call *call) {
    const gd_view *x = &call->in[X];
    const gd_recurrent_options *o = call->attrs;
    const int64_t hidden = call->in[W_HH].dims[1];
    const int per_unit = o->cell == GD_LSTM || o->cell == GD_GRU ? 4 : 1;
    return layout_work(call->device, x, hidden, x->dims[2] + hidden, GD_CUDA_FORWARD_COLUMNS,
                       GD_CUDA_FORWARD_COLUMNS / per_unit, GD_CUDA_FORWARD_BATCH, hidden);
}
static work_layout layout_backward(const gd_kernel_call *call) {
    const gd_view *w_hh = &call->in[LAYER + W_HH];
    return layout_work(call->device, &call->in[LAYER + X], w_hh->dims[1], w_hh->dims[0],
                       GD_CUDA_BACKWARD_COLUMNS, GD_CUDA_BACKWARD_COLUMNS, GD_CUDA_BACKWARD_BATCH,
                       w_hh->dims[0]);
}
static size_t forward_bytes(const gd_kernel_call *call) { return layout_forward(call).bytes; }
static size_t backward_bytes(const gd_kernel_call *call) { return layout_backward(call).bytes; }

/* --- launches --------------------------------------------------------------------------------- */

static bool is_supported(const gd_view *x, int64_t hidden) {
    return gd_cuda_is_float(x->dtype) && x->dims[0] > 0 && x->dims[1] > 0 && hidden > 0 &&
           x->dims[0] < INT32_MAX / (hidden + 1);
}
static bool match_forward(const gd_kernel_call *call) {
    return is_supported(&call->in[X], call->in[W_HH].dims[1]);
}
static bool match_backward(const gd_kernel_call *call) {
    return is_supported(&call->in[LAYER + X], call->in[LAYER + W_HH].dims[1]);
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
        .counters = (unsigned *)(work + w->counters),
    };
}

static gd_status launch_recurrent(gd_kernel_call *call, gd_cuda_kernel *kernel,
                                  const gd_cuda_recurrent *p) {
    const gd_cuda_state *s = gd_cuda_state_of(call->device);
    const int64_t tiles = (int64_t)p->unit_tiles * p->batch_tiles, most = max_blocks(call->device);
    gd_status status = gd_cuda_enter_context(call->device);
    if (status != GD_OK) return status;
    GD_CUDA_TRY(call->device,
                cuMemsetD8Async((CUdeviceptr)(uintptr_t)p->counters, 0,
                                (size_t)p->batch_tiles * 128, s->streams[GD_QUEUE_COMPUTE]));
    return gd_cuda_launch(call->device, kernel, tiles < most ? tiles : most,
                          GD_CUDA_RECURRENT_THREADS, p);
}

/* The outputs are y, h, c, gates and cells. */
static gd_status run_forward(gd_kernel_call *call) {
    const gd_recurrent_options *o = call->attrs;
    const work_layout w = layout_forward(call);
    gd_cuda_recurrent p = recurrent_of(call, 0, o->cell, o->reverse, &w);
    p.y = call->out[0].data;
    p.h = call->out[1].data;
    p.c = call->out[2].data;
    p.gates = call->out[3].dims[2] > 0 ? call->out[3].data : NULL;
    p.cells = call->out[4].dims[2] > 0 ? call->out[4].data : NULL;
    return launch_recurrent(call, &forward_kernels[number_of(call->in[X].dtype)], &p);
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
    return launch_recurrent(call, &backward_kernels[number_of(call->in[LAYER + X].dtype)], &p);
}

GD_CUDA_ADD(recurrent_kernel, {.op = "recurrent",
                               .variant = "cuda",
                               .device = "cuda",
                               .rank = 10,
                               .flags = GD_KERNEL_CHECKED | GD_KERNEL_CONTIGUOUS,
                               .match = match_forward,
                               .workspace = forward_bytes,
                               .run = run_forward})
GD_CUDA_ADD(recurrent_grad_kernel, {.op = "recurrent_grad",
                                    .variant = "cuda",
                                    .device = "cuda",
                                    .rank = 10,
                                    .flags = GD_KERNEL_CHECKED | GD_KERNEL_CONTIGUOUS,
                                    .match = match_backward,
                                    .workspace = backward_bytes,
                                    .run = run_backward})
