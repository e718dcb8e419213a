/* stages.h - splits an expression into stages, each a separate loop over a small block.
 *
 * exp, tanh, erf and similar primitives are long: some twenty instructions, each of which depends
 * on the one before. A processor hides their latency by working on several vectors at once, as many
 * as fit into its instruction window. If one long primitive depends on another, fewer vectors fit,
 * and tanh(erf(x)) in one loop takes 1.3 to 1.5 times as long as in two. So there are two loops,
 * and a block of values passes from the first to the second through a buffer in the first-level
 * cache.
 */
#ifndef GRADUS_CODEGEN_STAGES_H
#define GRADUS_CODEGEN_STAGES_H

#include "codegen/ir.h"

enum { GD_STAGE_BYTES = 1024 /* of a buffer */, GD_STAGE_BUFFERS = 8 };

typedef struct gd_stages {
    int count; /* 1: all in one loop */
    int n_buffers;
    int16_t stage[GD_IR_MAX_NODES];  /* the stage of a primitive; -1 for other nodes */
    int16_t buffer[GD_IR_MAX_NODES]; /* the buffer of a node that a later stage reads; else -1 */
} gd_stages;

/* Assigns primitives to stages. `real`: the compute type is a float. There is one stage for
 * integers, and for an expression that would need more than GD_STAGE_BUFFERS. Outputs are stored in
 * the last stage, so that they may alias variables. */
void gd_find_stages(const gd_ir *ir, bool real, gd_stages *stages);

/* Whether a stage loads a variable, or the buffer of a node of an earlier stage. */
bool gd_stage_reads_var(const gd_ir *ir, const gd_stages *stages, int stage, int number);
bool gd_stage_reads_node(const gd_ir *ir, const gd_stages *stages, int stage, int node);

#endif
