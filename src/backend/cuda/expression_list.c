/* expression_list.c - an elementwise op for each entry of a list of tensors (gd_each in
 * dispatch/call.h): the steps of optimizers.
 *
 * Entries whose tensors are contiguous and aligned are computed together. Their addresses are
 * arguments of the kernel, about 60 entries of Adam in one launch. The others are single calls.
 */
#include <string.h>

#include "backend/cuda/expression.h"

/* Entry i has the inputs in[i * width], ..., then the scalars, and the outputs
 * out[i * written], .... */
typedef struct list_call {
    const gd_kernel_call *call;
    gd_cuda_op *x;
    const gd_view *scalars; /* rank 0, or rank 1 with one element for each entry */
    int width, n_scalars, written;
} list_call;

static list_call list_call_of(const gd_kernel_call *call, gd_cuda_op *x) {
    /* n_in = each * width + n_scalars, the op has width + n_scalars inputs, and each > 1. */
    const int inputs = x->expression.n_tensors, width = (call->n_in - inputs) / (call->each - 1);
    return (list_call){.call = call,
                       .x = x,
                       .scalars = call->in + call->each * width,
                       .width = width,
                       .n_scalars = inputs - width,
                       .written = call->n_out / call->each};
}

static bool match_list(const gd_kernel_call *call) {
    const gd_cuda_op *x = gd_cuda_op_of(call->op);
    return call->each > 1 && x && call->n_out / call->each == x->n_outputs &&
           x->expression.n_tensors <= GD_CUDA_OPERANDS && gd_cuda_is_built(x, call);
}

/* --- single entries --------------------------------------------------------------------------- */

static gd_status run_entry(const list_call *l, int i) {
    gd_view views[GD_CUDA_OPERANDS];
    gd_kernel_call one = *l->call;
    gd_cuda_arguments a;
    memcpy(views, l->call->in + i * l->width, (size_t)l->width * sizeof *views);
    for (int k = 0; k < l->n_scalars; k++) {
        gd_view *v = &views[l->width + k];
        *v = l->scalars[k];
        if (v->rank == 1)
            v->data = (char *)v->data + i * v->strides[0] * (int64_t)gd_cuda_element_size(v->dtype);
        v->rank = 0;
    }
    one.each = 0;
    one.in = views;
    one.n_in = l->width + l->n_scalars;
    one.out = l->call->out + i * l->written;
    one.n_out = l->written;
    gd_cuda_fill_arguments(&one, l->x, true, &a);
    return a.variant == GD_CUDA_VECTORS
               ? gd_cuda_launch(one.device, &l->x->vectors, a.blocks, GD_CUDA_EXPRESSION_THREADS,
                                &a.vectors)
               : gd_cuda_launch(one.device, &l->x->elements[gd_cuda_type_index(a.type)], a.blocks,
                                GD_CUDA_EXPRESSION_THREADS, &a.elements);
}

/* --- batches ---------------------------------------------------------------------------------- */

/* A launch that is being filled. */
typedef struct list_batch {
    struct {
        gd_cuda_list_head head;
        uint64_t words[GD_CUDA_LIST_WORDS];
    } arguments;
    int fixed_words, entry_words;
    int64_t blocks;
} list_batch;

static bool same_contiguous(const gd_view *v, const gd_view *first) {
    if (v->rank != first->rank || !v->data || ((uintptr_t)v->data & 15) ||
        !gd_cuda_is_vector_dtype(v->dtype) || !gd_cuda_is_contiguous(v))
        return false;
    for (int d = 0; d < v->rank; d++)
        if (v->dims[d] != first->dims[d]) return false;
    return true;
}

/* The dtypes of an entry's operands, as the kernel takes them; 0: it is a single call. */
static unsigned long long batch_dtypes(const list_call *l, int i) {
    const gd_view *in = l->call->in + i * l->width, *out = l->call->out + i * l->written;
    unsigned long long dtypes = 0;
    for (int k = 0; k < l->width; k++) {
        if (!same_contiguous(&in[k], &in[0])) return 0;
        dtypes |= (unsigned long long)in[k].dtype << 4 * k;
    }
    for (int k = l->width; k < l->x->n_vars; k++)
        dtypes |= (unsigned long long)l->scalars[k - l->width].dtype << 4 * k;
    for (int k = 0; k < l->written; k++) {
        if (!same_contiguous(&out[k], &in[0])) return 0;
        dtypes |= (unsigned long long)out[k].dtype << 4 * (l->x->n_vars + k);
    }
    return dtypes;
}

static void begin_batch(const list_call *l, list_batch *b) {
    const gd_kernel_call *call = l->call;
    gd_param params[GD_SCALAR_PARAMS];
    uint64_t *w = b->arguments.words;
    b->arguments.head =
        (gd_cuda_list_head){.word = gd_cuda_state_of(call->device)->word, .width = l->width};
    b->blocks = 0;
    b->entry_words = 2 + l->width + l->written;
    gd_cuda_host->codegen->params_of_call(call, GD_F32, params);
    memcpy(w, params, (size_t)l->x->n_params * sizeof *w);
    w += l->x->n_params;
    for (int k = 0; k < l->x->n_vars - l->width; k++) {
        *w++ = (uint64_t)(uintptr_t)l->scalars[k].data;
        *w++ = l->scalars[k].rank == 1 ? (uint64_t)l->scalars[k].strides[0] : 0;
    }
    b->fixed_words = (int)(w - b->arguments.words);
}

static gd_status launch_batch(const list_call *l, list_batch *b) {
    gd_status status = gd_cuda_launch(l->call->device, &l->x->list, b->blocks,
                                      GD_CUDA_EXPRESSION_THREADS, &b->arguments);
    b->arguments.head.count = 0;
    b->blocks = 0;
    return status;
}

/* The last chunk has the elements after the last vector, too. */
static int64_t count_chunks(int64_t count) {
    const int64_t chunks =
        (count - count % GD_CUDA_VECTOR + GD_CUDA_LIST_CHUNK - 1) / GD_CUDA_LIST_CHUNK;
    return chunks > 0 ? chunks : 1;
}

static gd_status add_entry(const list_call *l, list_batch *b, int i, unsigned long long dtypes) {
    gd_cuda_list_head *h = &b->arguments.head;
    const gd_view *in = l->call->in + i * l->width, *out = l->call->out + i * l->written;
    const int64_t count = gd_cuda_count(&in[0]), chunks = count_chunks(count);
    const bool fits = b->fixed_words + (h->count + 1) * b->entry_words <= GD_CUDA_LIST_WORDS &&
                      b->blocks + chunks <= INT32_MAX;
    if (h->count > 0 && !fits) {
        gd_status status = launch_batch(l, b);
        if (status != GD_OK) return status;
    }
    if (count == 0) return GD_OK;
    uint64_t *w = b->arguments.words + b->fixed_words + h->count++ * b->entry_words;
    h->dtypes = dtypes;
    *w++ = (uint64_t)b->blocks | (uint64_t)i << 32;
    *w++ = (uint64_t)count;
    for (int k = 0; k < l->width; k++) *w++ = (uint64_t)(uintptr_t)in[k].data;
    for (int k = 0; k < l->written; k++) *w++ = (uint64_t)(uintptr_t)out[k].data;
    b->blocks += chunks;
    return GD_OK;
}

/* Queues the entries whose operands have these dtypes. */
static gd_status run_batches(const list_call *l, list_batch *b, int first,
                             unsigned long long dtypes) {
    gd_status status = GD_OK;
    for (int i = first; i < l->call->each && status == GD_OK; i++)
        if (batch_dtypes(l, i) == dtypes) status = add_entry(l, b, i, dtypes);
    return status == GD_OK && b->arguments.head.count > 0 ? launch_batch(l, b) : status;
}

/* Gradients may have several dtypes: the entries with the dtypes of entry i are computed when i is
 * the first of them. */
static bool is_first_of_dtypes(const list_call *l, int i, unsigned long long dtypes) {
    for (int k = 0; k < i; k++)
        if (batch_dtypes(l, k) == dtypes) return false;
    return true;
}

static gd_status run_list(gd_kernel_call *call) {
    gd_cuda_op *x = gd_cuda_op_of(call->op);
    const list_call l = list_call_of(call, x);
    const bool batches = x->built->has_list && l.width <= x->n_vars &&
                         gd_cuda_host->codegen->compute_dtype(call) == GD_F32;
    gd_status status = GD_OK;
    list_batch b;
    begin_batch(&l, &b);
    unsigned long long latest = 0; /* computed last: mostly those of the next entry, too */
    for (int i = 0; i < call->each && status == GD_OK; i++) {
        const unsigned long long dtypes = batches ? batch_dtypes(&l, i) : 0;
        if (dtypes == 0) status = run_entry(&l, i);
        else if (dtypes != latest && is_first_of_dtypes(&l, i, dtypes))
            status = run_batches(&l, &b, i, latest = dtypes);
    }
    return status;
}

/*kernel elementwise_list.built  rank 10  checked  run run_list  match match_list
 * An op for the entries of a list, about 60 in one launch, as the steps of optimizers.
 */

#include "backend/cuda/expression_list.gen.h"
