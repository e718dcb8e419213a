/* operator_table.h - the table that maps ops to ONNX operators, and the text of its rows.
 *
 * Order: rows; the words of a row; lookups in the records of the ops that rows name.
 */
#ifndef GRADUS_ONNX_OPERATOR_TABLE_H
#define GRADUS_ONNX_OPERATOR_TABLE_H

#include "onnx/onnx.h"

typedef struct gd_onnx_call gd_onnx_call;
typedef struct gd_onnx_loader gd_onnx_loader;
typedef struct gd_onnx_saver gd_onnx_saver;

/* --- rows ------------------------------------------------------------------------------------- */

/* A row holds three texts, each a list of words with a space between them.
 *
 * inputs, in ONNX's order (NULL: those of the op's record, in the order of the record):
 *     x              the op's input x
 *     weight|1       the op's input weight; if it is absent, a tensor of ones, one for each channel
 *     axes:axis      the op's option `axis`, as a list; in older files an attribute `axes`
 *     axes:axis/CONVERSION  the same, with the list converted (gd_onnx_convert_list)
 *     axes:axis/all  an empty or absent list means all axes, or none if the node's attribute
 *                    noop_with_empty_axes is set
 *     k=diagonal     the op's option `diagonal`, as a tensor of rank 0
 * attributes:
 *     alpha=slope    ONNX's alpha is the op's option `slope`
 *     keepdims=keepdim~1   the same, and ONNX's default is 1 (without ~: the op's default)
 *     pads=padding*2       the list `padding`, twice in succession
 *     axis=dims/CONVERSION the op's option `dims`, converted
 *     strides=stride|kernel      the option `stride`; if it is not given, the option `kernel`
 *     mode=mode,replicate:edge   the word `replicate` of the op is ONNX's `edge`
 *     transB!1~0     ONNX's transB must be 1; its default is 0
 *     kernel_shape?  ignored: it follows from the inputs
 * when, the conditions for the row:
 *     training=false the option has this value
 *     x:rank=4 x:rank>1 x:int x:float x:f64   the rank or the dtype of input x
 *     x:rank_of=index      x has the rank of input index
 */
typedef struct gd_onnx_row {
    const char *op;
    const char *name; /* of the ONNX operator; NULL: the op's record has it */
    const char *inputs, *attributes, *when;
    /* Casts of the inputs when a call is saved: a letter for each input; the last letter also
     * applies to all inputs that follow. NULL: no cast, except for an elementwise op: y, or o if it
     * compares.
     *     y  to the output's dtype                    b  to bool
     *     i  to an integer type for ONNX's indices    w  from bf16 to f32, and the result back
     *     p  to the dtype that the inputs promote to  o  the same, but i32 instead of bool
     *     -  no cast */
    const char *cast;
    /* A further condition for saving a call by this row; NULL: none. */
    bool (*can_save)(const gd_onnx_call *call);
    /* In place of the three texts: the op's body for saving; a function that loads the node; a
     * function that saves the call. `save` leaves *done false if it cannot save this call. */
    void (*body)(gd_expand *expand);
    gd_status (*load)(gd_onnx_loader *loader, const gd_pb *node);
    gd_status (*save)(gd_onnx_saver *saver, const gd_onnx_call *call, bool *done);
} gd_onnx_row;

extern const gd_onnx_row gd_onnx_rows[];
extern const int gd_onnx_row_count;

/* The name of a row's ONNX operator. */
const char *gd_onnx_row_name(const gd_onnx_row *row);

/* The row that follows from the record of an elementwise op; false if there is none. */
bool gd_onnx_implied_row(const gd_op *op, gd_onnx_row *row);

/* --- the words of a row ----------------------------------------------------------------------- */

enum { GD_ONNX_WORD = 48 };

typedef struct gd_onnx_input {
    enum { GD_ONNX_TENSOR, GD_ONNX_LIST, GD_ONNX_NUMBER } kind;
    char onnx[GD_ONNX_WORD]; /* ONNX's name of a list or a number */
    char ours[GD_ONNX_WORD]; /* the op's input or option */
    char conversion[GD_ONNX_WORD];
    bool has_fill; /* an absent input is filled with `fill` */
    double fill;
} gd_onnx_input;

typedef struct gd_onnx_attribute {
    char onnx[GD_ONNX_WORD];
    char ours[GD_ONNX_WORD];         /* "": fixed, or ignored */
    char fixed[GD_ONNX_WORD];        /* the only value that the row supports; or "" */
    char onnx_default[GD_ONNX_WORD]; /* "": the op's default */
    char fallback[GD_ONNX_WORD];     /* the option that is used if `ours` is not given */
    char conversion[GD_ONNX_WORD];
    char renames[2 * GD_ONNX_WORD]; /* of words: ",ours:onnx,ours:onnx" */
    bool twice;
} gd_onnx_attribute;

typedef struct gd_onnx_condition {
    char name[GD_ONNX_WORD], value[GD_ONNX_WORD];
    enum {
        GD_ONNX_OPTION,
        GD_ONNX_RANK_IS,
        GD_ONNX_RANK_ABOVE,
        GD_ONNX_IS_INT,
        GD_ONNX_IS_FLOAT,
        GD_ONNX_IS_DTYPE, /* `value` */
        GD_ONNX_SAME_RANK /* as input `value` */
    } kind;
} gd_onnx_condition;

/* Parses the next word and moves `text` behind it; false at the end. */
bool gd_onnx_next_input(const char **text, gd_onnx_input *input);
bool gd_onnx_next_attribute(const char **text, gd_onnx_attribute *attribute);
bool gd_onnx_next_condition(const char **text, gd_onnx_condition *condition);

/* --- the records of ops ----------------------------------------------------------------------- */

const gd_op_attr *gd_onnx_find_option(const gd_op *op, const char *name); /* NULL: no such option */
int gd_onnx_input_index(const gd_op *op, const char *name);               /* -1: no such input */
/* The text of a word option's value. */
const char *gd_onnx_word_text(const gd_op_attr *attr, gd_word value, char word[GD_ONNX_WORD]);
/* Copies the integers of an int, int[n] or int[] option; returns their count, -1 if not given. */
int gd_onnx_option_numbers(const gd_op_attr *attr, const void *attrs, int64_t *numbers);

#endif
