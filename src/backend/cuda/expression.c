/* expression.c - see expression.h. */
#include "backend/cuda/expression.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

/* --- ops -------------------------------------------------------------------------------------- */

enum { BUCKETS = 2048 };
static _Atomic(gd_cuda_op *) buckets[BUCKETS];
static pthread_mutex_t ops_lock = PTHREAD_MUTEX_INITIALIZER; /* of additions */

static const gd_cuda_expression *find_built(uint64_t hash) {
    int low = 0, high = gd_cuda_expression_count;
    while (low < high) {
        const int middle = (low + high) / 2;
        if (gd_cuda_expressions[middle].hash < hash) low = middle + 1;
        else high = middle;
    }
    return low < gd_cuda_expression_count && gd_cuda_expressions[low].hash == hash
               ? &gd_cuda_expressions[low]
               : NULL;
}

static void name_kernel(gd_cuda_op *x, int number, char variant, const char *type,
                        gd_cuda_kernel *kernel) {
    snprintf(x->names[number], GD_CUDA_NAME, "gd_%c_%016llx_%s", variant,
             (unsigned long long)x->expression.hash, type);
    kernel->image = x->image;
    kernel->name = x->names[number];
}

static void name_kernels(gd_cuda_op *x) {
    static const char *const types[GD_CUDA_TYPES] = {"f32", "f64", "i32", "i64"};
    snprintf(x->image, sizeof x->image, "expression_%d", x->built->shard);
    name_kernel(x, 0, 'v', "f32", &x->vectors);
    name_kernel(x, 1, 'l', "f32", &x->list);
    for (int t = 0; t < GD_CUDA_TYPES; t++) name_kernel(x, 2 + t, 'e', types[t], &x->elements[t]);
    x->n_vars = x->built->n_vars;
    x->n_params = x->built->n_params;
    x->unroll = x->built->unroll;
}

static gd_cuda_op *make_op(const gd_op *op) {
    gd_op_expression e;
    if (!gd_cuda_host->codegen->expression_of_op(op, &e) ||
        e.ir->n_vars + e.ir->n_outputs > GD_CUDA_OPERANDS || e.ir->n_params > GD_SCALAR_PARAMS)
        return NULL;
    gd_cuda_op *x = gd_cuda_host->allocate(sizeof *x);
    if (!x) return NULL;
    memset(x, 0, sizeof *x);
    x->op = op;
    x->expression = e;
    for (int i = 0; i < e.ir->count; i++)
        if (e.ir->nodes[i].code == GD_IR_VAR) x->used |= 1u << e.ir->nodes[i].arg[0];
    x->n_vars = e.ir->n_vars;
    x->n_params = e.ir->n_params;
    x->n_outputs = e.ir->n_outputs;
    x->unroll = gd_cuda_host->codegen->cuda_unroll(e.ir);
    /* the nibbles of the dtypes of all operands are one word */
    x->built = !e.is_fused && x->n_vars + x->n_outputs <= 16 ? find_built(e.hash) : NULL;
    if (x->built) name_kernels(x);
    return x;
}

static gd_cuda_op *find_op(gd_cuda_op *first, const gd_op *op) {
    while (first && first->op != op) first = first->next;
    return first;
}

/* Not inlined: gd_cuda_op_of, which every call uses, stays short. */
__attribute__((noinline)) static gd_cuda_op *add_op(_Atomic(gd_cuda_op *) *bucket,
                                                    const gd_op *op) {
    pthread_mutex_lock(&ops_lock);
    gd_cuda_op *first = atomic_load(bucket), *x = find_op(first, op);
    if (!x && (x = make_op(op))) {
        x->next = first;
        atomic_store_explicit(bucket, x, memory_order_release);
    }
    pthread_mutex_unlock(&ops_lock);
    return x;
}

/* Ops live until the program ends, and so do their records. */
gd_cuda_op *gd_cuda_op_of(const gd_op *op) {
    _Atomic(gd_cuda_op *) *bucket = &buckets[((uintptr_t)op >> 4 ^ (uintptr_t)op >> 15) % BUCKETS];
    gd_cuda_op *x = find_op(atomic_load_explicit(bucket, memory_order_acquire), op);
    return __builtin_expect(x != NULL, 1) ? x : add_op(bucket, op);
}

/* --- operands --------------------------------------------------------------------------------- */

typedef struct operand_list {
    int n, n_in, skipped;
    const gd_kernel_call *call;
} operand_list;

/* Operand k: a variable of the expression, or an output that the kernel computes. */
static inline const gd_view *operand_at(const operand_list *o, int k) {
    return k < o->n_in ? &o->call->in[k] : &o->call->out[o->skipped + k - o->n_in];
}

static inline bool has_one_element(const gd_view *v) {
    for (int i = 0; i < v->rank; i++)
        if (v->dims[i] != 1) return false;
    return true;
}

static inline bool is_unused(const gd_cuda_op *x, const operand_list *o, int k) {
    return k < o->n_in && !(x->used >> k & 1);
}

/* Vectors of 4 elements must be aligned. */
static inline bool is_aligned(const gd_view *v) {
    return ((uintptr_t)v->data & 15) == 0 ||
           ((uintptr_t)v->data & (GD_CUDA_VECTOR * gd_cuda_element_size(v->dtype) - 1) & 15) == 0;
}

static void set_params(const gd_kernel_call *call, const gd_cuda_op *x, gd_dtype type,
                       uint64_t *words) {
    if (x->n_params == 0) return;
    gd_param params[GD_SCALAR_PARAMS];
    gd_cuda_host->codegen->params_of_call(call, type, params);
    const int scalars = x->expression.n_scalars;
    for (int i = 0; i < x->n_params; i++)
        if (i < scalars) words[i] = (uint64_t)(uintptr_t)call->in[x->expression.n_tensors + i].data;
        else memcpy(&words[i], &params[i], sizeof words[i]);
}

static void set_vector_blocks(const gd_cuda_op *x, gd_cuda_arguments *a) {
    const long long each = (long long)GD_CUDA_EXPRESSION_THREADS * x->unroll,
                    vectors = a->vectors.head.count / GD_CUDA_VECTOR;
    a->variant = GD_CUDA_VECTORS;
    a->blocks = vectors <= each ? 1 : (vectors + each - 1) / each; /* a division is slow */
}

/* --- contiguous operands ---------------------------------------------------------------------- */

static inline bool has_layout(const gd_view *v, int rank, const int64_t *dims,
                              const int64_t *strides) {
    if (v->rank != rank || !v->data) return false;
    for (int i = 0; i < rank; i++)
        if (v->dims[i] != dims[i] || (v->strides[i] != strides[i] && dims[i] != 1)) return false;
    return true;
}

/* Fills the arguments if all operands are contiguous with the shape of the call, or have one
 * element. False: they are not, or the call is empty. */
static inline bool fill_contiguous(const gd_cuda_op *x, const operand_list *o, bool any_dtypes,
                                   int rank, const int64_t *dims, gd_cuda_arguments *a) {
    unsigned long long dtypes = 0;
    unsigned broadcast = 0;
    uint64_t *words = a->vectors.words, *strides_of = words + o->n + x->n_params;
    int64_t strides[GD_MAX_RANK], count = 1;
    for (int i = rank; i-- > 0; count *= dims[i]) strides[i] = count;
    if (count == 0) return false;
    const gd_view *v = o->call->in;
    for (int k = 0; k < o->n; k++, v++) {
        if (k == o->n_in) v = &o->call->out[o->skipped];
        if (has_layout(v, rank, dims, strides)) {
            if (!is_aligned(v) || (any_dtypes && !gd_cuda_is_vector_dtype(v->dtype))) return false;
        } else if ((k < o->n_in && has_one_element(v)) || !v->data || is_unused(x, o, k))
            broadcast |= 1u << k;
        else return false;
        dtypes |= (unsigned long long)v->dtype << 4 * (k & 15);
        words[k] = (uint64_t)(uintptr_t)v->data;
        strides_of[k] = 0;
    }
    a->vectors.head = (gd_cuda_vector_head){.word = gd_cuda_state_of(o->call->device)->word,
                                            .count = count,
                                            .dtypes = dtypes,
                                            .broadcast = broadcast};
    set_vector_blocks(x, a);
    return true;
}

/* --- any strides ------------------------------------------------------------------------------ */

/* The call's shape, ordered by the strides of the first output and with merged dimensions. */
typedef struct call_shape {
    int rank;
    int64_t count, dims[GD_MAX_RANK], strides[GD_CUDA_OPERANDS][GD_MAX_RANK];
} call_shape;

static int64_t stride_of(const gd_view *v, int rank, int dim) {
    const int d = dim - (rank - v->rank);
    return d < 0 || v->dims[d] == 1 || !v->data ? 0 : v->strides[d];
}

/* Orders the dimensions by decreasing strides of an output, so that transposed operands of the same
 * layout are contiguous. */
static void order_dims(const gd_view *out, int rank, int *order) {
    for (int i = 0; i < rank; i++) {
        int at = i;
        const int64_t stride = stride_of(out, rank, i);
        for (; at > 0 && stride > stride_of(out, rank, order[at - 1]); at--)
            order[at] = order[at - 1];
        order[at] = i;
    }
}

static void merge_dims(const gd_cuda_op *x, const operand_list *o, int rank, const int64_t *dims,
                       call_shape *s) {
    int order[GD_MAX_RANK];
    order_dims(operand_at(o, o->n_in), rank, order);
    s->rank = 0;
    s->count = 1;
    for (int i = 0; i < rank; i++) {
        const int64_t dim = dims[order[i]];
        s->count *= dim;
        if (dim == 1) continue;
        bool merges = s->rank > 0;
        int64_t strides[GD_CUDA_OPERANDS];
        for (int k = 0; k < o->n; k++) {
            strides[k] = is_unused(x, o, k) ? 0 : stride_of(operand_at(o, k), rank, order[i]);
            merges = merges && s->strides[k][s->rank - 1] == strides[k] * dim;
        }
        if (merges) s->dims[s->rank - 1] *= dim;
        else s->dims[s->rank++] = dim;
        for (int k = 0; k < o->n; k++) s->strides[k][s->rank - 1] = strides[k];
    }
}

/* Whether indices and the offsets of all operands have 31 bits. */
static bool is_small(const call_shape *s, int n) {
    if (s->count > INT32_MAX) return false;
    for (int k = 0; k < n; k++) {
        int64_t furthest = 0;
        for (int d = 0; d < s->rank; d++) {
            const int64_t stride = s->strides[k][d] < 0 ? -s->strides[k][d] : s->strides[k][d];
            if (stride > INT32_MAX) return false;
            furthest += stride * (s->dims[d] - 1);
        }
        if (furthest > INT32_MAX) return false;
    }
    return true;
}

/* Whether operand k can be read or written in vectors: see gd_cuda_vector_head. */
static bool fits_vectors(const call_shape *s, const gd_view *v, int k, bool is_output,
                         bool any_dtypes) {
    const int last = s->rank - 1;
    if (s->strides[k][last] == 0) return !is_output || !v->data;
    if (s->strides[k][last] != 1 || !is_aligned(v)) return false;
    for (int d = 0; d < last; d++)
        if (s->strides[k][d] % GD_CUDA_VECTOR) return false;
    return !any_dtypes || gd_cuda_is_vector_dtype(v->dtype);
}

static bool fill_vectors(const gd_kernel_call *call, const gd_cuda_op *x, const operand_list *o,
                         bool any_dtypes, const call_shape *s, gd_cuda_arguments *a) {
    gd_cuda_vector_head *h = &a->vectors.head;
    const int last = s->rank - 1;
    if (s->rank < 1 || s->rank > 3) return false;
    if (s->rank > 1 && (s->dims[last] % GD_CUDA_VECTOR || !is_small(s, o->n))) return false;
    *h = (gd_cuda_vector_head){.word = gd_cuda_state_of(call->device)->word, .count = s->count};
    for (int k = 0; k < o->n; k++) {
        const gd_view *v = operand_at(o, k);
        if (!is_unused(x, o, k) && !fits_vectors(s, v, k, k >= o->n_in, any_dtypes)) return false;
        if (s->strides[k][last] == 0) h->broadcast |= 1u << k;
        h->dtypes |= (unsigned long long)v->dtype << 4 * (k & 15);
        const int64_t unit = s->strides[k][last] == 0 ? 1 : GD_CUDA_VECTOR,
                      middle = s->rank > 1 ? s->strides[k][last - 1] / unit : 0,
                      outer = s->rank > 2 ? s->strides[k][0] / unit : 0;
        a->vectors.words[k] = (uint64_t)(uintptr_t)v->data;
        a->vectors.words[o->n + x->n_params + k] =
            (uint64_t)(uint32_t)outer | (uint64_t)(uint32_t)middle << 32;
    }
    if (s->rank > 1) {
        h->inner = gd_cuda_divisor_of(s->dims[last] / GD_CUDA_VECTOR);
        h->middle = gd_cuda_divisor_of(s->dims[last - 1]);
    }
    set_vector_blocks(x, a);
    return true;
}

static void fill_elements(const gd_kernel_call *call, const gd_cuda_op *x, const operand_list *o,
                          const call_shape *s, gd_cuda_arguments *a) {
    gd_cuda_general_head *h = &a->elements.head;
    *h = (gd_cuda_general_head){.word = gd_cuda_state_of(call->device)->word,
                                .count = s->count,
                                .rank = (short)s->rank,
                                .wide = !is_small(s, o->n)};
    for (int d = 0; d < s->rank; d++) {
        h->dims[d] = s->dims[d];
        if (!h->wide) h->divisors[d] = gd_cuda_divisor_of(s->dims[d]);
    }
    uint64_t *strides = a->elements.words + o->n + x->n_params;
    for (int k = 0; k < o->n; k++) {
        const gd_view *v = operand_at(o, k);
        if (k >= o->n_in && !v->data) h->absent |= 1u << (k - o->n_in);
        h->dtypes |= (unsigned long long)v->dtype << 4 * (k & 15);
        a->elements.words[k] = (uint64_t)(uintptr_t)v->data;
        for (int d = 0; d < s->rank; d++)
            strides[k * GD_CUDA_EXPRESSION_RANK + d] = (uint64_t)s->strides[k][d];
    }
    const int64_t each =
        (int64_t)GD_CUDA_EXPRESSION_THREADS * (a->type == GD_F32 ? GD_CUDA_ELEMENTS_UNROLL : 1);
    a->variant = GD_CUDA_ELEMENTS;
    a->blocks = (s->count + each - 1) / each;
}

/* Not inlined: most calls are contiguous, and their path stays short. */
__attribute__((noinline)) static void fill_strided(const gd_cuda_op *x, const operand_list *o,
                                                   bool any_dtypes, bool has_vectors, int rank,
                                                   const int64_t *dims, gd_cuda_arguments *a) {
    const gd_kernel_call *call = o->call;
    call_shape s;
    merge_dims(x, o, rank, dims, &s);
    if (s.count == 0) {
        a->variant = GD_CUDA_ELEMENTS;
        a->blocks = 0;
        return;
    }
    if (has_vectors && fill_vectors(call, x, o, any_dtypes, &s, a)) {
        set_params(call, x, a->type, a->vectors.words + o->n);
        return;
    }
    fill_elements(call, x, o, &s, a);
    set_params(call, x, a->type, a->elements.words + o->n);
}

void gd_cuda_fill_arguments(const gd_kernel_call *call, const gd_cuda_op *x, bool any_dtypes,
                            gd_cuda_arguments *a) {
    const operand_list o = {.n = x->n_vars + x->n_outputs,
                            .n_in = x->n_vars,
                            .skipped = gd_cuda_host->codegen->skipped_outputs(call),
                            .call = call};
    const int64_t *dims;
    const int rank = gd_cuda_host->codegen->dims_of_call(call, &dims);
    a->type = gd_cuda_host->codegen->compute_dtype(call);
    const bool has_vectors = !any_dtypes || a->type == GD_F32;
    if (has_vectors && fill_contiguous(x, &o, any_dtypes, rank, dims, a))
        set_params(call, x, a->type, a->vectors.words + o.n);
    else fill_strided(x, &o, any_dtypes, has_vectors, rank, dims, a);
}

/* --- launches --------------------------------------------------------------------------------- */

gd_status gd_cuda_launch_function(gd_device *d, CUfunction function, int64_t blocks,
                                  const void *arguments) {
    gd_cuda_state *s = gd_cuda_state_of(d);
    void *parameters[] = {(void *)(uintptr_t)arguments};
    if (blocks == 0) return GD_OK;
    gd_status status = gd_cuda_enter_context(d);
    if (status != GD_OK) return status;
    GD_CUDA_TRY(d, cuLaunchKernel(function, (unsigned)blocks, 1, 1, GD_CUDA_EXPRESSION_THREADS, 1,
                                  1, 0, s->streams[GD_QUEUE_COMPUTE], parameters, NULL));
    return GD_OK;
}
