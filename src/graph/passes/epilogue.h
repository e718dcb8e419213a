/* epilogue.h - what passes share that make one step of two (passes/epilogue.c, passes/fold_norm.c). */
#ifndef GRADUS_GRAPH_EPILOGUE_H
#define GRADUS_GRAPH_EPILOGUE_H

#include "graph/lower/program.h"

/* The options of `op`, from those of the same names of both steps; `inner` may be NULL. False: a step
 * has an option that `op` lacks, and not at its default, or there is no memory. */
bool gd_take_options(gd_program *p, const gd_op *op, const gd_pstep *inner, const gd_pstep *outer,
                     const void **options);
/* The step of `f->inner` whose result step `at`, of `f->outer`, reads at its place; -1: it is another
 * one, or somebody else reads that, too. `readers` is that of gd_program_readers. */
int gd_inner_step(const gd_program *p, const gd_op_fuses *f, int at, const int *readers);
/* Takes a step's operands to where an op has them, of which n_in grows. */
bool gd_take_operands(const gd_pstep *s, const int8_t *places, int n_places, int *in, int *n_in);
/* Whether the step's op takes its operands and gives its results, and has a kernel on the device. */
bool gd_step_can_run(const gd_program *p, const gd_pstep *s, gd_device *device);

#endif
