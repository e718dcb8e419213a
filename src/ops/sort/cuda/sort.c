/* sort.c - merge sorts along an axis. */
#include "ops/sort/cuda/sort_args.h"

#include "backend/cuda/walk.h"
#include "gradus/ops.h"

static gd_cuda_kernel sort_runs = GD_CUDA_KERNEL("sort/sort", "gd_sort_runs");
static gd_cuda_kernel merge_runs = GD_CUDA_KERNEL("sort/sort", "gd_merge_runs");
static gd_cuda_kernel sort_results = GD_CUDA_KERNEL("sort/sort", "gd_sort_results");

/* Two lists of entries: each merge reads one and writes the other. */
static size_t sort_workspace(const gd_kernel_call *call) {
    return 2 * (size_t)gd_cuda_count(&call->in[0]) * sizeof(gd_cuda_sort_entry);
}

static gd_status run_sort(gd_kernel_call *call) {
    const gd_sort_options *o = call->attrs;
    const gd_view x = gd_cuda_at_least_1d(call->in[0]), values = gd_cuda_at_least_1d(call->out[0]),
                  indices = gd_cuda_at_least_1d(call->out[1]);
    const int axis = gd_cuda_axis(o->axis, x.rank);
    const long long count = gd_cuda_count(&x);
    gd_cuda_sort_entry *lists = call->workspace;
    gd_cuda_sort p = {
        .call = gd_cuda_call_of(call),
        .lines =
            gd_cuda_walk_over(x.rank, x.dims, axis, (const gd_view *[]){&x, &values, &indices}),
        .x = x.data,
        .values = values.data,
        .indices = indices.data,
        .dtype = (int)x.dtype,
        .bytes = (int)gd_cuda_element_size(x.dtype),
        .descending = o->descending,
        .n = x.dims[axis],
        .x_step = x.strides[axis],
        .values_step = values.strides[axis],
        .indices_step = indices.strides[axis],
        .to = lists,
        .width = GD_CUDA_SORTED_RUN,
    };
    if (count == 0 || (!p.values && !p.indices)) return GD_OK;
    gd_status status = gd_cuda_launch_each(call->device, &sort_runs, count, &p);
    p.from = p.to;
    for (; p.width < p.n && status == GD_OK; p.width *= 2) {
        p.to = p.from == lists ? lists + count : lists;
        status = gd_cuda_launch_each(call->device, &merge_runs, count, &p);
        p.from = p.to;
    }
    return status == GD_OK ? gd_cuda_launch_each(call->device, &sort_results, count, &p) : status;
}

/*kernel sort.merge  checked  run run_sort  workspace sort_workspace
 * Sorts blocks, and merges them pairwise.
 */

#include "ops/sort/cuda/sort.gen.h"
