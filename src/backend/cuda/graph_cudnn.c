/* graph_cudnn.c - see graph_cudnn.h. */
#include "backend/cuda/graph_cudnn.h"

#include <stdio.h>
#include <string.h>

#include "backend/cuda/kernels.h"

/* --- graphs ----------------------------------------------------------------------------------- */

void gd_dnn_begin_graph(gd_dnn_graph *g) {
    g->n_descriptors = g->n_operations = 0;
    g->status = CUDNN_STATUS_SUCCESS;
}

/* Destroys all descriptors after the first n. */
static void destroy_descriptors_after(gd_dnn_graph *g, int n) {
    while (g->n_descriptors > n)
        gd_dnn.cudnnBackendDestroyDescriptor(g->descriptors[--g->n_descriptors]);
}

void gd_dnn_end_graph(gd_dnn_graph *g) {
    destroy_descriptors_after(g, 0);
    g->n_operations = 0;
}

cudnnBackendDescriptor_t gd_dnn_add_descriptor(gd_dnn_graph *g, cudnnBackendDescriptorType_t type) {
    cudnnBackendDescriptor_t descriptor = NULL;
    if (g->status != CUDNN_STATUS_SUCCESS) return NULL;
    if (g->n_descriptors == GD_DNN_DESCRIPTORS) g->status = CUDNN_STATUS_NOT_SUPPORTED;
    else g->status = gd_dnn.cudnnBackendCreateDescriptor(type, &descriptor);
    if (g->status != CUDNN_STATUS_SUCCESS) return NULL;
    g->descriptors[g->n_descriptors++] = descriptor;
    return descriptor;
}

void gd_dnn_set(gd_dnn_graph *g, cudnnBackendDescriptor_t descriptor,
                cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
                const void *values) {
    if (g->status == CUDNN_STATUS_SUCCESS)
        g->status = gd_dnn.cudnnBackendSetAttribute(descriptor, name, type, count, values);
}

void gd_dnn_finalize(gd_dnn_graph *g, cudnnBackendDescriptor_t descriptor) {
    if (g->status == CUDNN_STATUS_SUCCESS) g->status = gd_dnn.cudnnBackendFinalize(descriptor);
}

void gd_dnn_add_operation(gd_dnn_graph *g, cudnnBackendDescriptor_t operation) {
    gd_dnn_finalize(g, operation);
    if (g->status != CUDNN_STATUS_SUCCESS) return;
    if (g->n_operations == GD_DNN_OPERATIONS) g->status = CUDNN_STATUS_NOT_SUPPORTED;
    else g->operations[g->n_operations++] = operation;
}

cudnnDataType_t gd_dnn_type(gd_dtype dtype) {
    return dtype == GD_F64    ? CUDNN_DATA_DOUBLE
           : dtype == GD_F32  ? CUDNN_DATA_FLOAT
           : dtype == GD_BF16 ? CUDNN_DATA_BFLOAT16
                              : CUDNN_DATA_HALF;
}

/* --- tensors and operations ------------------------------------------------------------------- */

cudnnBackendDescriptor_t gd_dnn_add_tensor(gd_dnn_graph *g, const gd_dnn_tensor *t) {
    cudnnBackendDescriptor_t x = gd_dnn_add_descriptor(g, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    gd_dnn_set_type(g, x, CUDNN_ATTR_TENSOR_DATA_TYPE, t->dtype);
    gd_dnn_set(g, x, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, t->rank, t->dims);
    gd_dnn_set(g, x, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, t->rank, t->strides);
    gd_dnn_set_integer(g, x, CUDNN_ATTR_TENSOR_UNIQUE_ID, t->id);
    gd_dnn_set_integer(g, x, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, t->alignment ? t->alignment : 16);
    if (t->is_virtual)
        gd_dnn_set(g, x, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &t->is_virtual);
    if (t->by_value)
        gd_dnn_set(g, x, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &t->by_value);
    gd_dnn_finalize(g, x);
    return x;
}

void gd_dnn_add_pointwise(gd_dnn_graph *g, cudnnPointwiseMode_t mode, cudnnDataType_t compute,
                          cudnnBackendDescriptor_t x, cudnnBackendDescriptor_t b,
                          cudnnBackendDescriptor_t y) {
    cudnnBackendDescriptor_t settings =
        gd_dnn_add_descriptor(g, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    gd_dnn_set(g, settings, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
    gd_dnn_set_type(g, settings, CUDNN_ATTR_POINTWISE_MATH_PREC, compute);
    gd_dnn_finalize(g, settings);
    cudnnBackendDescriptor_t op =
        gd_dnn_add_descriptor(g, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    gd_dnn_set_descriptor(g, op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, settings);
    gd_dnn_set_descriptor(g, op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
    if (b) gd_dnn_set_descriptor(g, op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b);
    gd_dnn_set_descriptor(g, op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
    gd_dnn_add_operation(g, op);
}

void gd_dnn_add_matmul(gd_dnn_graph *g, cudnnDataType_t compute, cudnnBackendDescriptor_t a,
                       cudnnBackendDescriptor_t b, cudnnBackendDescriptor_t y) {
    cudnnBackendDescriptor_t settings = gd_dnn_add_descriptor(g, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    gd_dnn_set_type(g, settings, CUDNN_ATTR_MATMUL_COMP_TYPE, compute);
    gd_dnn_finalize(g, settings);
    cudnnBackendDescriptor_t op =
        gd_dnn_add_descriptor(g, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    gd_dnn_set_descriptor(g, op, CUDNN_ATTR_OPERATION_MATMUL_DESC, settings);
    gd_dnn_set_descriptor(g, op, CUDNN_ATTR_OPERATION_MATMUL_ADESC, a);
    gd_dnn_set_descriptor(g, op, CUDNN_ATTR_OPERATION_MATMUL_BDESC, b);
    gd_dnn_set_descriptor(g, op, CUDNN_ATTR_OPERATION_MATMUL_CDESC, y);
    gd_dnn_add_operation(g, op);
}

void gd_dnn_add_reduction(gd_dnn_graph *g, cudnnReduceTensorOp_t mode, cudnnDataType_t compute,
                          cudnnBackendDescriptor_t x, cudnnBackendDescriptor_t y) {
    cudnnBackendDescriptor_t settings =
        gd_dnn_add_descriptor(g, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    gd_dnn_set(g, settings, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1,
               &mode);
    gd_dnn_set_type(g, settings, CUDNN_ATTR_REDUCTION_COMP_TYPE, compute);
    gd_dnn_finalize(g, settings);
    cudnnBackendDescriptor_t op =
        gd_dnn_add_descriptor(g, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    gd_dnn_set_descriptor(g, op, CUDNN_ATTR_OPERATION_REDUCTION_DESC, settings);
    gd_dnn_set_descriptor(g, op, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x);
    gd_dnn_set_descriptor(g, op, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y);
    gd_dnn_add_operation(g, op);
}

/* --- the choice of an engine ------------------------------------------------------------------ */

/* Plans are made with a handle of their own: a thread may prepare while another runs. */
static cudnnHandle_t build_handles[GD_CUDA_DEVICES];
static pthread_mutex_t build_lock = PTHREAD_MUTEX_INITIALIZER;

/* NULL: cuDNN cannot be initialized, for example because one of its libraries is missing. */
static cudnnHandle_t find_build_handle(gd_device *d) {
    cudnnHandle_t *known = &build_handles[gd_cuda_state_of(d)->index];
    if (!*known && gd_dnn.cudnnCreate(known) != CUDNN_STATUS_SUCCESS) *known = NULL;
    return *known;
}

/* Whether the notes of a configuration's engine allow it, and the engine's number. An engine whose
 * notes cannot be read is not allowed. */
static bool notes_allow(cudnnBackendDescriptor_t config, unsigned forbidden, int64_t *number) {
    enum { MAX_NOTES = 32 };
    cudnnBackendNumericalNote_t notes[MAX_NOTES];
    cudnnBackendDescriptor_t engine = NULL;
    int64_t count = 0;
    if (gd_dnn.cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine) != 0)
        return false;
    bool allowed =
        gd_dnn.cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_ENGINE,
                                        CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &engine) == 0 &&
        gd_dnn.cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                                        CUDNN_TYPE_NUMERICAL_NOTE, MAX_NOTES, &count, notes) == 0;
    for (int64_t i = 0; allowed && i < count && i < MAX_NOTES; i++)
        if (forbidden >> notes[i] & 1) allowed = false;
    if (gd_dnn.cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1,
                                        &count, number) != 0)
        *number = -1;
    gd_dnn.cudnnBackendDestroyDescriptor(engine);
    return allowed;
}

/* A finalized plan of the configuration with an allowed workspace, or NULL. */
static cudnnBackendDescriptor_t finalize_plan(cudnnHandle_t handle, cudnnBackendDescriptor_t config,
                                              int64_t most, int64_t *workspace) {
    cudnnBackendDescriptor_t plan = NULL;
    int64_t count = 0;
    if (gd_dnn.cudnnBackendCreateDescriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &plan) != 0)
        return NULL;
    const bool done =
        gd_dnn.cudnnBackendSetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE,
                                        1, &handle) == 0 &&
        gd_dnn.cudnnBackendSetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
                                        CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &config) == 0 &&
        gd_dnn.cudnnBackendFinalize(plan) == 0 &&
        gd_dnn.cudnnBackendGetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                        CUDNN_TYPE_INT64, 1, &count, workspace) == 0 &&
        *workspace <= most;
    if (done) return plan;
    gd_dnn.cudnnBackendDestroyDescriptor(plan);
    return NULL;
}

/* Looks through the configurations that a heuristic proposes, the most promising one first. The
 * graph gets the plan's configuration. */
static cudnnBackendDescriptor_t search_heuristic(cudnnHandle_t handle, gd_dnn_graph *g,
                                                 cudnnBackendDescriptor_t graph,
                                                 cudnnBackendHeurMode_t mode,
                                                 const gd_dnn_choice *choice, int64_t *workspace,
                                                 int64_t *engine) {
    enum { MAX_CONFIGS = 64 };
    cudnnBackendDescriptor_t configs[MAX_CONFIGS], plan = NULL;
    int64_t found = 0;
    const int before = g->n_descriptors;
    const unsigned forbidden = choice->forbidden | 1u << CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC;
    cudnnBackendDescriptor_t heuristic =
        gd_dnn_add_descriptor(g, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    gd_dnn_set_descriptor(g, heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
    gd_dnn_set(g, heuristic, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    gd_dnn_finalize(g, heuristic);
    int n = 0;
    for (; n < MAX_CONFIGS && g->n_descriptors < GD_DNN_DESCRIPTORS; n++)
        if (!(configs[n] = gd_dnn_add_descriptor(g, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR))) break;
    if (g->status == CUDNN_STATUS_SUCCESS &&
        gd_dnn.cudnnBackendGetAttribute(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                        CUDNN_TYPE_BACKEND_DESCRIPTOR, n, &found, configs) != 0)
        found = 0;
    int chosen = 0;
    for (; !plan && chosen < found && chosen < n; chosen++)
        if (notes_allow(configs[chosen], forbidden, engine))
            plan = finalize_plan(handle, configs[chosen], choice->workspace_bytes, workspace);
    if (plan) { /* keep the heuristic and the chosen configuration only */
        cudnnBackendDescriptor_t *kept = &g->descriptors[before + 1], config = configs[chosen - 1],
                                 first = kept[0];
        kept[chosen - 1] = first;
        kept[0] = config;
    }
    g->status = CUDNN_STATUS_SUCCESS; /* the other heuristic may succeed */
    destroy_descriptors_after(g, plan ? before + 2 : before);
    return plan;
}

static gd_status build_plan(gd_device *d, gd_dnn_graph *g, const gd_dnn_choice *choice,
                            gd_dnn_plan *plan) {
    cudnnHandle_t handle = find_build_handle(d);
    if (!handle) return GD_OK;
    cudnnBackendDescriptor_t graph =
        gd_dnn_add_descriptor(g, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    gd_dnn_set(g, graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
    gd_dnn_set(g, graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
               g->n_operations, g->operations);
    gd_dnn_finalize(g, graph);
    if (g->status == CUDNN_STATUS_ALLOC_FAILED)
        return gd_cuda_dnn_check(d, g->status, "cudnnBackendFinalize");
    if (g->status != CUDNN_STATUS_SUCCESS) return GD_OK; /* cuDNN does not support the graph */
    static const cudnnBackendHeurMode_t modes[] = {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK};
    int64_t workspace = 0;
    for (int i = 0; i < 2 && !plan->plan; i++)
        plan->plan =
            search_heuristic(handle, g, graph, modes[i], choice, &workspace, &plan->engine);
    plan->workspace_bytes = (size_t)workspace;
    return GD_OK;
}

gd_status gd_dnn_make_plan(gd_device *d, gd_dnn_graph *g, const gd_dnn_choice *choice,
                           gd_dnn_plan **made) {
    *made = NULL;
    gd_status status = gd_cuda_enter_context(d);
    gd_dnn_plan *plan = gd_cuda_host->allocate(sizeof *plan);
    if (!plan && status == GD_OK)
        status = gd_cuda_host->fail(GD_E_MEMORY, "no memory to plan a graph of cuDNN");
    if (plan) plan->plan = NULL;
    if (status == GD_OK) {
        pthread_mutex_lock(&build_lock);
        status = build_plan(d, g, choice, plan);
        pthread_mutex_unlock(&build_lock);
    }
    if (status == GD_OK && plan->plan) {
        plan->graph = *g;
        *made = plan;
        return GD_OK;
    }
    gd_dnn_end_graph(g);
    if (plan) gd_cuda_host->release(plan);
    return status;
}

void gd_dnn_free_plan(gd_dnn_plan *plan) {
    if (!plan) return;
    gd_dnn.cudnnBackendDestroyDescriptor(plan->plan);
    gd_dnn_end_graph(&plan->graph);
    gd_cuda_host->release(plan);
}

void gd_dnn_describe_plan(const gd_dnn_plan *plan, char *text, size_t size) {
    char workspace[32];
    snprintf(text, size, "engine %lld%s", (long long)plan->engine,
             gd_cuda_workspace_text(plan->workspace_bytes, workspace, sizeof workspace));
}

/* --- execution -------------------------------------------------------------------------------- */

static gd_status fill_pack(gd_device *d, cudnnBackendDescriptor_t pack, int n, const int64_t *ids,
                           void *const *pointers, void *workspace) {
    GD_DNN_TRY(d, cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS,
                                           CUDNN_TYPE_VOID_PTR, n, pointers));
    GD_DNN_TRY(d, cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS,
                                           CUDNN_TYPE_INT64, n, ids));
    GD_DNN_TRY(d, cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE,
                                           CUDNN_TYPE_VOID_PTR, 1, &workspace));
    GD_DNN_TRY(d, cudnnBackendFinalize(pack));
    return GD_OK;
}

gd_status gd_dnn_run_plan(gd_device *d, const gd_dnn_plan *plan, int n, const int64_t *ids,
                          void *const *pointers, void *workspace) {
    cudnnHandle_t handle;
    cudnnBackendDescriptor_t pack;
    gd_status status = gd_cuda_dnn_handle(d, &handle);
    if (status != GD_OK) return status;
    GD_DNN_TRY(d, cudnnBackendCreateDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack));
    status = fill_pack(d, pack, n, ids, pointers, workspace);
    if (status == GD_OK)
        status = gd_cuda_dnn_check(d, gd_dnn.cudnnBackendExecute(handle, plan->plan, pack),
                                   "cudnnBackendExecute");
    gd_dnn.cudnnBackendDestroyDescriptor(pack);
    return status;
}
