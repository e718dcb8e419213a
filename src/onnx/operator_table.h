/* operator_table.h - how ops are mapped to ONNX operators: rows of text and functions.
 *
 * An op that needs one row without functions has it in its record, behind the word `onnx`. The
 * table has all other rows. Order: rows; lookups in the records of the ops that rows name.
 */
#ifndef GRADUS_ONNX_OPERATOR_TABLE_H
#define GRADUS_ONNX_OPERATOR_TABLE_H

#include "codegen/operator_text.h"
#include "onnx/onnx.h"

typedef struct gd_onnx_call gd_onnx_call;
typedef struct gd_onnx_loader gd_onnx_loader;
typedef struct gd_onnx_saver gd_onnx_saver;

/* --- rows ------------------------------------------------------------------------------------- */

/* codegen/operator_text.h has the words of inputs, attributes, when and cast. */
typedef struct gd_onnx_row {
    const char *op;
    const char *name; /* of the ONNX operator; NULL: the op's record has it */
    const char *inputs, *attributes, *when, *cast;
    /* A further condition for saving a call by this row; NULL: none. */
    bool (*can_save)(const gd_onnx_call *call);
    /* In place of these texts: the op's body for saving; a function that loads the node; a
     * function that saves the call. `save` leaves *done false if it cannot save this call. */
    void (*body)(gd_expansion *expand);
    gd_status (*load)(gd_onnx_loader *loader, const gd_pb *node);
    gd_status (*save)(gd_onnx_saver *saver, const gd_onnx_call *call, bool *done);
} gd_onnx_row;

/* The table. */
extern const gd_onnx_row gd_onnx_rows[];
extern const int gd_onnx_row_count;

/* Whether nodes of a file are loaded by the row: it may be for saving only. */
bool gd_onnx_row_loads(const gd_onnx_row *row);

/* The name of a row's ONNX operator. */
const char *gd_onnx_row_name(const gd_onnx_row *row);

/* The row of an op's record: its text behind the name of the operator. An elementwise op that has
 * no row in the table needs no text, if its options have the names of ONNX's attributes. False:
 * there is none. */
bool gd_onnx_record_row(const gd_op *op, gd_onnx_row *row);

/* Gets the rows of an op one by one: that of its record, then those of the table. *at is 0 at
 * first. False: there are no more. */
bool gd_onnx_next_row(const gd_op *op, int *at, gd_onnx_row *row);

/* --- the records of ops ----------------------------------------------------------------------- */

const gd_op_attr *gd_onnx_find_option(const gd_op *op, const char *name); /* NULL: no such option */
int gd_onnx_input_index(const gd_op *op, const char *name);               /* -1: no such input */
/* The text of a word option's value. */
const char *gd_onnx_word_text(const gd_op_attr *attr, gd_word value, char word[GD_OPERATOR_WORD]);
/* Copies the integers of an int, int[n] or int[] option; returns their count, -1 if not given. */
int gd_onnx_option_numbers(const gd_op_attr *attr, const void *attrs, int64_t *numbers);

#endif
