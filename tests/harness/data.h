/* data.h - the input data of a case: a pure function of the op, the case's text, the input's name
 * and the element's index, so that every run on every machine has the same data. */
#ifndef GRADUS_TESTS_HARNESS_DATA_H
#define GRADUS_TESTS_HARNESS_DATA_H

#include "cases.h"

/* Memory layouts of an input. Memory between the elements holds garbage. */
typedef enum layout {
    LAYOUT_ROWS,     /* row-major */
    LAYOUT_COLUMNS,  /* dims in reverse order: a transposed view */
    LAYOUT_STEPPED,  /* every other element of each dim: a slice with a step */
    LAYOUT_EXPANDED, /* one dim with stride 0: all its indices have the values of index 0 */
    LAYOUT_COUNT
} layout;
const char *layout_name(layout kind);

/* Whether the layout is possible for this shape and differs from row-major. */
bool layout_applies(layout kind, const case_item *item);

/* Input tensor i of the case in a layout, and in this dtype unless the case gives one. With
 * `like_expanded` the tensor has the values that LAYOUT_EXPANDED gives. NULL: absent. */
gd_tensor *case_tensor(const test_case *c, int i, gd_dtype dtype, layout kind, bool like_expanded);

/* The dtype of input tensor i in this variant; GD_DTYPE_NONE: absent. */
gd_dtype case_dtype(const test_case *c, int i, gd_dtype dtype);

/* Fills n elements of a dtype with data of a kind. */
void data_fill(uint64_t seed, const case_item *item, gd_dtype dtype, int64_t n, void *data);

/* Gradients are those of a loss: the sum of all outputs times fixed weights. This is the weight of
 * element i of output k; golden/make.py has the same formula. */
double loss_weight(int k, int64_t i);
gd_tensor *loss_weights(const gd_tensor *y, int k);

#endif
