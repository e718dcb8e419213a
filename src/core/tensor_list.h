/* tensor_list.h - lists of tensors that a scope owns. */
#ifndef GRADUS_CORE_TENSOR_LIST_H
#define GRADUS_CORE_TENSOR_LIST_H

#include "core/tensor.h"

gd_tensor **gd_list_new(int64_t count); /* NULL: no memory. Entries start as NULL */

/* For tensors that other objects hold: takes a reference to each for the scope, or, without one,
 * for the caller. */
gd_status gd_list_hold(gd_tensors list);

/* Without a scope: frees a list that is not returned, but none of its tensors. */
void gd_list_drop(gd_tensors list);

/* gd_scope_hand_out for a list and its entries, of which some can be NULL. Without an enclosing scope
 * a list that the scope does not hold is replaced by a copy. */
gd_status gd_hand_out_list(gd_tensors *list);

/* A list of error tensors for a failed call; count 0: GD_FAILED_COUNT of them. Without memory it is
 * a static list of at most GD_FEW_ERRORS. */
enum { GD_FEW_ERRORS = 1024 };
gd_tensors gd_list_of_errors(int64_t count);

#endif
