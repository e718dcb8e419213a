/* program.h - a lowered graph: arrays of values, steps and commits.
 *
 * A program is lowered from the part of a graph that the fetches need, with all sizes known. Passes
 * transform it; a plan assigns kernels and memory and runs it. A value is a view into a root, which
 * is a piece of memory: a temporary, a feed, a variable, or the storage of a captured tensor.
 */
#ifndef GRADUS_GRAPH_LOWER_PROGRAM_H
#define GRADUS_GRAPH_LOWER_PROGRAM_H

#include <stdio.h>
#include <string.h>

#include "core/index_set.h"
#include "graph/build/graph.h"

typedef enum gd_root_kind {
    GD_ROOT_TEMPORARY, /* memory of this run */
    GD_ROOT_FEED,      /* feed `number` */
    GD_ROOT_VARIABLE,  /* variable `number` of the graph, as it was before the run */
    GD_ROOT_CAPTURED,  /* the storage of a captured tensor */
} gd_root_kind;

/* Temporaries of a run lie in one slab, and their sizes there are multiples of this. */
enum { GD_SLAB_ALIGNMENT = 64 };

/* Memory that values are views of. */
typedef struct gd_root {
    gd_root_kind kind;
    int number;
    gd_storage *storage; /* CAPTURED: retained */
    size_t bytes;
    bool fetched;     /* must outlive the run */
    bool constant;    /* CAPTURED: a folded constant, which is never written */
    bool always_true; /* fetched: the result of a group, true, which the entry of a run stores */
    int memory;       /* CAPTURED: the first root of the same storage; else the root itself */
    bool shared;      /* there are later roots of its storage */
    int versions;     /* of a memory while it is lowered: its latest version (lower.h), plus 1 */
} gd_root;

typedef struct gd_pvalue {
    int root;
    uint8_t dtype, rank;
    int64_t offset; /* of its first element in the root, in elements of its dtype */
    int64_t dims[GD_MAX_RANK], strides[GD_MAX_RANK];
} gd_pvalue;

static inline bool gd_value_is_row_major(const gd_pvalue *v) {
    return gd_is_row_major(v->rank, v->dims, v->strides);
}

/* Whether the elements fill a piece of memory without gaps, in any order of the axes. */
bool gd_is_dense(int rank, const int64_t *dims, const int64_t *strides);

/* Whether two views of these dims have the same strides. Those of axes of size 1 do not matter. */
static inline bool gd_same_strides(int rank, const int64_t *dims, const int64_t *a,
                                   const int64_t *b) {
    for (int d = 0; d < rank; d++)
        if (dims[d] != 1 && a[d] != b[d]) return false;
    return true;
}

static inline bool gd_values_have_same_dims(const gd_pvalue *a, const gd_pvalue *b) {
    return a->rank == b->rank && memcmp(a->dims, b->dims, sizeof(int64_t) * a->rank) == 0;
}

/* Whether two values have the same dims, and their elements lie in the same order. */
static inline bool gd_values_lie_alike(const gd_pvalue *a, const gd_pvalue *b) {
    return gd_values_have_same_dims(a, b) &&
           gd_same_strides(a->rank, a->dims, a->strides, b->strides);
}

/* Whether two values are the same elements in the same shape. */
static inline bool gd_values_are_same(const gd_pvalue *a, const gd_pvalue *b) {
    return a->root == b->root && a->offset == b->offset && a->dtype == b->dtype &&
           gd_values_lie_alike(a, b);
}

static inline int64_t gd_value_elements(const gd_pvalue *v) { return gd_numel(v->rank, v->dims); }

#define GD_UNWANTED(value) (-2 - (value)) /* its own inverse */

typedef struct gd_pstep {
    const gd_op *op;
    const void *attrs;
    const gd_node *node; /* the node it was lowered from (name, site, random numbers), retained by
                          * the program */
    int n_in, n_out;     /* n_out: outputs of the op, then the inputs that it writes */
    int *in, *out;       /* values; -1: absent. An unused output is GD_UNWANTED(value): it has a
                          * shape and no memory */
    int each;            /* the entries of a list step (passes/list_updates.c); otherwise 0 */
    bool view;           /* it computes nothing: its outputs are views of an input */
    bool removed;
} gd_pstep;

/* At the end of a run, `value` is copied to `to`, a value in `root`, which is a variable or a
 * captured tensor. */
typedef struct gd_commit {
    int root, to, value;
    const char *site;
    bool through; /* the plan computes `value` directly in the variable's memory */
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
    gd_node **held; /* nodes whose attrs steps use, retained */
    int n_held, held_room;
    bool dynamic; /* sizes or control flow depend on data: it has no steps, and runs node by node */
    gd_index_set views; /* the values that are captured tensors */
    gd_map storages;    /* the first root of each captured storage */
    struct gd_block_list *memory;
} gd_program;

/* The root of a value; -1: the value is absent. */
static inline int gd_value_root(const gd_program *program, int value) {
    return value < 0 ? -1 : program->values[value].root;
}

static inline bool gd_root_is_temporary(const gd_program *program, int root) {
    return root >= 0 && program->roots[root].kind == GD_ROOT_TEMPORARY;
}

/* Whether the value is all of its root, row-major. */
static inline bool gd_value_fills_root(const gd_program *program, const gd_pvalue *v) {
    return v->offset == 0 && gd_value_is_row_major(v) &&
           (size_t)gd_value_elements(v) * gd_dtype_bytes(v->dtype) == program->roots[v->root].bytes;
}

/* Whether the value is all of its root, in any order of its axes. */
static inline bool gd_value_covers_root(const gd_program *program, const gd_pvalue *v) {
    return v->offset == 0 && gd_is_dense(v->rank, v->dims, v->strides) &&
           (size_t)gd_value_elements(v) * gd_dtype_bytes(v->dtype) == program->roots[v->root].bytes;
}

/* Lowers the graph for a run in which the symbols `feeds` have the shapes of `values`. */
gd_status gd_program_make(gd_tensors fetches, gd_tensors feeds, gd_tensors values,
                          gd_program **program);
/* The same, but branches and long loops may become steps, which sums some gradients in another
 * order. */
gd_status gd_program_make_loops(gd_tensors fetches, gd_tensors feeds, gd_tensors values,
                                gd_program **program);
void gd_program_free(gd_program *program);

/* Memory that lives as long as the program. NULL, and the failure is recorded: no memory. */
void *gd_program_alloc(gd_program *program, size_t bytes);
/* These append, and return the index of the new one; -1 or NULL: no memory. */
int gd_program_root(gd_program *program, gd_root root);
int gd_program_value(gd_program *program, gd_pvalue value);
gd_pstep *gd_program_step(gd_program *program);
gd_status gd_program_commit(gd_program *program, gd_commit commit);

/* Whether a commit fills memory that no other root shares: a variable, or a captured tensor that is
 * all of its storage. (If a feed shares it, the session copies the feed: gd_plan_overwrites.) */
bool gd_commit_fills_alone(const gd_program *program, const gd_commit *commit);

/* Whether the op copies its input, perhaps to another dtype. */
static inline bool gd_op_copies(const gd_op *op) {
    return op->ir && op->n_inputs == 1 && op->ir->n_outputs == 1 && gd_ir_is_var(op->ir, 0);
}
/* Whether the step copies its input to the same dtype and shape. */
bool gd_step_copies(const gd_program *program, const gd_pstep *step);

/* The next three return an array that the caller frees with gd_free. NULL, and the failure is
 * recorded: no memory. */

/* Per step: whether it may fail because of its data (an index out of range) or for lack of memory.
 * Variables must not be written before such a step. */
bool *gd_program_risks(const gd_program *program);
/* Per root: how many steps, fetches and commits read it; how many steps write it. */
int *gd_program_readers(const gd_program *program);
int *gd_program_writes(const gd_program *program);
/* Kernels are chosen and prepared before addresses are known: present operands have an address in
 * this memory meanwhile. It has the alignment that the operand will have on an asynchronous device,
 * whose buffers are aligned; algorithms of libraries depend on it. Kernels of the CPU, which also
 * gets memory of the program, must not rely on it. */
enum { GD_UNBOUND_ALIGNMENT = 256 };
extern char gd_unbound_memory[GD_UNBOUND_ALIGNMENT];
gd_view gd_program_view(const gd_pvalue *value);
/* The kernel for a step; NULL: none. */
const gd_kernel *gd_step_kernel(const gd_program *program, const gd_pstep *step, gd_device *device);
/* Whether the step's kernel is faster with images whose channels are innermost in memory. */
bool gd_step_prefers_channels_last(const gd_program *program, const gd_pstep *step,
                                   gd_device *device);
/* The value as shape rules see it: a tensor without data. */
void gd_program_describe(const gd_program *program, int value, gd_device *device,
                         gd_tensor *tensor);
/* Whether the options of two steps of one op are equal. */
bool gd_same_options(const gd_pstep *a, const gd_pstep *b);
/* Mixes the options of a step into a hash; equal options have equal hashes. */
uint64_t gd_hash_options(uint64_t hash, const gd_pstep *step);

/* The program as text, one step per line. free() it. */
char *gd_program_text(const gd_program *program);
/* The same with what `print` adds to the line of each step; NULL: nothing. */
typedef void (*gd_step_printer)(FILE *out, const gd_pstep *step, void *arg);
char *gd_program_text_with(const gd_program *program, gd_step_printer print, void *arg);

#endif
