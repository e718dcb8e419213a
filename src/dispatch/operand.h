/* operand.h - calls of elementwise ops with numbers among their operands (gradus/operand.h). */
#ifndef GRADUS_DISPATCH_OPERAND_H
#define GRADUS_DISPATCH_OPERAND_H

#include "dispatch/op.h"
#include "gradus/operand.h"

/* Turns the numbers among the operands, one for each input of the op, into tensors of rank 0. Bit i
 * of `deciding`: operand i takes part in the promotion that decides their dtype. The tensors belong
 * to a scope that gd_operands_end closes; it hands out the result of the call. */
gd_scope *gd_operands_begin(const gd_op *op, const char *site, gd_operand *const *operands,
                            unsigned deciding);
gd_tensor *gd_operands_end(gd_scope *scope, gd_tensor *result);

#endif
