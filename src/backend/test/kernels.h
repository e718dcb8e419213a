/* kernels.h - the bodies of the test device's kernels, and helpers to write them.
 *
 * A body runs on the worker of the compute queue, with a copy of the call whose handles have been
 * resolved to addresses. Most kernels have the flag GD_KERNEL_DOUBLE, so their operands are
 * row-major f64 and i64 only. kernels.c has the table of all kernels.
 */
#ifndef GRADUS_BACKEND_TEST_KERNELS_H
#define GRADUS_BACKEND_TEST_KERNELS_H

#include "backend/test/element.h"
#include "backend/test/queue.h"
#include "gradus/ops.h"

typedef void (*test_body)(gd_kernel_call *call);

/* Queues the body of the call's kernel. */
gd_status test_kernel_run(gd_kernel_call *call);

/* --- elements of row-major f64 and i64 -------------------------------------------------------- */

static inline double real_at(const gd_view *v, int64_t at) {
    return v->dtype == GD_F64 ? ((const double *)v->data)[at]
                              : (double)((const int64_t *)v->data)[at];
}

static inline int64_t integer_at(const gd_view *v, int64_t at) {
    return v->dtype == GD_I64 ? ((const int64_t *)v->data)[at]
                              : gd_f64_to_i64(((const double *)v->data)[at]);
}

/* An element converted to an integer dtype. All other dtypes count as i64. */
static inline int64_t integer_as(const gd_view *v, int64_t at, gd_dtype dtype) {
    int64_t stored = 0;
    if (dtype == GD_DTYPE_NONE || element_is_float(dtype)) dtype = GD_I64;
    if (v->dtype == GD_F64) store_real(dtype, &stored, real_at(v, at));
    else store_integer(dtype, &stored, integer_at(v, at));
    return load_integer(dtype, &stored);
}

static inline void copy_element(const gd_view *to, int64_t at, const gd_view *from, int64_t n) {
    memcpy((char *)to->data + 8 * at, (const char *)from->data + 8 * n, 8);
}

static inline int axis_of(int64_t axis, int rank) { return (int)(axis < 0 ? axis + rank : axis); }

/* --- bodies ----------------------------------------------------------------------------------- */

/* kernels.c */
void test_copy(gd_kernel_call *call);
void test_elementwise(gd_kernel_call *call);
void test_elementwise_list(gd_kernel_call *call);
void test_reshape(gd_kernel_call *call);

/* kernels_reduce.c */
void test_matmul(gd_kernel_call *call);
void test_max(gd_kernel_call *call);
void test_max_with_index(gd_kernel_call *call);
void test_min(gd_kernel_call *call);
void test_min_with_index(gd_kernel_call *call);
void test_prod(gd_kernel_call *call);
void test_sum(gd_kernel_call *call);

/* kernels_lines.c */
void test_cumprod(gd_kernel_call *call);
void test_cumsum(gd_kernel_call *call);
void test_linear_recurrence(gd_kernel_call *call);
void test_sort(gd_kernel_call *call);

/* kernels_index.c */
void test_check_range(gd_kernel_call *call);
void test_gather(gd_kernel_call *call);
void test_scatter(gd_kernel_call *call);
void test_scatter_add(gd_kernel_call *call);
void test_scatter_extreme(gd_kernel_call *call);
void test_scatter_mul(gd_kernel_call *call);

/* kernels_create.c */
void test_arange(gd_kernel_call *call);
void test_assign(gd_kernel_call *call);
void test_full(gd_kernel_call *call);
void test_group(gd_kernel_call *call);
void test_key_normals(gd_kernel_call *call);
void test_key_words(gd_kernel_call *call);
void test_key_multinomial(gd_kernel_call *call);
void test_random_key(gd_kernel_call *call);

/* --- kernels of dynamic ops, which run on the calling thread (kernels_index.c) ---------------- */

gd_status test_nonzero(gd_kernel_call *call);
gd_status test_one_hot_found(gd_kernel_call *call);

#endif
