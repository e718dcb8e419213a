/* data.h - the numbers of a case: a pure function of the case's text, the input's name and the
 * element's number, so that they are the same in every run and on every machine. */
#ifndef GRADUS_TESTS_DATA_H
#define GRADUS_TESTS_DATA_H

#include "cases.h"

/* How a tensor lies in memory. What lies between the elements of a spread-out one is garbage. */
typedef enum layout {
    LAYOUT_ROWS,     /* row-major */
    LAYOUT_COLUMNS,  /* dims in reverse order: a transposed view */
    LAYOUT_STEPPED,  /* every other element of each dim: a slice with a step */
    LAYOUT_EXPANDED, /* one dim repeated: its values are those of index 0 all along */
    LAYOUT_COUNT
} layout;
const char *layout_name(layout kind);

/* Whether the layout differs from row-major for this shape. */
bool layout_applies(layout kind, const case_item *item);

/* Input tensor i of the case in a dtype (unless the case gives one) and a layout. With
 * `like_expanded` a row-major tensor has the values of the expanded one. NULL: absent. */
gd_tensor *case_tensor(const test_case *c, int i, gd_dtype dtype, layout kind, bool like_expanded);

/* The dtype input tensor i has in this variant; GD_DTYPE_NONE where absent. */
gd_dtype case_dtype(const test_case *c, int i, gd_dtype dtype);

/* Fills n elements of a dtype with data of a kind. */
void data_fill(uint64_t seed, const case_item *item, gd_dtype dtype, int64_t n, void *data);

/* The weight of element i of output k in the loss whose gradient is compared. make.py has the same
 * formula. */
double loss_weight(int k, int64_t i);
gd_tensor *loss_weights(const gd_tensor *y, int k);

#endif
