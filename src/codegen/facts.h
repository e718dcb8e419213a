/* facts.h - properties of ops, from their records, for the passes over programs and for control
 * flow.
 *
 * Passes read these facts and never compare an op's name, so that ops which a program defines are
 * treated like all others.
 */
#ifndef GRADUS_CODEGEN_FACTS_H
#define GRADUS_CODEGEN_FACTS_H

#include <stdbool.h>
#include <stdint.h>

/* Record line "control branch": how an op that holds graphs runs (dispatch/control.c,
 * autograd/deferred_gradients.c). */
typedef enum gd_op_control {
    GD_CONTROL_NONE,
    GD_CONTROL_BRANCH,    /* runs one of two functions, depending on a value */
    GD_CONTROL_WHILE,     /* a loop whose length depends on values */
    GD_CONTROL_SCAN,      /* a loop over the first axis of tensors */
    GD_CONTROL_GRADIENTS, /* gradients that are computed when shapes are known */
} gd_op_control;

/* Record line "reduces mean": the op has one input and one output, and reduces the axes of its
 * option `axis`. */
typedef enum gd_op_reduces {
    GD_REDUCES_NOTHING,
    GD_REDUCES_SUM,
    GD_REDUCES_MEAN,
    GD_REDUCES_MAX,
    GD_REDUCES_MIN,
} gd_op_reduces;

/* Record line "fuses relu(linear(x, w, b))": plans replace these two ops by this one. `outer` must
 * be the only reader of the result of `inner`, unless this op returns it as its last output, or
 * computes it again because both ops have an operand of the same name (graph/passes/epilogue.c).
 * All other operands are inputs of this op. */
enum { GD_FUSES_INPUTS = 8, GD_FUSES_INNER = -1, GD_FUSES_OTHER = -2 };
typedef struct gd_op_fuses {
    const char *outer; /* NULL: the record has no such line */
    const char *inner; /* "conv1d conv2d": one of these ops */
    int n_outer, n_inner;
    int8_t
        outer_in[GD_FUSES_INPUTS]; /* input k of `outer`: an input of this op, or GD_FUSES_INNER */
    int8_t inner_in[GD_FUSES_INPUTS];
} gd_op_fuses;

/* Record line "folds batch_norm(conv2d(x, w, b), weight, ...)" has the same form. The results of
 * this op replace those inputs of `inner` that are also inputs of this op (w and b). With them
 * `inner` alone gives the result of `outer`. GD_FUSES_OTHER marks an operand of `inner` that stays
 * (x). */

/* Record line "index x < weight[0]": the op fails unless all integers in the input are at least 0
 * and below a size. "gives indices < x[axis]": all integers in the output are in that range. */
typedef struct gd_op_index {
    int tensor;              /* the input with the integers; for `gives` the output */
    int of;                  /* the size is that of an axis of this input; -1: it is an option */
    const char *size;        /* of < 0: that option, an integer ("index x < classes") or a list */
    int axis;                /* of the input, or an index into the list */
    bool is_number;          /* the option is an integer, the size itself */
    bool and_behind;         /* "x[-2:]": the product of the sizes of this axis and all after it */
    const char *axis_option; /* "index index < x[axis]": the option that holds the axis; or NULL */
    const char *but; /* "... or ignore_index": an option whose value is allowed, too; or NULL */
    bool or_number;  /* "... or -1": this number is allowed, too */
    int64_t number;
} gd_op_index;

typedef struct gd_op_facts {
    gd_op_control control;
    gd_op_reduces reduces;
    const char *fills; /* "fills value": every element of the result is this option; or NULL */
    gd_op_fuses fuses, folds;
    bool checks; /* `index` is set */
    gd_op_index index;
    bool makes_indices; /* `gives` is set */
    gd_op_index gives;
} gd_op_facts;

#endif
