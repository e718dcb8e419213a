/* graph_cudnn.h - operation graphs of cuDNN: descriptors, the choice of an engine, execution.
 *
 * A gd_dnn_graph collects descriptors. After a call fails, later calls do nothing, so a graph is
 * described without checks:
 *
 *     gd_dnn_graph g;
 *     gd_dnn_begin_graph(&g);
 *     cudnnBackendDescriptor_t x = gd_dnn_add_tensor(&g, &(gd_dnn_tensor){.id = 'x', ...});
 *     ...
 *     gd_dnn_add_pointwise(&g, CUDNN_POINTWISE_ADD, CUDNN_DATA_FLOAT, x, b, y);
 *     gd_dnn_plan *plan;
 *     status = gd_dnn_make_plan(d, &g, &(gd_dnn_choice){...}, &plan);
 *
 * The plan is NULL if cuDNN has no engine for the graph. gd_dnn_make_plan is for `prepare`, and
 * gd_dnn_run_plan is for `run`, which holds the device's lock.
 */
#ifndef GRADUS_BACKEND_CUDA_GRAPH_CUDNN_H
#define GRADUS_BACKEND_CUDA_GRAPH_CUDNN_H

#include "backend/cuda/library_cudnn.h"

/* --- graphs ----------------------------------------------------------------------------------- */

enum { GD_DNN_RANK = 8, GD_DNN_DESCRIPTORS = 160, GD_DNN_OPERATIONS = 48 };

typedef struct gd_dnn_graph {
    cudnnBackendDescriptor_t descriptors[GD_DNN_DESCRIPTORS]; /* all, owned by the graph */
    cudnnBackendDescriptor_t operations[GD_DNN_OPERATIONS];
    int n_descriptors, n_operations;
    cudnnStatus_t status; /* of the first call that failed */
} gd_dnn_graph;

void gd_dnn_begin_graph(gd_dnn_graph *g);
/* Destroys the descriptors. gd_dnn_make_plan does that, too. */
void gd_dnn_end_graph(gd_dnn_graph *g);

/* A descriptor, to be set and then finalized; NULL after a failure. */
cudnnBackendDescriptor_t gd_dnn_add_descriptor(gd_dnn_graph *g, cudnnBackendDescriptorType_t type);
void gd_dnn_set(gd_dnn_graph *g, cudnnBackendDescriptor_t descriptor,
                cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
                const void *values);
void gd_dnn_finalize(gd_dnn_graph *g, cudnnBackendDescriptor_t descriptor);
/* Finalizes an operation and appends it to the graph. */
void gd_dnn_add_operation(gd_dnn_graph *g, cudnnBackendDescriptor_t operation);

/* Attributes with one value. */
static inline void gd_dnn_set_descriptor(gd_dnn_graph *g, cudnnBackendDescriptor_t descriptor,
                                         cudnnBackendAttributeName_t name,
                                         cudnnBackendDescriptor_t value) {
    gd_dnn_set(g, descriptor, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}
static inline void gd_dnn_set_integer(gd_dnn_graph *g, cudnnBackendDescriptor_t descriptor,
                                      cudnnBackendAttributeName_t name, int64_t value) {
    gd_dnn_set(g, descriptor, name, CUDNN_TYPE_INT64, 1, &value);
}
static inline void gd_dnn_set_type(gd_dnn_graph *g, cudnnBackendDescriptor_t descriptor,
                                   cudnnBackendAttributeName_t name, cudnnDataType_t value) {
    gd_dnn_set(g, descriptor, name, CUDNN_TYPE_DATA_TYPE, 1, &value);
}

/* The float types of Gradus. */
cudnnDataType_t gd_dnn_type(gd_dtype dtype);

/* --- tensors and operations ------------------------------------------------------------------- */

typedef struct gd_dnn_tensor {
    int64_t id; /* unique in the graph */
    cudnnDataType_t dtype;
    int rank;
    int64_t dims[GD_DNN_RANK], strides[GD_DNN_RANK]; /* strides in elements */
    int64_t alignment;                               /* in bytes; 0: 16 */
    bool is_virtual;                                 /* an intermediate result without memory */
    bool by_value; /* the pointer given to gd_dnn_run_plan is a number in host memory */
} gd_dnn_tensor;

cudnnBackendDescriptor_t gd_dnn_add_tensor(gd_dnn_graph *g, const gd_dnn_tensor *tensor);

/* y = x op b, computed in type `compute`; b is NULL for modes with one operand. Dims of size 1 are
 * broadcast. */
void gd_dnn_add_pointwise(gd_dnn_graph *g, cudnnPointwiseMode_t mode, cudnnDataType_t compute,
                          cudnnBackendDescriptor_t x, cudnnBackendDescriptor_t b,
                          cudnnBackendDescriptor_t y);
/* y (..., m, n) = a (..., m, k) b (..., k, n). */
void gd_dnn_add_matmul(gd_dnn_graph *g, cudnnDataType_t compute, cudnnBackendDescriptor_t a,
                       cudnnBackendDescriptor_t b, cudnnBackendDescriptor_t y);
/* Reduces x along the axes where y has size 1. */
void gd_dnn_add_reduction(gd_dnn_graph *g, cudnnReduceTensorOp_t mode, cudnnDataType_t compute,
                          cudnnBackendDescriptor_t x, cudnnBackendDescriptor_t y);

/* --- plans ------------------------------------------------------------------------------------ */

/* The conditions for an engine. Engines whose results vary from run to run are never chosen. */
typedef struct gd_dnn_choice {
    unsigned forbidden;      /* bit 1 << note for each cudnnBackendNumericalNote_t */
    int64_t workspace_bytes; /* at most */
} gd_dnn_choice;

/* Notes that are always worth forbidding: inputs rounded to a narrower type, sums in one. */
enum {
    GD_DNN_NARROW = 1u << CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS |
                    1u << CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION,
};

typedef struct gd_dnn_plan {
    cudnnBackendDescriptor_t plan;
    int64_t engine; /* cuDNN's number of the engine; -1: unknown */
    size_t workspace_bytes;
    gd_dnn_graph graph; /* with the engine's descriptors, which the plan refers to */
} gd_dnn_plan;

/* Makes a plan of the first engine in cuDNN's order that meets the conditions; NULL if there is
 * none. It is a pure function of the graph, the device and the version of cuDNN. Takes the graph's
 * descriptors in any case. */
gd_status gd_dnn_make_plan(gd_device *d, gd_dnn_graph *g, const gd_dnn_choice *choice,
                           gd_dnn_plan **plan);
void gd_dnn_free_plan(gd_dnn_plan *plan); /* NULL is fine */
/* "engine 38, 1.2 MB workspace" */
void gd_dnn_describe_plan(const gd_dnn_plan *plan, char *text, size_t size);

/* Queues the plan on the compute stream: tensor ids[i] is at pointers[i]. */
gd_status gd_dnn_run_plan(gd_device *d, const gd_dnn_plan *plan, int n, const int64_t *ids,
                          void *const *pointers, void *workspace);

#endif
