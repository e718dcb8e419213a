/* walk.c - see walk.h. */
#include "backend/cuda/walk.h"

gd_cuda_walk gd_cuda_walk_over(int rank, const int64_t *dims, int left_out,
                               const gd_view *const views[GD_CUDA_WALK_VIEWS]) {
    gd_cuda_walk w = {.count = 1};
    for (int d = 0; d < rank; d++) {
        if (d == left_out) continue;
        w.count *= dims[d];
        if (dims[d] == 1) continue;
        bool merges = w.rank > 0;
        for (int v = 0; v < GD_CUDA_WALK_VIEWS && merges; v++)
            merges = !views[v] ||
                     w.strides[v][w.rank - 1] == (long long)(dims[d] * views[v]->strides[d]);
        if (!merges) w.dims[w.rank++] = 1;
        w.dims[w.rank - 1] *= dims[d];
        for (int v = 0; v < GD_CUDA_WALK_VIEWS; v++)
            w.strides[v][w.rank - 1] = views[v] ? views[v]->strides[d] : 0;
    }
    return w;
}
