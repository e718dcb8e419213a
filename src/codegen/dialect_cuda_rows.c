/* dialect_cuda_rows.c - kernels of row programs in CUDA C++. See dialect_cuda.h, and rows.cuh
 * of the backend's kernels.
 *
 * A row of up to some thousand elements stays in the registers of its threads: each value that a
 * later pass reads, a tensor's element or a kept one, is loaded or computed once. Longer rows are
 * read again in each pass, and kept values are computed again, which is faster than a way through
 * memory.
 */
#include <string.h>

#include "codegen/dialect_cuda.h"

enum {
    WARP = 32,
    SHORT_BLOCK = 128,  /* threads of a block with several rows */
    MAX_THREADS = 512,  /* of a row; more would leave each fewer registers than it may need */
    HELD_BYTES = 128,   /* of a row, in the registers of a thread */
    HELD_ELEMENTS = 32, /* the same: elements of 16 bits are computed as f32 */
    SHORT_VECTORS = 4,  /* of a thread, before a row gets more lanes of its warp */
    LINE_BYTES = 64,    /* that the lanes of a row read next to each other, at least */
    BUSY_THREADS = 768, /* of a multiprocessor, at least */
    MAX_CODE = 4096,    /* instructions of all elements of a thread; a pass repeats its code */
    LONG_CODE = 12,     /* instructions of exp and similar primitives */
    WAYS = 4,           /* independent accumulations, of the elements of a vector or of vectors */
    NO_USE = GD_ROW_STORE + 1,
};

/* rows.cuh has the same numbers. */
_Static_assert(GD_ROW_SUM == 0 && GD_ROW_MAX == 1 && GD_ROW_MIN == 2 && GD_ROW_KEEP == 3 &&
                   GD_ROW_STORE == 4,
               "ROW_SUM, ROW_MAX, ...");
_Static_assert(GD_CUDA_ROW_VECTORS == 0 && GD_CUDA_ROW_SHARED == 1 && GD_CUDA_ROW_ELEMENTS == 2 &&
                   GD_CUDA_ROW_SCALAR == 3,
               "ROW_VECTORS, ROW_SHARED, ...");

/* --- what the passes read --------------------------------------------------------------------- */

/* Masks over variables: the tensors, then the kept rows. */
typedef struct pass_reads {
    uint32_t reads[GD_ROW_PASSES];  /* by the expression of a pass */
    uint32_t loads[GD_ROW_PASSES];  /* tensors that the pass loads */
    uint32_t redone[GD_ROW_PASSES]; /* passes, whose kept values the pass computes again */
} pass_reads;

static uint32_t variables_of(const gd_ir *ir) {
    uint32_t mask = 0;
    for (int i = 0; i < ir->count; i++)
        if (ir->nodes[i].code == GD_IR_VAR) mask |= UINT32_C(1) << ir->nodes[i].arg[0];
    return mask;
}

/* The variables of the outputs that a pass keeps. */
static uint32_t variables_of_kept(const gd_row_pass *pass) {
    bool needed[GD_IR_MAX_NODES] = {false};
    uint32_t mask = 0;
    for (int j = 0; j < pass->each.n_outputs; j++)
        if (pass->use[j] == GD_ROW_KEEP) needed[pass->each.output[j]] = true;
    for (int i = pass->each.count; i-- > 0;) {
        const gd_ir_node *n = &pass->each.nodes[i];
        if (!needed[i]) continue;
        if (n->code == GD_IR_VAR) mask |= UINT32_C(1) << n->arg[0];
        for (int k = 0; n->code >= GD_IR_PRIM && k < 3; k++)
            if (n->arg[k] >= 0) needed[n->arg[k]] = true;
    }
    return mask;
}

static uint32_t kept_by(const gd_row_program *rows, int pass) {
    const gd_row_pass *p = &rows->pass[pass];
    uint32_t mask = 0;
    for (int j = 0; j < p->each.n_outputs; j++)
        if (p->use[j] == GD_ROW_KEEP) mask |= UINT32_C(1) << (rows->n_tensors + p->number[j]);
    return mask;
}

/* Rows in registers: a tensor is loaded by the first pass that reads it. One that all rows share is
 * in the cache, and loaded by each pass. */
static void find_first_reads(const gd_row_program *rows, uint32_t shared, pass_reads *r) {
    const uint32_t tensors = (UINT32_C(1) << rows->n_tensors) - 1;
    uint32_t loaded = 0;
    for (int p = 0; p < rows->n_passes; p++) {
        r->reads[p] = variables_of(&rows->pass[p].each);
        r->loads[p] = r->reads[p] & tensors & ~loaded;
        r->redone[p] = 0;
        loaded |= r->loads[p] & ~shared;
    }
}

/* Rows that are read again: each pass loads what it and the passes that it repeats read. */
static void find_all_reads(const gd_row_program *rows, pass_reads *r) {
    const uint32_t tensors = (UINT32_C(1) << rows->n_tensors) - 1;
    for (int p = 0; p < rows->n_passes; p++) {
        r->reads[p] = variables_of(&rows->pass[p].each);
        r->redone[p] = 0;
        for (int q = p; q-- > 0;)
            if (r->reads[p] & kept_by(rows, q)) {
                r->redone[p] |= UINT32_C(1) << q;
                r->reads[p] |= variables_of_kept(&rows->pass[q]);
            }
        r->loads[p] = r->reads[p] & tensors;
    }
}

/* --- the division of the work ----------------------------------------------------------------- */

static int bytes_of_operand(const gd_kernel_source *s, int k) {
    const int n = s->rows->n_tensors;
    return gd_cuda_dtype_bytes(k < n ? s->in[k] : s->out[k - n], s->type);
}

/* The most bytes of one element that are in registers between two passes, at least those of an
 * f32. */
static int count_held_bytes(const gd_kernel_source *s) {
    const gd_row_program *rows = s->rows;
    pass_reads r;
    int most = HELD_BYTES / HELD_ELEMENTS;
    find_first_reads(rows, 0, &r);
    for (int p = 0; p + 1 < rows->n_passes; p++) {
        uint32_t made = 0, read = 0;
        int bytes = 0;
        for (int q = 0; q <= p; q++) made |= r.loads[q] | kept_by(rows, q);
        for (int q = p + 1; q < rows->n_passes; q++) read |= r.reads[q];
        for (int v = 0; v < rows->n_tensors + rows->n_kept; v++)
            if (made & read & UINT32_C(1) << v)
                bytes += v < rows->n_tensors ? bytes_of_operand(s, v)
                                             : gd_cuda_dtype_bytes(NULL, s->type);
        if (bytes > most) most = bytes;
    }
    return most;
}

/* The instructions of all passes for one element, about. */
static int count_code(const gd_row_program *rows) {
    int code = 1;
    for (int p = 0; p < rows->n_passes; p++)
        for (int i = 0; i < rows->pass[p].each.count; i++) {
            const gd_ir_node *n = &rows->pass[p].each.nodes[i];
            const gd_prim *prim = n->code >= GD_IR_PRIM ? &gd_prims[n->code - GD_IR_PRIM] : NULL;
            if (prim)
                code += prim->is_long || (prim->types == GD_PRIM_FLOAT && prim->arity < 3)
                            ? LONG_CODE
                            : 1;
        }
    return code;
}

static int largest_operand(const gd_kernel_source *s) {
    int most = 1;
    for (int k = 0; k < s->rows->n_tensors + s->rows->n_results; k++) {
        const bool is_value =
            k >= s->rows->n_tensors && s->rows->value_of[k - s->rows->n_tensors] >= 0;
        if (!is_value && bytes_of_operand(s, k) > most) most = bytes_of_operand(s, k);
    }
    return most;
}

static int64_t least_of(int64_t a, int64_t b) { return a < b ? a : b; }

void gd_cuda_divide_rows(const gd_kernel_source *s, int64_t rows, int64_t length,
                         gd_cuda_row_kernel *k) {
    const int bytes = largest_operand(s);
    memset(k, 0, sizeof *k);
    k->size = 16 / bytes;
    while (length % k->size != 0) k->size /= 2;
    const int64_t vectors = length / k->size;
    int64_t most = least_of(HELD_BYTES / (count_held_bytes(s) * k->size),
                            MAX_CODE / (count_code(s->rows) * k->size));
    if (most < 1) most = 1;
    int64_t threads = 1;
    while (threads < WARP && threads < vectors &&
           (threads * k->size * bytes < LINE_BYTES ||
            vectors > threads * least_of(most, SHORT_VECTORS)))
        threads *= 2;
    while (threads < MAX_THREADS &&
           (vectors > threads * most ||
            (threads < vectors && rows * threads < GD_CUDA_ENOUGH_THREADS)))
        threads *= 2;
    const int64_t each = (vectors + threads - 1) / threads;
    k->threads = (int)threads;
    k->block = threads > WARP ? (int)threads : SHORT_BLOCK;
    k->vectors = each <= 2 * most ? (int)each : 0;
}

/* --- the text --------------------------------------------------------------------------------- */

typedef struct rows_printer {
    FILE *out;
    const gd_kernel_source *source;
    const gd_row_program *rows;
    const char *type;
    pass_reads reads;
    int max_outputs, max_loads, max_reductions; /* of a pass */
} rows_printer;

/* Prints a function of a constant index, whose values are constants in unrolled loops. */
static void print_table(const rows_printer *p, const char *name, const char *head) {
    fprintf(p->out,
            "    static __host__ __device__ constexpr int %s {\n"
            "        constexpr int %s = {",
            name, head);
}
static void end_table(const rows_printer *p, const char *index) {
    fprintf(p->out, "};\n        return table%s;\n    }\n", index);
}

static void print_masks(const rows_printer *p, const char *name, const uint32_t *masks) {
    char head[64];
    snprintf(head, sizeof head, "%s(int pass)", name);
    print_table(p, head, "table[]");
    for (int i = 0; i < p->rows->n_passes; i++) fprintf(p->out, "%#x, ", (unsigned)masks[i]);
    end_table(p, "[pass]");
}

static void print_operand_tables(const rows_printer *p, const gd_cuda_row_kernel *k) {
    const gd_kernel_source *s = p->source;
    const int n = p->rows->n_tensors, all = n + p->rows->n_results;
    print_table(p, "dtype(int k)", "table[]");
    for (int i = 0; i < all; i++)
        fprintf(p->out, "%d, ", gd_cuda_dtype_code(i < n ? s->in[i] : s->out[i - n], s->type));
    end_table(p, "[k]");
    print_table(p, "layout(int k)", "table[]");
    for (int i = 0; i < all; i++) fprintf(p->out, "%d, ", k->layout[i]);
    end_table(p, "[k]");
}

static void print_pass_tables(const rows_printer *p) {
    const gd_row_program *rows = p->rows;
    char head[64];
    snprintf(head, sizeof head, "table[][%d]", p->max_outputs);
    print_table(p, "use(int pass, int j)", head);
    for (int i = 0; i < rows->n_passes; i++) {
        fputs("{", p->out);
        for (int j = 0; j < p->max_outputs; j++)
            fprintf(p->out, "%d, ",
                    j < rows->pass[i].each.n_outputs ? (int)rows->pass[i].use[j] : NO_USE);
        fputs("}, ", p->out);
    }
    end_table(p, "[pass][j]");
    print_table(p, "number(int pass, int j)", head);
    for (int i = 0; i < rows->n_passes; i++) {
        fputs("{", p->out);
        for (int j = 0; j < p->max_outputs; j++)
            fprintf(p->out, "%d, ", j < rows->pass[i].each.n_outputs ? rows->pass[i].number[j] : 0);
        fputs("}, ", p->out);
    }
    end_table(p, "[pass][j]");
    print_masks(p, "reads", p->reads.reads);
    print_masks(p, "loads", p->reads.loads);
    print_masks(p, "redone", p->reads.redone);
}

/* The parameters and the row values are members; the constructor reads the parameters and the
 * columns. Words: the addresses of the columns, then the parameters. */
static void print_members(const rows_printer *p, const char *name) {
    const gd_row_program *rows = p->rows;
    const gd_kernel_source *s = p->source;
    const int columns = rows->n_columns, n = rows->n_params;
    for (int i = 0; i < n + rows->n_values; i++) fprintf(p->out, "    s_%s p%d;\n", p->type, i);
    fprintf(p->out,
            "    __device__ __forceinline__ %s(const unsigned long long *w, long long row) {\n"
            "        (void)w, (void)row;\n",
            name);
    for (int i = 0; i < n; i++) {
        fprintf(p->out, "        p%d = ", i);
        if (i < s->n_scalars)
            fprintf(p->out, "load_element<s_%s>(%d, address_of(w[%d]), 0);\n", p->type,
                    gd_cuda_dtype_code(s->in[rows->n_tensors + i], p->type), columns + i);
        else
            fprintf(p->out, "(s_%s)__longlong_as_double((long long)w[%d]);\n", p->type,
                    columns + i);
    }
    for (int i = 0; i < columns; i++)
        fprintf(p->out, "        p%d = load_element<s_%s>(%d, address_of(w[%d]), row);\n", n + i,
                p->type, gd_cuda_dtype_code(s->in[rows->n_tensors + s->n_scalars + i], p->type), i);
    fputs("    }\n", p->out);
}

/* Functions for row values by number: the results of reductions, and those that are stored. */
static void print_values(const rows_printer *p) {
    const gd_row_program *rows = p->rows;
    fprintf(p->out,
            "    __device__ __forceinline__ void set(int number, s_%s x) {\n"
            "        switch (number) {\n",
            p->type);
    for (int i = rows->n_columns; i < rows->n_values; i++)
        fprintf(p->out, "        case %d: p%d = x; break;\n", i, rows->n_params + i);
    fprintf(p->out,
            "        }\n    }\n"
            "    __device__ __forceinline__ s_%s value(int result) const {\n"
            "        switch (result) {\n",
            p->type);
    for (int i = 0; i < rows->n_results; i++)
        if (rows->value_of[i] >= 0)
            fprintf(p->out, "        case %d: return p%d;\n", i,
                    rows->n_params + rows->value_of[i]);
    fputs("        default: return 0;\n        }\n    }\n", p->out);
    print_table(p, "is_value(int result)", "table[]");
    for (int i = 0; i < rows->n_results; i++) fprintf(p->out, "%d, ", rows->value_of[i] >= 0);
    end_table(p, "[result]");
}

static void print_once(const rows_printer *p, int pass) {
    const gd_row_pass *r = &p->rows->pass[pass];
    fprintf(p->out, "    __device__ __forceinline__ void once(constant<%d>) {\n", pass);
    if (r->once.n_outputs) gd_print_statements(p->out, &gd_dialect_cuda, &r->once, p->type);
    for (int j = 0; j < r->once.n_outputs; j++)
        fprintf(p->out, "        p%d = o%d;\n", p->rows->n_params + r->once_to[j], j);
    fputs("    }\n", p->out);
}

static void print_each(const rows_printer *p, int pass) {
    const gd_ir *ir = &p->rows->pass[pass].each;
    fprintf(p->out,
            "    __device__ __forceinline__ void each(constant<%d>, const s_%s *v, s_%s *o) "
            "const {\n        (void)v, (void)o;\n",
            pass, p->type, p->type);
    for (int i = 0; i < ir->n_vars; i++)
        if (gd_ir_uses_var(ir, i))
            fprintf(p->out, "        const s_%s v%d = v[%d];\n", p->type, i, i);
    if (ir->n_outputs) gd_print_statements(p->out, &gd_dialect_cuda, ir, p->type);
    for (int j = 0; j < ir->n_outputs; j++) fprintf(p->out, "        o[%d] = o%d;\n", j, j);
    fputs("    }\n", p->out);
}

static int count_bits(uint32_t mask) {
    int n = 0;
    for (; mask; mask &= mask - 1) n++;
    return n;
}

static rows_printer make_printer(FILE *out, const gd_kernel_source *s,
                                 const gd_cuda_row_kernel *k) {
    rows_printer p = {.out = out, .source = s, .rows = s->rows, .type = s->type, .max_outputs = 1};
    uint32_t shared = 0;
    for (int i = 0; i < s->rows->n_tensors; i++)
        if (k->layout[i] == GD_CUDA_ROW_SHARED) shared |= UINT32_C(1) << i;
    if (k->vectors) find_first_reads(s->rows, shared, &p.reads);
    else find_all_reads(s->rows, &p.reads);
    for (int i = 0; i < s->rows->n_passes; i++) {
        const gd_row_pass *pass = &s->rows->pass[i];
        const int outputs = pass->each.n_outputs, loads = count_bits(p.reads.loads[i]);
        int reductions = 0;
        while (reductions < outputs && gd_row_reduces(pass->use[reductions])) reductions++;
        if (outputs > p.max_outputs) p.max_outputs = outputs;
        if (loads > p.max_loads) p.max_loads = loads;
        if (reductions > p.max_reductions) p.max_reductions = reductions;
    }
    return p;
}

static void print_counts(const rows_printer *p, const gd_cuda_row_kernel *k) {
    const gd_row_program *rows = p->rows;
    const int unroll = p->max_loads <= 1 ? 4 : p->max_loads <= 3 ? 2 : 1;
    const int ways = p->max_reductions > 2 || k->size >= WAYS ? 1 : WAYS / k->size;
    bool has_values = false;
    for (int i = 0; i < rows->n_results; i++) has_values |= rows->value_of[i] >= 0;
    fprintf(p->out,
            "    typedef s_%s type;\n"
            "    enum {\n"
            "        TENSORS = %d, RESULTS = %d, COLUMNS = %d, PARAMS = %d, KEPT = %d,\n"
            "        PASSES = %d, OUTPUTS = %d, HAS_VALUES = %d,\n"
            "        THREADS = %d, BLOCK = %d, SIZE = %d, VECTORS = %d, UNROLL = %d, WAYS = %d,\n"
            "    };\n",
            p->type, rows->n_tensors, rows->n_results, rows->n_columns, rows->n_params,
            rows->n_kept, rows->n_passes, p->max_outputs, has_values, k->threads, k->block, k->size,
            k->vectors, unroll, ways);
}

/* The blocks that a multiprocessor must be able to run, which limits the registers: 80 for each
 * thread, or 64 so that there are two large blocks, of which one loads while the other computes. */
static int count_blocks(const gd_kernel_source *s, const gd_cuda_row_kernel *k) {
    if (k->vectors * k->size * count_held_bytes(s) > HELD_BYTES) return 1;
    return k->block == MAX_THREADS ? 2 : BUSY_THREADS / k->block;
}

void gd_cuda_print_rows(FILE *out, const gd_kernel_source *s, const gd_cuda_row_kernel *k,
                        const char *name) {
    const rows_printer p = make_printer(out, s, k);
    char program[128];
    snprintf(program, sizeof program, "%s_rows", name);
    fprintf(out, "struct %s {\n", program);
    print_counts(&p, k);
    print_operand_tables(&p, k);
    print_pass_tables(&p);
    print_members(&p, program);
    print_values(&p);
    for (int i = 0; i < s->rows->n_passes; i++) {
        print_once(&p, i);
        print_each(&p, i);
    }
    fprintf(out,
            "};\nextern \"C\" __global__ void __launch_bounds__(%d, %d) %s(\n"
            "        const __grid_constant__ row_arguments<%s> a) {\n"
            "    run_rows<%s>(a);\n}\n",
            k->block, count_blocks(s, k), name, program, program);
}
