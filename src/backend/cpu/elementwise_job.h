/* elementwise_job.h - how the CPU runs elementwise and fused ops: programs, which compute tiles of
 * an expression, and jobs, which apply a program to the operands of a call. */
#ifndef GRADUS_BACKEND_CPU_ELEMENTWISE_JOB_H
#define GRADUS_BACKEND_CPU_ELEMENTWISE_JOB_H

#include "backend/cpu/elementwise.h"
#include "codegen/fusion_rules.h"
#include "dispatch/fused.h"

/* --- programs: elementwise_program.c ---------------------------------------------------------- */

/* An expression in one compute type. It runs as one compiled kernel if there is one. Otherwise the
 * evaluator runs the kernels of its primitives one after the other, with a tile for each
 * intermediate value. */
typedef struct gd_ew_program {
    const gd_ir *ir;
    gd_ew_fn kernel; /* the compiled kernel of the entire expression; NULL: use the evaluator */
    int type;        /* the compute type: GD_EW_... */
    gd_param params[GD_FUSED_PARAMS];

    /* For the evaluator: */
    int n_slots;         /* tiles that it needs */
    const int16_t *slot; /* the tile of each node (gd_ir_slots); -1: a variable is read in place */
    int16_t own_slot[GD_IR_MAX_NODES]; /* memory for `slot`, unless the fused op has it */
    gd_ew_fn step[GD_IR_MAX_NODES];    /* the kernel of the primitive at each node */
} gd_ew_program;

/* The GD_EW_... type of a compute dtype. */
int gd_ew_type(gd_dtype compute);
/* The dtype that a call computes in: f32, f64, i32 or i64. */
gd_dtype gd_ew_compute_dtype(const gd_kernel_call *call);
/* Converts the attributes of an op that is not fused to the parameters of its expression. */
void gd_ew_params(const gd_op *op, const void *attrs, int type, gd_param *params);

/* Prepares the program of a call, with its parameters. */
gd_status gd_ew_prepare(const gd_kernel_call *call, const gd_ir *ir, int type, gd_ew_program *p);
/* Prepares a program that always uses the evaluator; it does not set the parameters. */
gd_status gd_ew_prepare_ir(const gd_ir *ir, int type, gd_ew_program *p);

/* The evaluator. `tiles` has p->n_slots tiles of `tile` elements. gd_ew_constants fills the first n
 * elements of the tiles of constants and parameters, once for many calls of gd_ew_evaluate, which
 * computes n <= tile elements. gd_ew_constants does nothing if the program has a kernel. */
void gd_ew_constants(const gd_ew_program *p, const gd_param *params, int64_t tile, int64_t n,
                     char *tiles);
void gd_ew_evaluate(const gd_ew_program *p, int64_t tile, int64_t n, const void *const *in,
                    void *const *out, char *tiles);

/* --- compiled kernels: elementwise_program.c -------------------------------------------------- */

/* The compiled kernel of the op's expression for a compute type; NULL: there is none. */
gd_ew_fn gd_ew_compiled_kernel(const gd_op *op, const gd_ir *ir, int type);

/* Whether a kernel of the op's expression was compiled into the library. */
bool gd_ew_is_compiled(const gd_op *op);

/* The compiler target for kernels that are compiled at run time. */
const struct gd_native_target *gd_ew_target(gd_isa isa);

/* For tests: whether fused ops use compiled kernels (the default) or only the evaluator. */
void gd_ew_set_compiled(bool on);
bool gd_ew_uses_compiled(void);

/* Whether a kernel over this many elements is worth compiling at run time. */
bool gd_ew_is_worth_compiling(int64_t elements);

/* Compiles kernels for the fused ops that have none yet and are worth compiling, in one run of the
 * compiler. It ignores the dtypes of the requests: kernels only see the compute type. */
void gd_fused_compile(const gd_fusion_request *requests, int n);
/* The same for the op of one call over this many elements. */
void gd_fused_compile_call(const gd_kernel_call *call, int64_t elements);
/* Whether a fused op has a compiled kernel. */
bool gd_fused_has_kernel(const gd_op *op);
/* The compiled kernel (gd_row_fn) of a fused op with a row program, in its compute type; NULL:
 * there is none. */
void *gd_fused_rows_kernel(const gd_op *op);

/* The fusion rules of the CPU (fused_rules.c). */
extern const gd_fusion_rules gd_cpu_fusion_rules;

/* --- jobs: elementwise_kernels.c -------------------------------------------------------------- */

enum { GD_EW_OPERANDS = 24 };

/* A tensor, seen in the merged dims of its job. */
typedef struct gd_ew_operand {
    char *data;
    gd_dtype dtype;
    int64_t stride[GD_MAX_RANK]; /* in bytes, of the merged dims */

    /* How the kernel accesses it. If none is set, each tile is converted to or from a buffer. */
    bool direct;       /* its rows are contiguous and in the compute type: no buffer */
    bool scalar;       /* an input of one element, broadcast: its buffer is filled once per task */
    bool repeated_row; /* an input of one short row, broadcast: its buffer holds copies of the row,
                          and is filled once per task */
} gd_ew_operand;

/* A program and its operands. Dims that all operands step through evenly are merged; the last
 * merged dim is the row, which is divided into tiles. A task is a range of tiles. */
typedef struct gd_ew_job {
    gd_ew_program program;
    gd_ew_operand operands[GD_EW_OPERANDS]; /* inputs, then outputs */
    int n_in, n_out;
    int rank; /* of the merged dims */
    int64_t dims[GD_MAX_RANK];
    int64_t row;    /* elements in a row: dims[rank - 1] */
    int64_t tile;   /* elements in a tile */
    int64_t period; /* elements in the row of `repeated_row` operands; 1 if there are none */
    int64_t tiles_per_row, tiles, tiles_per_task;
    bool all_direct; /* a compiled kernel, and all operands are direct: tiles need no buffers */
} gd_ew_job;

/* Sets the operands, dims and tile size of a job that computes the shape of `shape`. program, n_in
 * and n_out are already set. */
void gd_ew_bind_operands(gd_ew_job *j, const gd_view *in, const gd_view *out, const gd_view *shape);

/* Computes elements [first, first + n) of the shape, in row-major order. The last output is written
 * to `to` in the compute type, the others to their tensors. It allocates nothing but a GD_TILE. */
void gd_ew_compute_range(const gd_ew_job *j, int64_t first, int64_t n, void *to);

/* Runs one call of an elementwise op, of any dtypes and strides. */
gd_status gd_ew_run(gd_kernel_call *call);

#endif
