/* elementwise_job.h - how elementwise calls are carried out, for the kernels that do it. */
#ifndef GRADUS_CPU_ELEMENTWISE_JOB_H
#define GRADUS_CPU_ELEMENTWISE_JOB_H

#include "backend/cpu/elementwise.h"
#include "codegen/fusion_rules.h"
#include "ops/fused.h"

/* --- programs: how an expression is run, by its own kernel or primitive by primitive ---------- */

typedef struct gd_ew_program {
    const gd_ir *ir;
    gd_ew_fn integer; /* NULL: the evaluator */
    int type;         /* GD_EW_... */
    gd_param params[GD_FUSED_PARAMS];
    /* the evaluator's */
    int n_slots;         /* tiles that it needs */
    const int16_t *slot; /* the tile of each node; -1: a variable is read where it lies */
    int16_t own_slot[GD_IR_MAX_NODES];
    gd_ew_fn step[GD_IR_MAX_NODES]; /* the primitive at each node */
} gd_ew_program;

int gd_ew_type(gd_dtype compute);
/* The parameters of a call that is no fused one. */
void gd_ew_params(const gd_op *op, const void *attrs, int type, gd_param *params);
/* The op's own kernel for a type, or NULL. */
gd_ew_fn gd_ew_whole(const gd_op *op, const gd_ir *ir, int type);
gd_status gd_ew_prepare(const gd_kernel_call *call, const gd_ir *ir, int type, gd_ew_program *p);
/* The same for the evaluator alone, and without parameters. */
gd_status gd_ew_prepare_ir(const gd_ir *ir, int type, gd_ew_program *p);

/* What kernels that are compiled while the program runs are compiled for. */
const struct gd_native_target *gd_ew_target(gd_isa isa);

/* Whether the build compiled a kernel of the op's expression. */
bool gd_ew_is_compiled(const gd_op *op);

/* For tests: whether fused ops use kernels that were compiled for them; or the evaluator alone. */
void gd_ew_set_compiled(bool on);
bool gd_ew_uses_compiled(void);

bool gd_ew_is_worth_compiling(int64_t elements);

/* What plans may fuse for the CPU (fused_rules.c). */
extern const gd_fusion_rules gd_cpu_fusion_rules;

/* Compiles the kernels of fused ops that have none yet and whose elements are worth it, by one run
 * of the compiler. The dtypes of requests are not read: kernels see the type computed in alone. */
void gd_fused_compile(const gd_fusion_request *requests, int n);
/* The same for the op of one call that runs over this many elements. */
void gd_fused_compile_call(const gd_kernel_call *call, int64_t elements);
/* Whether a fused op has a compiled kernel, of its own or the build's. */
bool gd_fused_has_kernel(const gd_op *op);
/* The kernel of a fused op that goes by rows, in its type; NULL: none was compiled. */
void *gd_fused_rows_kernel(const gd_op *op);

/* Tiles of constants, filled once, as far as they are needed; then n <= tile elements at a time. */
void gd_ew_constants(const gd_ew_program *p, const gd_param *params, int64_t tile, int64_t n,
                     char *tiles);
void gd_ew_evaluate(const gd_ew_program *p, int64_t tile, int64_t n, const void *const *in,
                    void *const *out, char *tiles);

/* One call of an elementwise op, of any dtypes and strides. */
gd_status gd_ew_run(gd_kernel_call *call);
/* The dtype that a call computes in: f32, f64, i32 or i64. */
gd_dtype gd_ew_compute_dtype(const gd_kernel_call *call);

/* --- jobs: a call, with its operands lined up ------------------------------------------------- */

enum { GD_EW_OPERANDS = 24 };

typedef struct gd_ew_operand {
    char *data;
    gd_dtype dtype;
    int64_t step[GD_MAX_RANK]; /* bytes, for the merged dims */
    bool direct;               /* its rows can be given to the kernel as they are */
    bool single;               /* one element for all: its tile is filled once for a piece */
    bool repeated;             /* one row for all: so is its tile, with the row again and again */
} gd_ew_operand;

typedef struct gd_ew_job {
    gd_ew_program program;
    gd_ew_operand operands[GD_EW_OPERANDS]; /* inputs, then outputs */
    int n_in, n_out;
    int rank; /* merged dims; the last one is the row */
    int64_t dims[GD_MAX_RANK];
    int64_t rows, row, tile, tiles_per_row, tiles, tiles_per_piece;
    int64_t period; /* elements of the row that `repeated` operands have; 1 where there are none */
    bool bare;      /* a compiled kernel and nothing to convert: tiles need no buffers */
} gd_ew_job;

/* Lines up operands for the shape of `shape`; program, n_in and n_out are set. */
void gd_ew_line_up(gd_ew_job *j, const gd_view *in, const gd_view *out, const gd_view *shape);

/* Elements [first, first + n) of the shape, row-major: outputs but the last are stored, those of
 * the last are put at `to`. Some stack, no other memory. */
void gd_ew_some(const gd_ew_job *j, int64_t first, int64_t n, void *to);

#endif
