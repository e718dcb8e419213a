/* run.h - runs one case: builds its inputs, calls the op, and computes gradients. */
#ifndef GRADUS_TESTS_HARNESS_RUN_H
#define GRADUS_TESTS_HARNESS_RUN_H

#include "data.h"

enum { MAX_TENSORS = 64 };

typedef struct run_setup {
    const test_case *c;
    gd_dtype dtype;              /* of inputs whose dtype the case does not give */
    bool gradients;              /* compute gradients of the weighted sum of the float outputs */
    bool second;                 /* and of the weighted sum of these gradients */
    gd_tensor *const *shapes;    /* tensors with the outputs' shapes, which symbols may lack */
    layout layouts[MAX_TENSORS]; /* of each input; all zero: row-major */
    bool like_expanded[MAX_TENSORS];
} run_setup;

/* The results of a run. The caller's scope owns the tensors. */
typedef struct run_result {
    gd_status status;            /* of the call, or of the backward pass */
    gd_tensor *out[MAX_TENSORS]; /* the outputs, then the inputs that the op mutates */
    int n_out;
    gd_tensor *grad[MAX_TENSORS];  /* by each input; NULL: zero or not computed */
    gd_tensor *grad2[MAX_TENSORS]; /* second order, the same way */
    bool has_grad, has_second;     /* gradients were computed */
    int n_in;
    bool unknown_sizes; /* a plan: the size of an output is not known before it runs */
    int64_t leaked;     /* leaked objects, if the mode counts them */
    char message[300];  /* of a failure in another thread; others are in gd_error_message() */
} run_result;

/* A mode: a way to run a case, such as through a graph or on another device. The suite "modes" runs
 * each case in each entry of `modes` and compares the results with the first mode, eager. `run`
 * returns CPU tensors that the caller's scope owns. */
typedef struct run_mode {
    const char *name;
    bool same_bits; /* results have the bits of eager's; false: within the block's tolerance */
    bool (*available)(const test_case *c, const char **why); /* NULL: always */
    void (*run)(const run_setup *setup, run_result *result);
    bool first_only; /* computes no second-order gradients */
} run_mode;

extern const run_mode *const modes[]; /* modes[0] is eager; ends with NULL */

/* The eager mode. A failure stays recorded until the next run clears it. */
void run_case(const run_setup *setup, run_result *result);

/* Runs the case several times as a plan of level 2. Calls before_run(0) before the first run, and
 * so on; before_run(runs) is called after the last. The results are those of the last run. */
void run_plan_repeatedly(const run_setup *setup, run_result *result, int runs,
                         void (*before_run)(int run));

/* The steps of run_case, for suites that need only some of them. */
int build_inputs(const run_setup *setup, gd_tensor **in);
gd_attrs *build_attrs(const test_case *c);
bool input_is_mutated(const gd_op *op, int i);

/* Stores the gradients of the weighted sum of `y` by every input that requires one in r->grad, and
 * with s->second those of the weighted sum of these gradients in r->grad2. Values or symbols. */
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
