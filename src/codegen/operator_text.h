/* operator_text.h - how an op is written as an operator of another system, as text.
 *
 * A text has three lists, each of words with a space between them, and letters for casts.
 *
 * inputs, in the operator's order (NULL: those of the op's record, in the order of the record):
 *     x              the op's input x
 *     weight|1       the op's input weight; if it is absent, a tensor of ones, one for each channel
 *     axes:axis      the op's option `axis`, as a list; in older files an attribute `axes`
 *     axes:axis/CONVERSION  the same, with the list converted (gd_onnx_convert_list): pads,
 *                    nonnegative, trailing_axes, broadcast
 *     axes:axis/all  an empty or absent list means all axes, or none if the node's attribute
 *                    noop_with_empty_axes is set
 *     k=diagonal     the op's option `diagonal`, as a tensor of rank 0
 * attributes:
 *     alpha=slope    the operator's alpha is the op's option `slope`
 *     keepdims=keepdim~1   the same, and the operator's default is 1 (without ~: the op's default)
 *     pads=padding*2       the list `padding`, twice in succession
 *     axis=dims/CONVERSION the op's option `dims`, converted
 *     strides=stride|kernel      the option `stride`; if it is not given, the option `kernel`
 *     mode=mode,replicate:edge   the word `replicate` of the op is the operator's `edge`
 *     transB!1~0     the operator's transB must be 1; its default is 0
 *     kernel_shape?  ignored: it follows from the inputs
 * when, the conditions for the operator:
 *     training=false the option has this value
 *     x:rank=4 x:rank>1 x:int x:float x:f64   the rank or the dtype of input x
 *     x:rank_of=index      x has the rank of input index
 *     saving         only calls are saved so; files are loaded by another text or function
 * cast, what the inputs are cast to when a call is saved: a letter for each input; the last letter
 * also applies to all inputs that follow. NULL: no cast, except for an elementwise op: y, or o if
 * it compares.
 *     y  to the output's dtype                    b  to bool
 *     i  to an integer type for ONNX's indices    w  from bf16 to f32, and the result back
 *     p  to the dtype that the inputs promote to  o  the same, but i32 instead of bool
 *     -  no cast
 */
#ifndef GRADUS_CODEGEN_OPERATOR_TEXT_H
#define GRADUS_CODEGEN_OPERATOR_TEXT_H

#include "gradus/op.h"

/* The name of an operator; NULL or "": the op has none. NULL lists are empty. */
typedef struct gd_operator_text {
    const char *name;
    const char *inputs, *attributes, *when, *cast;
} gd_operator_text;

/* The sizes of a part of a word, and of a word. */
enum { GD_OPERATOR_WORD = 48, GD_OPERATOR_MAX = 96 };

typedef struct gd_operator_input {
    enum { GD_OPERATOR_TENSOR, GD_OPERATOR_LIST, GD_OPERATOR_NUMBER } kind;
    char theirs[GD_OPERATOR_WORD]; /* the operator's name of a list or a number */
    char ours[GD_OPERATOR_WORD];   /* the op's input or option */
    char conversion[GD_OPERATOR_WORD];
    bool has_fill; /* an absent input is filled with `fill` */
    double fill;
    bool bad; /* the word has none of these forms; also below */
} gd_operator_input;

typedef struct gd_operator_attribute {
    char theirs[GD_OPERATOR_WORD];
    char ours[GD_OPERATOR_WORD];          /* "": fixed, or ignored */
    char fixed[GD_OPERATOR_WORD];         /* the only value that the text supports; or "" */
    char their_default[GD_OPERATOR_WORD]; /* "": the op's default */
    char fallback[GD_OPERATOR_WORD];      /* the option that is used if `ours` is not given */
    char conversion[GD_OPERATOR_WORD];
    char renames[2 * GD_OPERATOR_WORD]; /* of words: ",ours:theirs,ours:theirs" */
    bool twice, bad;
} gd_operator_attribute;

typedef struct gd_operator_condition {
    char name[GD_OPERATOR_WORD], value[GD_OPERATOR_WORD];
    enum {
        GD_OPERATOR_OPTION,
        GD_OPERATOR_RANK_IS,
        GD_OPERATOR_RANK_ABOVE,
        GD_OPERATOR_IS_INT,
        GD_OPERATOR_IS_FLOAT,
        GD_OPERATOR_IS_DTYPE,  /* `value` */
        GD_OPERATOR_SAME_RANK, /* as input `value` */
        GD_OPERATOR_SAVING
    } kind;
    bool bad;
} gd_operator_condition;

/* Copies the next word of a list and moves `text` behind it; false at the end. */
bool gd_operator_next_word(const char **text, char *word, size_t size);
/* The same, parsed. */
bool gd_operator_next_input(const char **text, gd_operator_input *input);
bool gd_operator_next_attribute(const char **text, gd_operator_attribute *attribute);
bool gd_operator_next_condition(const char **text, gd_operator_condition *condition);

/* Whether the list `when` has the word `saving`. */
bool gd_operator_only_saves(const char *when);

/* The inputs and options that a text can name. */
typedef struct gd_operator_owner {
    const gd_op_param *inputs;
    int n_inputs;
    const gd_op_attr *attrs;
    int n_attrs;
    bool in_table; /* a row of the library's own table may use conversions that are for its op */
} gd_operator_owner;

/* Checks all words of a text. False: `error` says which one is wrong, and why. */
bool gd_operator_check(const gd_operator_text *text, const gd_operator_owner *op, char *error,
                       size_t size);

#endif
