/* record.h - the text of an op record, parsed.
 *
 * The same parser serves the build's generator, which finds records in comment blocks, and
 * gd_op_define, which gets them from the user's program. The form:
 *
 *     name(inputs and required attributes) -> outputs   flags
 *     Documentation, one line or more. Lines that begin with "- " are items of a list.
 *       attribute type = default     its documentation
 *       y  = expression              (elementwise ops)
 *       gx = expression              (optional: else derived from y)
 *       saves x, y                   (what the gradient reads; default: all inputs)
 *       neutral a 1, b 1             (of two inputs: where one is this number everywhere, the result is
 *                                    the other)
 *       control branch               (branch, while, scan, gradients: facts.h explains this and those below)
 *       reduces sum                  (sum, mean, max, min)
 *       fills value                  (every element of the result is this option)
 *       index x < weight[0]          (or it fails; also x[axis], classes, dims[1] or ignore_index, x[-2:]: the
 *                                    last two sizes multiplied)
 *       gives indices < x[axis]      (of an output; said in the same ways)
 *       fuses relu(linear(x, w, b))  (plans make it of these two; one of several: conv1d|conv2d)
 *       onnx Name   caffe Name
 *
 * Inputs: `x`, `b?` optional, `xs*` any number, `x!` mutated (also `x!?`). Required attributes:
 * `dims:int[]`. Outputs: `y`, `ys*`, `mask~` hidden. Types: int, float, number (a float, or an
 * integer of 64 bits without loss), bool, dtype, string, int[1..3], int[], float[] (not of ops),
 * {word, word}, tensor? (an optional input that is given by name; tensor!?: the op writes it).
 * CONTRIBUTING.md explains the flags; gd_record_each_word lists all words.
 * Lines of attributes and expressions are indented by two or more; documentation is not.
 *
 * The generator reads one text for several ops as well, conv{1,2,3}d(x, w): see opgen/variants.h. The
 * parser sees the text of one.
 *
 * What else is made by name (layers, optimizers, schedules, initializers) has a record of the same form,
 * in which inputs, outputs and the parentheses may be missing:
 *
 *     conv2d(x, in_channels:int, out_channels:int, kernel:int[2]) -> y  of conv2d
 *     Documentation.
 *       bias bool = true
 *       options of conv2d            (those of that op which are not named here; `but training, eps`: without these)
 *       finds in_channels x[1]       (an option that may be GD_ANY: the size of an input)
 *
 * `of OP`: a layer calls that op with its inputs and its parameters.
 */
#ifndef GRADUS_CODEGEN_RECORD_H
#define GRADUS_CODEGEN_RECORD_H

#include "codegen/facts.h"
#include "codegen/ir.h"
#include "gradus/op.h"

enum { GD_RECORD_MAX = 24, GD_RECORD_WORDS = 16, GD_MAX_FINDS = 4 };

/* An option that is the size of an input where it is not given. */
typedef struct gd_record_find {
    const char *option;
    int input, axis;
} gd_record_find;

/* The name of an expression's left side, and its text. */
typedef struct gd_record_expr {
    char *name, *text;
} gd_record_expr;

typedef struct gd_record {
    char *text; /* all strings below point into it */
    char *name, *doc, *onnx, *caffe;
    unsigned flags;
    bool inplace_too; /* has a twin that writes its first input */
    gd_op_param inputs[GD_RECORD_MAX], outputs[GD_RECORD_MAX];
    int n_inputs, n_outputs;
    gd_op_attr attrs[GD_RECORD_MAX];
    int n_attrs;
    int order[2 * GD_RECORD_MAX]; /* positional arguments: input i as i, attribute k as ~k */
    int n_order;
    gd_record_expr exprs[GD_RECORD_MAX];
    int n_exprs;
    uint32_t saves_in, saves_out; /* bit i: input, output i */
    gd_op_facts facts;
    bool maker;        /* no op */
    char *of;          /* of a maker: the op that it calls; NULL: none */
    char *options_of;  /* the op whose options it has, too; NULL: none */
    char *options_but; /* a list of those that it does not have */
    gd_record_find finds[GD_MAX_FINDS];
    int n_finds;
    char error[256]; /* "" when the record is right */
    int error_line;
} gd_record;

/* Parses `text`, which is changed and must outlive the record. Returns false with error set. */
bool gd_record_parse(gd_record *record, char *text);

/* The same for what is no op: a layer, an optimizer ... */
bool gd_record_parse_maker(gd_record *record, char *text);

/* Visits every word that has a meaning in records: flags, types, and first words of lines. */
void gd_record_each_word(void (*visit)(const char *word));

/* Adds the options of the op that `options of` names. */
bool gd_record_add_options(gd_record *record, const gd_op_attr *attrs, int count);

/* The IR of an elementwise record: variables are the inputs, parameters the attributes. */
bool gd_record_forward(gd_record *record, gd_ir *ir, gd_ir_node *nodes);

/* The IR of the gradient of input i. Variables: the gradients of the outputs, then the inputs,
 * then the outputs. */
bool gd_record_gradient(gd_record *record, int input, gd_ir *ir, gd_ir_node *nodes);

/* The same gradient for an op that has only its IR (a derived op). */
bool gd_ir_gradient(const gd_ir *forward, int n_inputs, int input, gd_ir *ir, gd_ir_node *nodes);

/* The expressions of an op that writes inputs, with one more variable behind them: where it is not 0,
 * what is written is what was there. False: they are too long. */
bool gd_ir_unless(const gd_ir *forward, const gd_op_param *inputs, int n_inputs, gd_ir *ir,
                  gd_ir_node *nodes);

/* Renumbers an IR's variables so that only those it uses are left; `used` gets their old numbers.
 * Returns how many there are. */
int gd_ir_compact(gd_ir *ir, gd_ir_node *nodes, int *used);

/* A hash of an IR's content: equal expressions have equal kernels. */
uint64_t gd_ir_hash(const gd_ir *ir);

#endif
