/* call.h - attributes and calls by name; helpers of the generated typed calls. */
#ifndef GRADUS_OPS_CALL_H
#define GRADUS_OPS_CALL_H

#include "ops/op.h"

enum { GD_MAX_VARIADIC = 256 };

/* Puts a list behind `fixed` inputs and returns how many there are then, or GD_BAD_LIST. */
int gd_join_inputs(gd_tensor **in, int fixed, gd_tensors list);

/* List options written as one number: fills in the rest. */
void gd_attrs_normalize(const gd_op *op, void *attrs);

/* Words must be among the record's, lists must have kept their length. */
gd_status gd_attrs_check(const gd_op *op, const void *attrs);

/* The options struct inside. */
const void *gd_attrs_data(const gd_attrs *attrs);

/* An attribute as a number, for expressions. */
double gd_attr_number(const gd_op_attr *attr, const void *attrs);

/* Copies src into dst (same dims, any strides and dtypes) on its device. */
gd_status gd_copy_tensor(gd_tensor *dst, gd_tensor *src);

#endif
