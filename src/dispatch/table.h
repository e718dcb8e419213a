/* table.h - how the op table (op_table.c) and the kernel table (kernel_table.c) are filled. */
#ifndef GRADUS_DISPATCH_TABLE_H
#define GRADUS_DISPATCH_TABLE_H

#include "dispatch/op.h"

/* Adds an op of the program, with its reference kernel. */
gd_status gd_op_insert(const gd_op *op);

/* Finds an op without the table's lock, for gd_read_kernels. NULL: there is none. */
const gd_op *gd_op_lookup(const char *name);

/* Adds the kernels of all records, after the ops; gd_table_fill calls it once. */
void gd_read_kernels(void);

/* Adds a kernel to an op that no other thread uses yet. `op` is NULL for kernels that serve many
 * ops: "elementwise", "elementwise_list", "fused_reduction". */
gd_status gd_kernel_insert(const gd_op *op, const gd_kernel *kernel);

#endif
