/* capture.c - plans as CUDA graphs: entry and exit kernels, captures and their launches.
 *
 * A capture records all kernels of a plan's segment into a graph with fixed addresses. Its entry
 * and exit kernels have their feeds, fetches and scalars as parameters. A launch sets these
 * parameters and launches the graph.
 */
#include <stdatomic.h>
#include <string.h>

#include "backend/cuda/state.h"
#include "codegen/dialect_cuda.h"

/* A boundary with many copies is several kernels. */
enum { MAX_PARTS = 64 };

typedef struct boundary_nodes {
    CUgraphNode nodes[MAX_PARTS];
    int count;
} boundary_nodes;

struct gd_capture {
    CUgraph recorded; /* its nodes name those of `graph` */
    CUgraphExec graph;
    size_t node_count;
    boundary_nodes enter, leave;
};

/* --- boundaries ------------------------------------------------------------------------------- */

static gd_cuda_kernel boundary_kernel = GD_CUDA_KERNEL("boundary", "gd_boundary_copy");

static int max_of(int a, int b) { return a > b ? a : b; }

/* The number of kernels of a boundary, at least one: the entry sets the number of the run. */
static int count_parts(const gd_boundary *b) {
    const int copies = (b->n_copies + GD_CUDA_COPIES - 1) / GD_CUDA_COPIES,
              scalars = (b->n_scalars + GD_CUDA_SCALARS - 1) / GD_CUDA_SCALARS;
    return max_of(1, max_of(copies, scalars));
}

/* Each copy has the blocks that the largest one needs: 256 threads of 16 bytes, several times if that
 * would be too many blocks. */
enum {
    THREADS = 256,
    BYTES_PER_BLOCK = THREADS * 16,
    MAX_BLOCKS = 16 * GD_CUDA_PROCESSORS,
};

static int count_copy_blocks(const gd_cuda_boundary *p) {
    unsigned long long most = 0;
    for (int i = 0; i < p->n_copies; i++)
        if (p->copies[i].bytes > most) most = p->copies[i].bytes;
    const unsigned long long blocks = (most + BYTES_PER_BLOCK - 1) / BYTES_PER_BLOCK;
    const int each = MAX_BLOCKS / max_of(p->n_copies, 1);
    return blocks < 1 ? 1 : blocks > (unsigned long long)each ? each : (int)blocks;
}

static void fill_part(const gd_cuda_state *s, const gd_boundary *b, bool enters, int part,
                      gd_cuda_boundary *p) {
    p->word = s->word;
    p->run = enters ? b->run : ~0ull;
    const int copy = part * GD_CUDA_COPIES, number = part * GD_CUDA_SCALARS;
    p->n_copies = max_of(0, b->n_copies - copy);
    if (p->n_copies > GD_CUDA_COPIES) p->n_copies = GD_CUDA_COPIES;
    p->n_scalars = max_of(0, b->n_scalars - number);
    if (p->n_scalars > GD_CUDA_SCALARS) p->n_scalars = GD_CUDA_SCALARS;
    for (int i = 0; i < p->n_copies; i++) {
        p->copies[i].to = b->copies[copy + i].to;
        p->copies[i].from = b->copies[copy + i].from;
        p->copies[i].bytes = b->copies[copy + i].bytes;
    }
    for (int i = 0; i < p->n_scalars; i++) {
        p->scalars[i].to = b->scalars[number + i].to;
        p->scalars[i].bits = b->scalars[number + i].bits;
        p->scalars[i].bytes = (unsigned)b->scalars[number + i].bytes;
    }
    p->blocks = count_copy_blocks(p);
}

static unsigned count_blocks(const gd_cuda_boundary *p) {
    return (unsigned)(max_of(p->n_copies, 1) * p->blocks);
}

/* The node that a capture has recorded last. */
static gd_status latest_node(gd_device *d, CUgraphNode *node) {
    CUstreamCaptureStatus status;
    cuuint64_t id;
    CUgraph graph;
    const CUgraphNode *nodes;
    const CUgraphEdgeData *edges;
    size_t count = 0;
    const CUstream stream = gd_cuda_state_of(d)->streams[GD_QUEUE_COMPUTE];
    GD_CUDA_TRY(d, cuStreamGetCaptureInfo(stream, &status, &id, &graph, &nodes, &edges, &count));
    if (count != 1)
        return gd_cuda_host->fail(GD_E_DEVICE, "%s: a capture has %zu latest nodes", d->name,
                                  count);
    *node = nodes[0];
    return GD_OK;
}

static gd_status queue_boundary(gd_device *d, const gd_boundary *b, bool enters) {
    gd_cuda_state *s = gd_cuda_state_of(d);
    const int parts = count_parts(b);
    gd_status status = GD_OK;
    if (parts > MAX_PARTS)
        status =
            gd_cuda_host->fail(GD_E_UNSUPPORTED,
                               "a plan with %d feeds, fetches and scalars; at most %d are "
                               "possible on %s",
                               b->n_copies + b->n_scalars, MAX_PARTS * GD_CUDA_SCALARS, d->name);
    boundary_nodes *nodes = !s->capturing ? NULL
                            : enters      ? &s->capturing->enter
                                          : &s->capturing->leave;
    for (int i = 0; i < parts && status == GD_OK; i++) {
        gd_cuda_boundary p;
        fill_part(s, b, enters, i, &p);
        status = gd_cuda_launch(d, &boundary_kernel, count_blocks(&p), THREADS, &p);
        if (status == GD_OK && nodes) status = latest_node(d, &nodes->nodes[nodes->count++]);
    }
    return status;
}

gd_status gd_cuda_enter(gd_device *d, const gd_boundary *b) { return queue_boundary(d, b, true); }
gd_status gd_cuda_leave(gd_device *d, const gd_boundary *b) { return queue_boundary(d, b, false); }

/* --- captures --------------------------------------------------------------------------------- */

gd_status gd_cuda_capture_begin(gd_device *d) {
    gd_cuda_state *s = gd_cuda_state_of(d);
    gd_status status = gd_cuda_enter_context(d);
    if (status != GD_OK) return status;
    gd_capture *capture = gd_cuda_host->allocate(sizeof *capture);
    if (!capture) return gd_cuda_host->fail(GD_E_MEMORY, "no memory for a capture");
    memset(capture, 0, sizeof *capture);
    status = GD_CUDA_CALL(
        d, cuStreamBeginCapture(s->streams[GD_QUEUE_COMPUTE], CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    if (status == GD_OK) s->capturing = capture;
    else gd_cuda_host->release(capture);
    return status;
}

gd_status gd_cuda_capture_end(gd_device *d, gd_capture **capture) {
    gd_cuda_state *s = gd_cuda_state_of(d);
    gd_capture *c = s->capturing;
    s->capturing = NULL;
    *capture = NULL;
    gd_status status = gd_cuda_enter_context(d);
    if (status == GD_OK)
        status = GD_CUDA_CALL(d, cuStreamEndCapture(s->streams[GD_QUEUE_COMPUTE], &c->recorded));
    if (status == GD_OK)
        status = GD_CUDA_CALL(d, cuGraphGetNodes(c->recorded, NULL, &c->node_count));
    if (status == GD_OK) status = GD_CUDA_CALL(d, cuGraphInstantiate(&c->graph, c->recorded, 0));
    if (status == GD_OK) {
        *capture = c;
        return GD_OK;
    }
    if (c->recorded) gd_cuda.cuGraphDestroy(c->recorded);
    gd_cuda_host->release(c);
    return status;
}

static gd_status set_boundary(gd_device *d, const gd_capture *c, const boundary_nodes *nodes,
                              const gd_boundary *b, bool enters) {
    CUfunction function;
    gd_status status = gd_cuda_function(d, &boundary_kernel, &function);
    if (status != GD_OK) return status;
    for (int i = 0; i < nodes->count; i++) {
        gd_cuda_boundary p;
        fill_part(gd_cuda_state_of(d), b, enters, i, &p);
        void *parameters[] = {&p};
        const CUDA_KERNEL_NODE_PARAMS node = {.func = function,
                                              .gridDimX = count_blocks(&p),
                                              .gridDimY = 1,
                                              .gridDimZ = 1,
                                              .blockDimX = THREADS,
                                              .blockDimY = 1,
                                              .blockDimZ = 1,
                                              .kernelParams = parameters};
        GD_CUDA_TRY(d, cuGraphExecKernelNodeSetParams(c->graph, nodes->nodes[i], &node));
    }
    return GD_OK;
}

gd_status gd_cuda_capture_launch(gd_device *d, gd_capture *c, const gd_boundary *enter,
                                 const gd_boundary *leave) {
    gd_status status = gd_cuda_enter_context(d);
    if (status == GD_OK && enter) status = set_boundary(d, c, &c->enter, enter, true);
    if (status == GD_OK && leave) status = set_boundary(d, c, &c->leave, leave, false);
    if (status != GD_OK) return status;
    GD_CUDA_TRY(d, cuGraphLaunch(c->graph, gd_cuda_state_of(d)->streams[GD_QUEUE_COMPUTE]));
    atomic_fetch_add_explicit(&gd_cuda_launches, (int64_t)c->node_count, memory_order_relaxed);
    return GD_OK;
}

/* A launch of the graph may still run. */
void gd_cuda_capture_free(gd_device *d, gd_capture *c) {
    if (gd_cuda_enter_context(d) == GD_OK) {
        gd_cuda.cuStreamSynchronize(gd_cuda_state_of(d)->streams[GD_QUEUE_COMPUTE]);
        gd_cuda.cuGraphExecDestroy(c->graph);
        gd_cuda.cuGraphDestroy(c->recorded);
    }
    gd_cuda_host->release(c);
}
