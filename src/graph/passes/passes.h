/* passes.h - the passes over programs, in the order in which they run.
 *
 * A new pass NAME is a file NAME.c with the function gd_pass_NAME, and a row of GD_PASSES.
 */
#ifndef GRADUS_GRAPH_PASSES_PASSES_H
#define GRADUS_GRAPH_PASSES_PASSES_H

#include "graph/lower/program.h"

typedef enum gd_pass_phase {
    GD_PHASE_PROGRAM, /* before a plan adds kernel calls */
    GD_PHASE_LIMIT,   /* when the slab of the plan is larger than its memory limit */
} gd_pass_phase;

enum {
    GD_PASS_ASYNC = 1,     /* for asynchronous devices, where a kernel call has a fixed cost */
    GD_PASS_FUSION = 2,    /* for devices with fusion rules, unless reference kernels run */
    GD_PASS_LISTS = 4,     /* for devices with a kernel for lists of tensors */
    GD_PASS_NO_LISTS = 8,  /* for programs without list steps */
    GD_PASS_NO_LIMIT = 16, /* for plans without a memory limit: values may live longer */
    GD_PASS_PRUNES = 32,   /* prune runs after it if it has changed something */
    GD_PASS_REPEATS = 64,  /* repeats, with the rows beside it that have this flag, until the first
                            * of them changes nothing */
};

/* PASS(name, lowest level, phase, flags). gradus/session.h describes the levels. */
/* clang-format off */
#define GD_PASSES(PASS)                                                                             \
    /* removes steps and hidden outputs that nothing reads (dead-code elimination) */               \
    PASS(prune, 0, PROGRAM, 0)                                                                      \
    /* removes steps that compute the same as another (common subexpression elimination) */         \
    PASS(cse, 0, PROGRAM, 0)                                                                        \
    /* computes steps with constant operands now (constant folding) */                              \
    PASS(fold, 1, PROGRAM, 0)                                                                       \
    /* removes steps such as x * 1, x + 0, and transposes of transposes */                          \
    PASS(simplify, 1, PROGRAM, GD_PASS_REPEATS)                                                     \
    PASS(cse, 1, PROGRAM, GD_PASS_REPEATS)                                                          \
    PASS(prune, 0, PROGRAM, 0)                                                                      \
    /* folds batch norms into the weights of the convolution or linear layer before them */         \
    PASS(fold_norm, 2, PROGRAM, GD_PASS_PRUNES)                                                     \
    /* chooses the memory layouts of intermediate values */                                         \
    PASS(layout, 2, PROGRAM, GD_PASS_PRUNES)                                                        \
    /* replaces a product and the elementwise step after it by one op */                            \
    PASS(epilogue, 2, PROGRAM, 0)                                                                   \
    /* joins the gradients of the weight and the bias of a linear layer, and their updates */       \
    PASS(linear_gradients, 2, PROGRAM, 0)                                                           \
    /* joins the gradients of the weight and the bias of a convolution */                           \
    PASS(conv_gradients, 2, PROGRAM, 0)                                                             \
    /* joins a cross-entropy and its gradient */                                                    \
    PASS(loss_gradient, 2, PROGRAM, 0)                                                              \
    /* fuses elementwise steps, and a reduction after them */                                       \
    PASS(fuse, 2, PROGRAM, GD_PASS_FUSION | GD_PASS_PRUNES)                                         \
    /* removes casts between f32 and 16-bit floats beside kernels that take either */               \
    PASS(absorb_casts, 2, PROGRAM, GD_PASS_PRUNES)                                                  \
    /* removes copies whose operands can be written where the copy puts them */                     \
    PASS(direct_results, 2, PROGRAM, GD_PASS_ASYNC | GD_PASS_NO_LIMIT | GD_PASS_PRUNES)             \
    /* frees constants that were folded into others */                                              \
    PASS(drop_constants, 0, PROGRAM, 0)                                                             \
    /* copies fetches and committed values that are no temporaries */                               \
    PASS(copy_results, 0, PROGRAM, 0)                                                               \
    /* drops groups whose operands are all computed: the entry of a run stores their results */     \
    PASS(drop_groups, 0, PROGRAM, GD_PASS_ASYNC)                                                    \
    /* combines updates of variables into list steps, which run at the end */                       \
    PASS(list_updates, 0, PROGRAM, GD_PASS_ASYNC | GD_PASS_LISTS | GD_PASS_NO_LIMIT)                \
    /* moves updates of variables up, which frees gradients */                                      \
    PASS(early_updates, 0, PROGRAM, GD_PASS_NO_LISTS)                                               \
    /* combines casts of parameters, copies of variables, and casts of gradients for list steps */  \
    PASS(list_copies, 0, PROGRAM, GD_PASS_ASYNC | GD_PASS_LISTS | GD_PASS_NO_LIMIT)                 \
    /* repeats steps so that their results need not be kept (rematerialization) */                  \
    PASS(remat, 0, LIMIT, 0)
/* clang-format on */

/* What remat needs to know of a plan. */
typedef struct gd_remat {
    size_t target;         /* bytes that may be live at a time */
    const size_t *scratch; /* per step: bytes that it needs besides its operands; NULL: none */
    const bool *elsewhere; /* per root: it is not in the slab; NULL: all are */
} gd_remat;

/* A program that passes transform. */
typedef struct gd_rewrite {
    gd_program *program;
    gd_device *device; /* that the plan will run on */
    int level;
    size_t limit;          /* of the memory; 0: none */
    const gd_remat *remat; /* for the phase LIMIT. If it repeats a step, the program has a new array
                            * of steps, and the caller frees the old one */
    int changes;           /* the result: how many changes were made */
} gd_rewrite;

typedef struct gd_pass {
    const char *name;
    int level;
    gd_pass_phase phase;
    int flags;
    gd_status (*run)(gd_rewrite *r); /* increases r->changes */
} gd_pass;

#define GD_PASS_FUNCTION(name, level, phase, flags) gd_status gd_pass_##name(gd_rewrite *r);
GD_PASSES(GD_PASS_FUNCTION)
#undef GD_PASS_FUNCTION

/* Runs all passes of a phase that the level, the device and the limit allow. GRADUS_PASSES names
 * passes before and after which the program is written to the log. */
gd_status gd_passes_run(gd_rewrite *r, gd_pass_phase phase);

/* Runs one pass, for tests. GD_E_ARGUMENT: there is none of this name. */
gd_status gd_pass_run(gd_rewrite *r, const char *name);

#endif
