/* row_program.h - row programs: several passes over each row of a tensor, with reductions.
 *
 * softmax written by hand, exp(x - max) / sum, is three passes: one computes the maximum, one the
 * sum of the exponentials, one writes the quotients. A number that belongs to an entire row (the
 * maximum, the sum, and values computed from them) is a row value; expressions read it as a
 * parameter. A value that is expensive to compute and needed by several passes is kept in a row of
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
    /* The vector dialect sums chunks of this many elements and adds the sums of chunks in f64. */
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
    gd_ir each; /* expression of each element. Variables: the tensors, then the kept rows */
    int once_to[GD_IR_MAX_OUTPUTS];
    gd_row_use use[GD_IR_MAX_OUTPUTS];
    int number[GD_IR_MAX_OUTPUTS]; /* the row value, kept row or result that output k becomes */
    int ways; /* independent accumulators, so that an addition need not wait for the one before */
} gd_row_pass;

typedef struct gd_row_program {
    int n_tensors, n_params; /* in expressions, row values are parameters from n_params on: */
    int n_columns, n_values; /* first the columns (inputs with one value for each row), then those
                                that are computed; n_values counts both */
    int n_kept, n_results, n_passes;
    /* The row value that a result with one value for each row is. -1: the result has one for each
     * element. */
    int value_of[GD_ROW_RESULTS];
    gd_row_pass pass[GD_ROW_PASSES];
    gd_ir_node nodes[GD_ROW_NODES];
    int n_nodes;
} gd_row_program;

/* --- building --------------------------------------------------------------------------------- */

/* An expression over elements and row values, in a builder. Its variables are the tensors. Its
 * parameters are n_params parameters, then the columns, then the results of the reductions. */
typedef struct gd_row_program_request {
    const gd_ir_builder *b;
    int n_tensors, n_params, n_columns, n_reductions, n_results;
    gd_row_use fold[GD_ROW_REDUCTIONS];
    int reduced[GD_ROW_REDUCTIONS]; /* the node whose values are reduced */
    int result[GD_ROW_RESULTS];
    bool is_row[GD_ROW_RESULTS]; /* the result has one value for each row */
} gd_row_program_request;

/* Splits the expression into passes. False: it is too long. */
bool gd_row_program_make(const gd_row_program_request *request, gd_row_program *rows);

/* --- using ------------------------------------------------------------------------------------ */

void gd_row_program_copy(gd_row_program *to, const gd_row_program *from);
bool gd_row_program_same(const gd_row_program *a, const gd_row_program *b);
uint64_t gd_row_program_hash(const gd_row_program *rows);
bool gd_row_reduces(gd_row_use use); /* whether it is a reduction */

#endif
