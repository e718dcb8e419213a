/* record.h - the parser of op records.
 *
 * The build's generator uses it for the records in comment blocks, and gd_op_define for records
 * that a program defines. The syntax:
 *
 *     name(inputs and required attributes) -> outputs   flags
 *     Documentation, one line or more. Lines that begin with "- " are items of a list.
 *       attribute type = default     its documentation
 *       y  = expression              (elementwise ops)
 *       gx = expression              (optional: else derived from y)
 *       saves x, y                   (what the gradient reads; default: all inputs)
 *       neutral a 1, b 1             (if one of two inputs is this number, the result is the other)
 *       control branch               (while, scan, gradients; facts.h explains this and the lines
 *                                    below)
 *       reduces sum                  (sum, mean, max, min)
 *       fills value                  (every element of the result is this option)
 *       index x < weight[0]          (the op fails for other integers; a size is also written
 *                                    x[axis], classes, dims[1] or ignore_index, x[-2:])
 *       gives indices < x[axis]      (the range of an output, in the same syntax)
 *       fuses relu(linear(x, w, b))  (plans replace the two by this op; conv1d|conv2d: either)
 *       folds batch_norm(conv2d(x, w, b), ...)
 *       onnx Name(inputs) attributes  when conditions  cast letters   caffe Name
 *                                    (operator_text.h has the words; all but the name may be
 *                                    missing; lines that are indented further continue the text)
 *
 *       python names(x, theirs=ours)  (names and arguments in Python: opgen/python.c)
 *
 * Inputs: `x`, `b?` optional, `xs*` any number, `x!` mutated (also `x!?`). Required attributes:
 * `dims:int[]`. Outputs: `y`, `ys*`, `mask~` hidden. Types: int, float, number (a float or a 64-bit
 * integer, without loss), bool, dtype, string, int[1..3], int[], float[] (not in ops),
 * {word, word}, tensor? (an optional input that is given by name; tensor!?: the op mutates it).
 * CONTRIBUTING.md explains the flags; gd_record_each_word visits all words.
 * Lines of attributes and expressions are indented by two or more spaces; documentation is not.
 *
 * In source files one text can define several ops, conv{1,2,3}d(x, w): see opgen/variants.h. The
 * parser gets the text of one op.
 *
 * Layers, optimizers, schedules, initializers and so on, which are created by name, have records of
 * the same syntax, called factories. Their inputs, outputs and parentheses may be missing:
 *
 *     conv2d(x, in_channels:int, out_channels:int, kernel:int[2]) -> y  of conv2d
 *     Documentation.
 *       bias bool = true
 *       options of conv2d            (adds the op's options that are not named here; `but training,
 *                                    eps` leaves these out)
 *       finds in_channels x[1]       (where this option is GD_ANY, it is the size of an input)
 *
 * `of OP`: a layer calls that op with its inputs and its parameters.
 */
#ifndef GRADUS_CODEGEN_RECORD_H
#define GRADUS_CODEGEN_RECORD_H

#include "codegen/facts.h"
#include "codegen/ir.h"
#include "codegen/operator_text.h"
#include "gradus/op.h"

enum { GD_RECORD_MAX = 24, GD_RECORD_WORDS = 16, GD_MAX_FINDS = 4 };

/* An option that is taken from the size of an input if it is GD_ANY. */
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
    char *name, *doc;
    gd_operator_text onnx, caffe;
    int onnx_line, caffe_line; /* where these texts begin */
    char *python;              /* names and arguments in Python; NULL: those of the record */
    unsigned flags;
    bool inplace_too; /* flag `inplace`: the op has an in-place form, too */
    gd_op_param inputs[GD_RECORD_MAX], outputs[GD_RECORD_MAX];
    const char *input_docs[GD_RECORD_MAX]; /* of inputs that are given by name; NULL: of others */
    int n_inputs, n_outputs;
    gd_op_attr attrs[GD_RECORD_MAX];
    int n_attrs;
    int order[2 * GD_RECORD_MAX]; /* positional arguments: input i as i, attribute k as ~k */
    int n_order;
    gd_record_expr exprs[GD_RECORD_MAX];
    int n_exprs;
    uint32_t saves_in, saves_out; /* bit i: the gradient reads input i, output i */
    gd_op_facts facts;
    bool factory;      /* the record of a layer, an optimizer ..., not of an op */
    char *of;          /* factory: the op that it calls; NULL: none */
    char *options_of;  /* factory: the op whose options are added; NULL: none */
    char *options_but; /* factory: a list of options that are not added */
    gd_record_find finds[GD_MAX_FINDS];
    int n_finds;
    char error[256]; /* the first error; "": none */
    int error_line;
} gd_record;

/* Parses `text`, which it modifies and which must outlive the record. False: `error` is set. */
bool gd_record_parse(gd_record *record, char *text);

/* The same for a factory: a layer, an optimizer ... */
bool gd_record_parse_factory(gd_record *record, char *text);

/* Visits every word that has a meaning in records: flags, types, and first words of lines. */
void gd_record_each_word(void (*visit)(const char *word));

/* Adds the options of the op that `options of` names; `attrs` are that op's. */
bool gd_record_add_options(gd_record *record, const gd_op_attr *attrs, int count);

/* The IR of an elementwise record: variables are the inputs, parameters the attributes. */
bool gd_record_forward(gd_record *record, gd_ir *ir, gd_ir_node *nodes);

/* The IR of the gradient of input i. Variables: the gradients of the outputs, then the inputs,
 * then the outputs. */
bool gd_record_gradient(gd_record *record, int input, gd_ir *ir, gd_ir_node *nodes);

/* The same gradient for an op that has only its IR (a derived op). */
bool gd_ir_gradient(const gd_ir *forward, int n_inputs, int input, gd_ir *ir, gd_ir_node *nodes);

/* The expressions of an op that mutates inputs, with one more variable at the end: if it is not 0,
 * the mutated inputs keep their values. False: the result is too long. */
bool gd_ir_unless(const gd_ir *forward, const gd_op_param *inputs, int n_inputs, gd_ir *ir,
                  gd_ir_node *nodes);

/* Removes unused variables and renumbers the others. `used` gets their old numbers. Returns the
 * number of variables left. */
int gd_ir_compact(gd_ir *ir, gd_ir_node *nodes, int *used);

/* A hash of an IR's content: equal expressions have equal kernels. */
uint64_t gd_ir_hash(const gd_ir *ir);

#endif
