/* program.h - what a run has to do: plain arrays of values and steps.
 *
 * A program is made from the part of a graph that the fetches need, with all sizes known. Passes
 * change it; the plan places it in memory and carries it out. A value is a view into a root: memory
 * of its own, or that of a feed, of a variable, or of a tensor outside the graph.
 */
#ifndef GRADUS_GRAPH_PROGRAM_H
#define GRADUS_GRAPH_PROGRAM_H

#include "core/map.h"
#include "graph/build/graph.h"

typedef enum gd_root_kind {
    GD_ROOT_TEMPORARY, /* of this run */
    GD_ROOT_FEED,      /* `number` of the feeds */
    GD_ROOT_VARIABLE,  /* `number` of the graph's variables, as it was before the run */
    GD_ROOT_CAPTURED,  /* a tensor's storage */
} gd_root_kind;

/* Memory that values look into. */
typedef struct gd_root {
    gd_root_kind kind;
    int number;
    gd_storage *storage; /* OUTSIDE: held */
    size_t bytes;
    bool fetched;  /* must outlive the run */
    bool constant; /* OUTSIDE: folded, and never written */
} gd_root;

typedef struct gd_pvalue {
    int root;
    uint8_t dtype, rank;
    int64_t offset; /* of its first element in the root, in elements of its dtype */
    int64_t dims[GD_MAX_RANK], strides[GD_MAX_RANK];
} gd_pvalue;

#define GD_UNWANTED(value) (-2 - (value)) /* and back */

typedef struct gd_pstep {
    const gd_op *op;
    const void *attrs;
    const gd_node *node; /* what it came from: name, place and random number; held by the program */
    int n_in, n_out;     /* n_out: outputs of the op, then the inputs that it writes */
    int *in, *out; /* values; -1: absent. An output that nobody wants is GD_UNWANTED(value): it
                          * has a shape, and no memory */
    bool view;     /* nothing to compute: its outputs look into an input */
    bool removed;
} gd_pstep;

/* At the end of a run, `to`, a value in `root` (a variable's or an outside one), gets what `value`
 * holds. */
typedef struct gd_commit {
    int root, to, value;
    const char *site;
    bool through; /* the plan computes it right into the variable */
} gd_commit;

typedef struct gd_program {
    gd_root *roots;
    gd_pvalue *values;
    gd_pstep *steps;
    gd_commit *commits;
    int n_roots, n_values, n_steps, n_commits;
    int roots_room, values_room, steps_room, commits_room;
    int *fetches; /* values */
    int n_fetches;
    gd_node **held; /* nodes whose attrs steps use */
    int n_held, held_room;
    bool dynamic; /* a size in it depends on data: it has no steps, and is evaluated node by node */
    struct gd_plan **inner; /* of the functions of its branches and loops */
    int n_inner, inner_room;
    gd_map views; /* of storages outside: the values that they are */
    struct gd_block_list *memory;
} gd_program;

/* Makes the program of a run that is fed tensors of the given shapes. `feeds` are the symbols,
 * `values` what they get. */
gd_status gd_program_make(gd_tensors fetches, gd_tensors feeds, gd_tensors values,
                          gd_program **program);
/* The same, but branches and long loops may become steps, which adds up some gradients in another
 * order. */
gd_status gd_program_make_loops(gd_tensors fetches, gd_tensors feeds, gd_tensors values,
                                gd_program **program);
void gd_program_free(gd_program *program);

/* Memory that lives as long as the program; NULL, noted, when there is none. */
void *gd_program_alloc(gd_program *program, size_t bytes);
int gd_program_root(gd_program *program, gd_root root);     /* its number, or -1 */
int gd_program_value(gd_program *program, gd_pvalue value); /* its number, or -1 */
gd_pstep *gd_program_step(gd_program *program);             /* one more; NULL: no memory */
gd_status gd_program_commit(gd_program *program, gd_commit commit);
/* Steps, fetches and commits that read value `from` read `to`. */
void gd_program_replace(gd_program *program, int from, int to);

/* Whether an assign fills memory that no other root has: a variable, or a tensor outside that is
 * all of its storage. (Where a feed has it, too, the session takes a copy of that:
 * gd_plan_overwrites.) */
bool gd_commit_fills_alone(const gd_program *program, const gd_commit *commit);

/* Whether the op gives its input as it is (maybe in another dtype), and in memory of its own. */
static inline bool gd_op_copies(const gd_op *op) {
    return op->ir && op->n_inputs == 1 && op->ir->n_outputs == 1 && gd_ir_is_var(op->ir, 0);
}
/* Whether the step does that, in the same dtype and shape. */
bool gd_step_copies(const gd_program *program, const gd_pstep *step);

/* Of each step, whether it may find something wrong with the data (an index out of range), or need
 * memory that it has not been given: only before such steps a variable must not be written. gd_free
 * it; NULL, noted, when there is no memory. */
bool *gd_program_risks(const gd_program *program);
/* How many steps, fetches and commits look into each root, and how many steps write it. gd_free them;
 * NULL, noted, when there is no memory. */
int *gd_program_readers(const gd_program *program);
int *gd_program_writes(const gd_program *program);
/* The step before step `before` that has the value as a result; -1: none. */
int gd_program_maker(const gd_program *program, int value, int before);
/* Kernels are chosen before addresses are known: what is there has this one meanwhile. */
extern char gd_unbound_address;
gd_view gd_program_view(const gd_pvalue *value);
/* The kernel that runs a step; NULL: none. */
const gd_kernel *gd_step_kernel(const gd_program *program, const gd_pstep *step, gd_device *device);
/* The value as a rule sees it: a shape and a view, no data. */
void gd_program_describe(const gd_program *program, int value, gd_device *device,
                         gd_tensor *tensor);
/* Whether two values of an option are equal, and the options of two steps of one op. */
bool gd_same_option(const gd_op_attr *attr, const void *a, const void *b);
bool gd_same_options(const gd_pstep *a, const gd_pstep *b);

/* As text, one step a line. free() it. */
char *gd_program_text(const gd_program *program);

/* --- passes: each returns how many changes it made, or -1 with the failure noted -------------- */
int gd_pass_prune(gd_program *program); /* steps whose results nobody reads */
int gd_pass_cse(gd_program *program);   /* steps that compute what another has computed */
int gd_pass_fold(gd_program *program, gd_device *device); /* what is the same in every run */
int gd_pass_fold_norm(gd_program *program,
                      gd_device *device); /* batch norms that become part of weights */
int gd_pass_epilogue(gd_program *program,
                     gd_device *device);   /* two steps for which there is one op */
int gd_pass_simplify(gd_program *program); /* x * 1, x + 0, transposes of transposes, ... */
int gd_pass_layout(gd_program *program,
                   gd_device *device); /* in which order elements lie in memory */
int gd_pass_fuse(gd_program *program,
                 gd_device *device); /* elementwise steps, and a reduction behind them, as one */
int gd_pass_early_updates(gd_program *program); /* variables are updated as soon as they can be */

/* Steps come a second time, so that what they compute need not be kept. Returns how many do; if any,
 * `steps` is a new array, and the old one is the caller's to free. */
typedef struct gd_remat {
    size_t target;         /* bytes that may be alive at one time */
    const size_t *scratch; /* of each step: bytes that it needs besides its operands; NULL: none */
    const bool *elsewhere; /* of each root: it is not in the slab; NULL: none is */
} gd_remat;
int gd_pass_remat(gd_program *program, const gd_remat *given);

#endif
