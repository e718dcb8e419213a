/* facts.h - what a record says of its op to those who change programs and run graphs.
 *
 * They look at these, and at no op's name: an op that a program defines is treated like any other.
 */
#ifndef GRADUS_CODEGEN_FACTS_H
#define GRADUS_CODEGEN_FACTS_H

#include <stdbool.h>
#include <stdint.h>

/* "control branch": which of the ops that hold graphs it is (ops/control.c, ops/deferred_gradients.c). */
typedef enum gd_op_control {
    GD_CONTROL_NONE,
    GD_CONTROL_BRANCH,    /* one of two functions, as a value says */
    GD_CONTROL_WHILE,     /* a loop as long as a value says */
    GD_CONTROL_SCAN,      /* a loop over the positions of tensors */
    GD_CONTROL_GRADIENTS, /* gradients that are worked out when shapes are known */
} gd_op_control;

/* "reduces mean": of one input and one output; option `axis` says which axes. */
typedef enum gd_op_reduces {
    GD_REDUCES_NOTHING,
    GD_REDUCES_SUM,
    GD_REDUCES_MEAN,
    GD_REDUCES_MAX,
    GD_REDUCES_MIN,
} gd_op_reduces;

/* "fuses relu(linear(x, w, b))": what plans make it of. `outer` reads the result of `inner`, which
 * nobody else does; all other operands are inputs of this op. */
enum { GD_FUSES_INPUTS = 8, GD_FUSES_INNER = -1, GD_FUSES_OTHER = -2 };
typedef struct gd_op_fuses {
    const char *outer; /* NULL: it is made of nothing */
    const char *inner; /* "conv1d conv2d": any of these */
    int n_outer, n_inner;
    int8_t
        outer_in[GD_FUSES_INPUTS]; /* input k of `outer`: an input of this op, or GD_FUSES_INNER */
    int8_t inner_in[GD_FUSES_INPUTS];
} gd_op_fuses;

/* "folds batch_norm(conv2d(x, w, b), weight, ...)": the results of this op are other values for
 * those of its inputs that `inner` reads. With them `inner` alone gives what `outer` gave.
 * GD_FUSES_OTHER: an operand that `inner` keeps. */

/* "index x < weight[0]": the op fails unless all integers in the input are from 0 to below a size.
 * "gives indices < x[axis]": all integers in the output are so. */
typedef struct gd_op_index {
    int tensor;       /* whose numbers they are: an input, of `gives` an output */
    int of;           /* the size is that of an axis of this input; -1: it is said by an option */
    const char *size; /* of < 0: that option, a number ("index x < classes") or a list of sizes */
    int axis;         /* of the input, or of the list */
    bool is_number;   /* the option is the size itself */
    bool and_behind;  /* "x[-2:]": the sizes of this axis and of all behind it, multiplied */
    const char *axis_option; /* "index index < x[axis]": the option that is the axis; or NULL */
    const char
        *but; /* "... or ignore_index": an option with one more number that may be there; or NULL */
    bool or_number; /* "... or -1": that number may be there, too */
    int64_t number;
} gd_op_index;

typedef struct gd_op_facts {
    gd_op_control control;
    gd_op_reduces reduces;
    const char *fills; /* "fills value": the option that every element of its result is; or NULL */
    gd_op_fuses fuses, folds;
    bool checks; /* it has an `index` */
    gd_op_index index;
    bool makes_indices; /* it has a `gives` */
    gd_op_index gives;
} gd_op_facts;

#endif
