/* tensor.h - the struct of a tensor, and functions on tensors for library code. */
#ifndef GRADUS_CORE_TENSOR_H
#define GRADUS_CORE_TENSOR_H

#include "core/object.h"
#include "core/storage.h"
#include "core/thread.h"

typedef struct gd_node gd_node; /* of autograd: the op call that computed the tensor */
typedef struct gd_hook gd_hook;

typedef enum gd_tensor_kind {
    GD_VALUE,  /* has storage */
    GD_SYMBOL, /* an output of a graph node: a shape, no data */
    GD_META,   /* a shape without data: an input of a gradient rule that was not saved */
    GD_FAILED, /* an error tensor */
} gd_tensor_kind;

struct gd_tensor {
    gd_object object;
    uint8_t kind;
    uint8_t dtype;
    uint8_t rank;
    bool requires_grad; /* set by the user (a leaf) or inherited from the inputs */
    bool is_view;       /* shares the storage of a tensor of another call */
    gd_device *device;
    gd_storage *storage;
    int64_t offset; /* of the first element, in elements */
    int64_t dims[GD_MAX_RANK];
    int64_t strides[GD_MAX_RANK]; /* in elements */

    gd_node *node; /* NULL for a leaf */
    int32_t node_index;
    gd_tensor *grad; /* of a leaf; gd_backward accumulates it */
    gd_hook *hooks;
    gd_tensor *next_free;

    /* for messages about a use after free (core/freed.h) */
    const char *made_op, *made_site; /* op and location of the call that created it, or NULL */
    const char *freed_in; /* freed handle: location of the ended scope, "" for a call; or NULL */
    void *block;          /* freed handle: its memory; otherwise NULL */
};

extern const gd_class gd_tensor_class;

/* The one tensor that every failed call returns. */
extern gd_tensor gd_error_tensor;

/* An uninitialized tensor in the current scope. NULL and a latest failure if out of memory. */
gd_tensor *gd_tensor_new(gd_device *device, gd_dtype dtype, int rank, const int64_t *dims);
/* A new tensor with row-major elements from host memory. On an asynchronous device the upload runs
 * concurrently with kernels. NULL and a latest failure if it fails. */
gd_tensor *gd_tensor_from_host(gd_device *device, gd_dtype dtype, int rank, const int64_t *dims,
                               const void *data);
/* A row-major copy of t on a device; an error tensor if it fails. */
gd_tensor *gd_tensor_copy_on(gd_tensor *t, gd_device *device);
/* A copy of a contiguous tensor of the CPU, for gd_device_mark_uploads. */
gd_tensor *gd_tensor_upload_ahead(gd_device *device, const gd_tensor *t);
gd_tensor *gd_tensor_view(gd_tensor *base, int rank, const int64_t *dims, const int64_t *strides,
                          int64_t offset);
/* A handle without storage (a symbol or a meta tensor). */
gd_tensor *gd_tensor_bare(gd_tensor_kind kind, gd_device *device, gd_dtype dtype, int rank,
                          const int64_t *dims);
/* A view of the value of `t` without its history. */
gd_tensor *gd_tensor_alias(gd_tensor *t);

/* Moves a parameter: the handle of a leaf takes over the memory, dtype, device, shape and strides
 * of `value`, without its history. A gradient that no longer fits is dropped. A backward pass that
 * needs the old value fails. Graphs find the new value when they run (gd_graph_refresh), and jits
 * trace again; views of the old memory keep it. Failures are not recorded. */
gd_status gd_tensor_become(gd_tensor *leaf, gd_tensor *value);
/* The number of such moves so far. */
uint64_t gd_tensors_became(void);

void gd_tensor_free_cached(gd_thread *thread);

/* gd_copy_to and gd_copy_from for library code: failures are not recorded, and they are allowed
 * during a trace. */
gd_status gd_copy_out(const gd_tensor *t, void *data, size_t bytes);
gd_status gd_copy_in(gd_tensor *t, const void *data, size_t bytes);

/* Fails if the memory of `t` is read-only. Calls that write a tensor ask first; `name` is that of the
 * operand, or NULL. */
gd_status gd_fail_read_only(const gd_tensor *t, const char *name);
static inline gd_status gd_check_writable(const gd_tensor *t, const char *name) {
    return t->storage && __builtin_expect(t->storage->read_only, 0) ? gd_fail_read_only(t, name)
                                                                    : GD_OK;
}

/* gd_dtype_size, inlined. */
static inline size_t gd_dtype_bytes(unsigned dtype) {
    static const uint8_t bytes[16] = {
        [GD_BOOL] = 1, [GD_U8] = 1,   [GD_I8] = 1,  [GD_I32] = 4, [GD_I64] = 8,
        [GD_F16] = 2,  [GD_BF16] = 2, [GD_F32] = 4, [GD_F64] = 8};
    return bytes[dtype & 15u];
}

/* gd_dtype_is_float, inlined. */
static inline bool gd_is_float(unsigned dtype) { return dtype >= GD_F16 && dtype <= GD_F64; }

/* Release nodes and hooks; set by autograd, because core does not depend on it. */
extern void (*gd_node_release_hook)(gd_node *node);
extern void (*gd_hooks_release_hook)(gd_hook *hooks);
/* Describes a symbol for messages: its name and the location of its op. Set by graphs. */
/* Fails because `what` reads a symbol, which has no data. */
extern gd_status (*gd_symbol_unread_hook)(const gd_tensor *symbol, const char *what);
extern const char *(*gd_symbol_text_hook)(const gd_tensor *symbol, char *text, size_t size);

/* Set by graphs: fails if a public call must not read or write the data of a tensor, or of the
 * generator (NULL), because this thread traces a function. */
extern gd_status (*gd_traced_access_hook)(const gd_tensor *t, const char *what, bool writes);
static inline gd_status gd_check_traced_access(const gd_tensor *t, const char *what, bool writes) {
    return gd_this_thread.tracer && gd_traced_access_hook ? gd_traced_access_hook(t, what, writes)
                                                          : GD_OK;
}

/* Records the latest failure and returns the error tensor: `return gd_tensor_fail(status)`. */
gd_tensor *gd_tensor_fail(gd_status status);

/* Dims and strides beyond the rank are not written: every op call runs this. */
static inline void gd_view_set(gd_view *v, const gd_tensor *t) {
    v->dtype = (gd_dtype)t->dtype;
    v->rank = t->rank;
    v->data =
        t->storage ? (char *)t->storage->data + (size_t)t->offset * gd_dtype_bytes(t->dtype) : NULL;
    for (int i = 0; i < t->rank; i++) v->dims[i] = t->dims[i], v->strides[i] = t->strides[i];
}

static inline gd_view gd_view_of(const gd_tensor *t) {
    gd_view v;
    gd_view_set(&v, t);
    return v;
}

/* An unknown size of a symbol. */
#define GD_UNKNOWN (-1)

int64_t gd_numel(int rank, const int64_t *dims); /* of a valid shape */
void gd_row_major(int rank, const int64_t *dims, int64_t *strides);
bool gd_is_row_major(int rank, const int64_t *dims, const int64_t *strides);

/* numel * element size. Fails for negative sizes, too many dimensions and overflow. */
gd_status gd_shape_bytes(gd_shape shape, gd_dtype dtype, size_t *bytes);
gd_status gd_dims_bytes(int rank, const int64_t *dims, gd_dtype dtype, size_t *bytes);

/* Normalizes a possibly negative axis to 0 <= axis < rank; rank 0 counts as 1, as in PyTorch. */
gd_status gd_axis(int64_t axis, int rank, int *result);

/* Writes "f32[2,3]" into a buffer and returns it. */
char *gd_describe(const gd_tensor *t, char *buffer, size_t size);
/* gd_shape_text writes sizes, with "?" for unknown ones: "[2,?]"; gd_numbers_text writes any
 * numbers: "[2,-1]". */
char *gd_shape_text(int rank, const int64_t *dims, char *buffer, size_t size);
char *gd_numbers_text(int count, const int64_t *numbers, char *buffer, size_t size);

#endif
