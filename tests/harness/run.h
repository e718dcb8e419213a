/* run.h - runs one case: inputs, the call by name, outputs and gradients. */
#ifndef GRADUS_TESTS_RUN_H
#define GRADUS_TESTS_RUN_H

#include "data.h"

enum { MAX_TENSORS = 64 };

/* What to run. */
typedef struct run_setup {
    const test_case *c;
    gd_dtype dtype;           /* of inputs without a dtype in the case */
    bool gradients;           /* also gradients, of the weighted sum of the float outputs */
    bool second;              /* and those of the weighted sum of these gradients */
    gd_tensor *const *shapes; /* tensors of the outputs' shapes, where symbols do not know them */
    layout layouts[MAX_TENSORS]; /* of each input; all zero: row-major */
    bool like_expanded[MAX_TENSORS];
} run_setup;

/* What came out; the tensors belong to the scope around. */
typedef struct run_result {
    gd_status status;            /* of the call, or of the gradients */
    gd_tensor *out[MAX_TENSORS]; /* the outputs, then copies of the inputs the op has written */
    int n_out;
    gd_tensor *grad[MAX_TENSORS];  /* of each input; NULL: zero or not computed */
    gd_tensor *grad2[MAX_TENSORS]; /* second order, the same way */
    bool has_grad, has_second;     /* gradients were computed */
    int n_in;
    int64_t leaked;    /* leaked objects, where the mode can count them */
    char message[300]; /* of a failure in another thread; else gd_error_message() has it */
} run_result;

/* A way of running a case. New ways (as symbols through a graph, on another device) are entries of
 * `modes`; the suite "modes" runs each case in each of them and compares with the first, eager.
 * `run` gives results as CPU values in the scope around. */
typedef struct run_mode {
    const char *name;
    bool same_bits; /* as eager; else within the block's tolerance */
    bool (*available)(const test_case *c, const char **why); /* NULL: always */
    void (*run)(const run_setup *setup, run_result *result);
    bool first_only; /* does no gradients of second order */
} run_mode;

extern const run_mode *const modes[]; /* modes[0] is eager; ends with NULL */

/* The eager mode. A failure is left in gd_error_message(), and cleared by the next run. */
void run_case(const run_setup *setup, run_result *result);

/* The pieces of it, for suites that do something else with them. */
int build_inputs(const run_setup *setup, gd_tensor **in);
gd_attrs *build_attrs(const test_case *c);
bool input_is_mutated(const gd_op *op, int i);

/* Gradients of the sum of outputs times fixed weights, by every input that requires one, into
 * r->grad; and with s->second those of these, into r->grad2. In values and symbols alike. */
gd_status differentiate(const run_setup *s, gd_tensor *const *in, gd_tensor *const *y, int n_y,
                        run_result *r);

/* Whether this case has gradients; if not, `why` is the reason. */
bool case_has_gradient(const test_case *c, gd_dtype dtype, const char **why);

/* Compares two results: within the block's tolerance, or, with NULL, bit by bit. False, with the
 * first difference in `why` (512 bytes). */
bool results_agree(const run_result *actual, const run_result *expected, const test_block *b,
                   char *why);

/* The tolerance of a block for a dtype. */
double block_tolerance(const test_block *b, gd_dtype dtype);

#endif
