/* row_program.h - passes over the rows of a tensor, with reductions of the row between them.
 *
 * softmax written by hand, exp(x - max) / sum, is three passes: one for the maximum, one for the
 * sum of the exponentials, one that writes the quotients. A number that belongs to the entire row
 * (the maximum, the sum, and what is computed from them) is a row value; an expression reads it as
 * a parameter. A value that is costly to compute and needed by several passes is kept in a row of
 * memory between them.
 *
 * Like ir.h it depends on the C library alone.
 */
#ifndef GRADUS_CODEGEN_ROW_PROGRAM_H
#define GRADUS_CODEGEN_ROW_PROGRAM_H

#include "codegen/ir.h"

enum {
    GD_ROW_REDUCTIONS = 8,
    GD_ROW_RESULTS = 4,
    GD_ROW_KEPT = 4,
    GD_ROW_PASSES = GD_ROW_REDUCTIONS + 1,
    GD_ROW_COLUMNS = 8,
    GD_ROW_VALUES = 32,
    GD_ROW_NODES = 512,
    /* The vector dialect sums chunks of this many elements, and adds the sums in f64. */
    GD_ROW_CHUNK = 512,
};

/* How an output of a pass is used. */
typedef enum gd_row_use {
    GD_ROW_SUM,
    GD_ROW_MAX,
    GD_ROW_MIN,
    GD_ROW_KEEP,
    GD_ROW_STORE
} gd_row_use;

typedef struct gd_row_pass {
    /* Row values that are computed before the pass; output k becomes value once_to[k]. */
    gd_ir once;
    gd_ir each; /* of each element. Variables: the tensors, then the rows that are kept */
    int once_to[GD_IR_MAX_OUTPUTS];
    gd_row_use use[GD_IR_MAX_OUTPUTS];
    int number[GD_IR_MAX_OUTPUTS]; /* the row value, kept row or result that output k goes to */
    int ways; /* accumulators side by side, so that an addition does not wait for the last one */
} gd_row_pass;

typedef struct gd_row_program {
    int n_tensors, n_params; /* parameters are followed by the row values: */
    int n_columns, n_values; /* first the columns, one number for each row, then what is computed */
    int n_kept, n_results, n_passes;
    /* Of a result with one number for each row: the row value. -1: it has one for each element. */
    int value_of[GD_ROW_RESULTS];
    gd_row_pass pass[GD_ROW_PASSES];
    gd_ir_node nodes[GD_ROW_NODES];
    int n_nodes;
} gd_row_program;

/* --- building --------------------------------------------------------------------------------- */

/* One expression over elements and row values, in a builder. Variables are the tensors. Parameters:
 * n_params, then one for each column, then one for each reduction. */
typedef struct gd_row_program_request {
    const gd_ir_builder *b;
    int n_tensors, n_params, n_columns, n_reductions, n_results;
    gd_row_use fold[GD_ROW_REDUCTIONS];
    int reduced[GD_ROW_REDUCTIONS]; /* the node whose values are reduced */
    int result[GD_ROW_RESULTS];
    bool is_row[GD_ROW_RESULTS]; /* one number for each row */
} gd_row_program_request;

/* Cuts it into passes. False where it is too long. */
bool gd_row_program_make(const gd_row_program_request *request, gd_row_program *rows);

/* --- using ------------------------------------------------------------------------------------ */

void gd_row_program_copy(gd_row_program *to, const gd_row_program *from);
bool gd_row_program_same(const gd_row_program *a, const gd_row_program *b);
uint64_t gd_row_program_hash(const gd_row_program *rows);
bool gd_row_folds(gd_row_use use);

#endif
