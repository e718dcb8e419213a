/* epilogue.h - functions of the passes that combine steps (epilogue.c, fold_norm.c,
 * linear_gradients.c, ...). `inner` is the step whose result `outer` reads. */
#ifndef GRADUS_GRAPH_PASSES_EPILOGUE_H
#define GRADUS_GRAPH_PASSES_EPILOGUE_H

#include <string.h>

#include "graph/passes/passes.h"
#include "graph/passes/uses.h"

/* Whether the step is a call of the op of this name; list steps and views are none. */
static inline bool gd_step_is(const gd_pstep *s, const char *op) {
    return !s->removed && !s->view && !s->each && strcmp(s->op->name, op) == 0;
}

/* Makes the options of `op` from the options with the same names of both steps; `inner` may be
 * NULL. False: a step has an option that `op` lacks, at another value than its default; or no
 * memory. */
bool gd_take_options(gd_program *p, const gd_op *op, const gd_pstep *inner, const gd_pstep *outer,
                     const void **options);
/* The step of op `f->inner` whose result step `at`, of op `f->outer`, reads as its inner operand;
 * -1: it is another op, or the result has other readers. `readers` is from gd_program_readers. */
int gd_inner_step(const gd_uses *uses, const gd_op_fuses *f, int at, const int *readers);
/* Copies operand k of a step to in[positions[k]], and increases *n_in to include it. */
bool gd_take_operands(const gd_pstep *s, const int8_t *positions, int n_positions, int *in,
                      int *n_in);
/* Whether the shape rule of the step's op accepts its operands and results, and the device has a
 * kernel. */
bool gd_step_can_run(const gd_program *p, const gd_pstep *s, gd_device *device);
/* Whether step `s` can run after the steps up to `end`, or, with `earlier`, before the steps from
 * `end` on: none of them reads or writes its results, or writes its operands; step `but` is not
 * considered. */
bool gd_step_can_move(const gd_uses *uses, int s, int end, bool earlier, int but);

#endif
