/* join.cu - concatenation. */
#include "ops/join/cuda/join_args.h"
#include "backend/cuda/copy_unit.cuh"

/* Copies one operand of the cat; indexes in 32 bits if the size allows. */
template <typename I>
static __device__ __forceinline__ void copy_piece(const gd_cuda_join &p, int k) {
    const long long start = p.pieces[k].start, columns = p.pieces[k].end - start;
    for (EACH(i, p.rows * columns)) {
        const long long row = sizeof(I) == 4 ? divide_by(p.pieces[k].by, (int)i) : i / columns;
        copy_unit(p.unit, p.y, row * p.row + start + (i - row * columns), p.pieces[k].x, i);
    }
}

extern "C" __global__ void gd_join_pieces(const __grid_constant__ gd_cuda_join p) {
    RETURN_IF_FAILED(p.call);
    for (int k = 0; k < p.count; k++)
        if (p.pieces[k].small) copy_piece<int>(p, k);
        else copy_piece<long long>(p, k);
}
