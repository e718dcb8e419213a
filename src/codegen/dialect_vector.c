/* dialect_vector.c - C with the vectors of the CPU backend (backend/cpu/vmath.h).
 *
 * A loop computes n elements. Operands are contiguous and of the compute type.
 */
#include <string.h>

#include "codegen/dialect.h"
#include "codegen/stages.h"

/* --- the loop --------------------------------------------------------------------------------- */

/* Prints loads, statements and stores of a stage for one vector, or for the partial vector at the
 * end. Buffers hold the elements from `block` on. */
static void print_loop_body(FILE *out, const gd_dialect *d, const gd_ir *ir, const char *type,
                            const gd_stages *s, int stage, bool part) {
    const char *which = part ? "_part" : "", *count = part ? ", (int)(end - i)" : "";
    const bool last = stage == s->count - 1;
    for (int i = 0; i < ir->n_vars; i++)
        if (gd_stage_reads_var(ir, s, stage, i))
            fprintf(out, "        v%s v%d = v_load%s_%s(x%d + i%s);\n", type, i, which, type, i,
                    count);
    for (int i = 0; i < ir->count; i++) {
        if (ir->nodes[i].code < GD_IR_PRIM) continue;
        if (s->stage[i] == stage) gd_print_statement(out, d, ir, type, i);
        else if (gd_stage_reads_node(ir, s, stage, i))
            fprintf(out, "        v%s t%d = v_load_%s(b%d + (i - block));\n", type, i, type,
                    s->buffer[i]);
    }
    for (int i = 0; i < ir->count; i++)
        if (s->stage[i] == stage && s->buffer[i] >= 0)
            fprintf(out, "        v_store_%s(b%d + (i - block), t%d);\n", type, s->buffer[i], i);
    if (!last) return;
    gd_print_outputs(out, d, ir, type);
    for (int i = 0; i < ir->n_outputs; i++)
        fprintf(out, "        v_store%s_%s(y%d + i, o%d%s);\n", which, type, i, i, count);
}

/* Prints a loop over full vectors, then one partial vector. */
static void print_loop(FILE *out, const gd_dialect *d, const gd_ir *ir, const char *type,
                       const gd_stages *s, int stage) {
    const char upper[4] = {type[0] == 'f' ? 'F' : 'I', type[1], type[2], 0};
    fprintf(out, "    for (; i + V%s_LANES <= end; i += V%s_LANES) {\n", upper, upper);
    print_loop_body(out, d, ir, type, s, stage, false);
    fputs("    }\n    if (i < end) {\n", out);
    print_loop_body(out, d, ir, type, s, stage, true);
    fputs("    }\n", out);
}

/* Prints a loop over blocks, which runs the loops of all stages for each block. */
static void print_blocks(FILE *out, const gd_dialect *d, const gd_ir *ir, const char *type,
                         const gd_stages *s) {
    const int block = GD_STAGE_BYTES / (type[1] == '3' ? 4 : 8);
    for (int i = 0; i < s->n_buffers; i++)
        fprintf(out, "    _Alignas(64) %s b%d[%d];\n", gd_c_type(type), i, block);
    fprintf(out, "    for (int64_t block = 0; block < n; block += %d) {\n", block);
    fprintf(out, "    const int64_t end = n - block < %d ? n : block + %d;\n    int64_t i;\n",
            block, block);
    for (int stage = 0; stage < s->count; stage++) {
        fputs("    i = block;\n", out);
        print_loop(out, d, ir, type, s, stage);
    }
    fputs("    }\n", out);
}

static void print_vector_loop(FILE *out, const gd_dialect *d, const gd_kernel_source *source,
                              const char *name) {
    const gd_ir *ir = source->ir;
    const char *type = source->type, *c = gd_c_type(type);
    fprintf(
        out,
        "void %s(int64_t n, const void *const *in, void *const *out, const gd_param *params) {\n",
        name);
    fputs("    (void)in; (void)params;\n", out);
    for (int i = 0; i < ir->n_vars; i++)
        if (gd_ir_uses_var(ir, i)) fprintf(out, "    const %s *x%d = in[%d];\n", c, i, i);
    for (int i = 0; i < ir->n_outputs; i++) fprintf(out, "    %s *y%d = out[%d];\n", c, i, i);
    const char *kind = type[0] == 'i' ? "integer" : "real";
    for (int i = 0; i < ir->n_params; i++)
        fprintf(out, "    const v%s p%d = v_splat_%s((%s)params[%d].%s); (void)p%d;\n", type, i,
                type, c, i, kind, i);
    gd_stages stages;
    gd_find_stages(ir, type[0] == 'f', &stages);
    if (stages.count > 1) print_blocks(out, d, ir, type, &stages);
    else {
        fputs("    const int64_t end = n;\n    int64_t i = 0;\n", out);
        print_loop(out, d, ir, type, &stages, 0);
    }
    fputs("}\n", out);
}

/* --- passes over rows -------------------------------------------------------------------------
 *
 * The kernel sees rows of n contiguous elements of the compute type. `in` and `out` point to the
 * first row; `in_step` and `out_step` are the bytes from one row to the next. Names in the text: x0
 * a row of a tensor, k0 a kept row, y0 a row of a result, p0 a parameter or row value.
 */

typedef struct row_printer {
    FILE *out;
    const gd_dialect *dialect;
    const gd_row_program *rows;
    const char *type, *c; /* "f32", "float" */
    const char *lanes;    /* "VF32_LANES" */
} row_printer;

/* Prints loads, statements and stores for the vector at i, or for the partial vector at the end.
 * Reductions accumulate in a0[way], a1[way], ... */
static void print_row_body(const row_printer *p, const gd_row_pass *pass, bool part,
                           const char *way) {
    const char *which = part ? "_part" : "", *count = part ? ", left" : "";
    for (int i = 0; i < pass->each.n_vars; i++) {
        if (!gd_ir_uses_var(&pass->each, i)) continue;
        const bool kept = i >= p->rows->n_tensors;
        fprintf(p->out, "        v%s v%d = v_load%s_%s(%c%d + i%s);\n", p->type, i, which, p->type,
                kept ? 'k' : 'x', kept ? i - p->rows->n_tensors : i, count);
    }
    gd_print_statements(p->out, p->dialect, &pass->each, p->type);
    for (int i = 0; i < pass->each.n_outputs; i++) {
        static const char *const folds[] = {"add", "max", "min"};
        static const char *const neutral[] = {"0", "-__builtin_inf()", "__builtin_inf()"};
        const gd_row_use use = pass->use[i];
        if (!gd_row_reduces(use))
            fprintf(p->out, "        v_store%s_%s(%c%d + i, o%d%s);\n", which, p->type,
                    use == GD_ROW_KEEP ? 'k' : 'y', pass->number[i], i, count);
        else if (part)
            fprintf(p->out, "        a%d[%s] = v_%s_%s(a%d[%s], v_first_%s(o%d, left, %s));\n", i,
                    way, folds[use], p->type, i, way, p->type, i, neutral[use]);
        else
            fprintf(p->out, "        a%d[%s] = v_%s_%s(a%d[%s], o%d);\n", i, way, folds[use],
                    p->type, i, way, i);
    }
}

/* Prints a pass without reductions. */
static void print_simple_pass(const row_printer *p, const gd_row_pass *pass) {
    fprintf(p->out, "    {\n    int64_t i = 0;\n    for (; i + %s <= n; i += %s) {\n", p->lanes,
            p->lanes);
    print_row_body(p, pass, false, "0");
    fputs("    }\n    if (i < n) {\n        const int left = (int)(n - i);\n", p->out);
    print_row_body(p, pass, true, "0");
    fputs("    }\n    }\n", p->out);
}

/* Prints a pass with reductions. It works in chunks, each with `ways` independent accumulators; see
 * vmath_row.h. */
static void print_reducing_pass(const row_printer *p, const gd_row_pass *pass) {
    FILE *out = p->out;
    static const char *const names[] = {"add", "max", "min"};
    static const char *const starts[] = {"0", "-__builtin_inf()", "__builtin_inf()"};
    fputs("    {\n", out);
    for (int i = 0; i < pass->each.n_outputs; i++)
        if (gd_row_reduces(pass->use[i]))
            fprintf(out, "    double s%d = %s;\n", i, starts[pass->use[i]]);
    fprintf(out, "    for (int64_t c = 0; c < n; c += %d) {\n", GD_ROW_CHUNK);
    fprintf(out, "    const int64_t end = n - c < %d ? n : c + %d;\n    int64_t at = c;\n",
            GD_ROW_CHUNK, GD_ROW_CHUNK);
    for (int i = 0; i < pass->each.n_outputs; i++)
        if (gd_row_reduces(pass->use[i]))
            fprintf(out,
                    "    v%s a%d[%d];\n    for (int w = 0; w < %d; w++) a%d[w] = v_splat_%s(%s);\n",
                    p->type, i, pass->ways, pass->ways, i, p->type, starts[pass->use[i]]);
    if (pass->ways > 1) {
        fprintf(out, "    for (; at + %d * %s <= end; at += %d * %s) {\n", pass->ways, p->lanes,
                pass->ways, p->lanes);
        fprintf(out, "#pragma GCC unroll %d\n    for (int w = 0; w < %d; w++) {\n", pass->ways,
                pass->ways);
        fprintf(out, "        const int64_t i = at + w * %s;\n", p->lanes);
        print_row_body(p, pass, false, "w");
        fputs("    }\n    }\n", out);
    }
    fprintf(out, "    for (; at + %s <= end; at += %s) {\n        const int64_t i = at;\n",
            p->lanes, p->lanes);
    print_row_body(p, pass, false, "0");
    fputs("    }\n    if (at < end) {\n        const int64_t i = at;\n        const int left = "
          "(int)(end - at);\n",
          out);
    print_row_body(p, pass, true, "0");
    fputs("    }\n", out);
    for (int i = 0; i < pass->each.n_outputs; i++) {
        if (!gd_row_reduces(pass->use[i])) continue;
        const char *name = names[pass->use[i]];
        fprintf(out, "    s%d = v_on_%s(s%d, v_across_%s_%s(a%d, %d));\n", i, name, i, name,
                p->type, i, pass->ways);
    }
    fputs("    }\n", out);
    for (int i = 0; i < pass->each.n_outputs; i++)
        if (gd_row_reduces(pass->use[i]))
            fprintf(out, "    p%d = v_splat_%s((%s)s%d);\n", p->rows->n_params + pass->number[i],
                    p->type, p->c, i);
    fputs("    }\n", out);
}

static void print_pass(const row_printer *p, const gd_row_pass *pass) {
    if (pass->once.n_outputs) {
        fputs("    {\n", p->out);
        gd_print_statements(p->out, p->dialect, &pass->once, p->type);
        for (int i = 0; i < pass->once.n_outputs; i++)
            fprintf(p->out, "    p%d = o%d;\n", p->rows->n_params + pass->once_to[i], i);
        fputs("    }\n", p->out);
    }
    bool folds = false;
    for (int i = 0; i < pass->each.n_outputs; i++) folds |= gd_row_reduces(pass->use[i]);
    if (folds) print_reducing_pass(p, pass);
    else if (pass->each.n_outputs) print_simple_pass(p, pass);
}

static void print_vector_rows(FILE *out, const gd_dialect *d, const gd_kernel_source *source,
                              const char *name) {
    const gd_row_program *rows = source->rows;
    const char *type = source->type;
    const bool wide = strcmp(type, "f64") == 0;
    const row_printer p = {
        out, d, rows, type, wide ? "double" : "float", wide ? "VF64_LANES" : "VF32_LANES"};
    fprintf(out,
            "void %s(int64_t rows, int64_t n, char *const *in, const int64_t *in_step, char *const "
            "*out,\n"
            "        const int64_t *out_step, char *const *kept, const gd_param *params) {\n",
            name);
    for (int i = 0; i < rows->n_params; i++)
        fprintf(out, "    const v%s p%d = v_splat_%s((%s)params[%d].real); (void)p%d;\n", type, i,
                type, p.c, i, i);
    for (int i = 0; i < rows->n_kept; i++)
        fprintf(out, "    %s *k%d = (%s *)kept[%d];\n", p.c, i, p.c, i);
    fputs("    (void)kept; (void)params;\n    for (int64_t row = 0; row < rows; row++) {\n", out);
    for (int i = 0; i < rows->n_tensors; i++)
        fprintf(out, "    const %s *x%d = (const %s *)(in[%d] + row * in_step[%d]); (void)x%d;\n",
                p.c, i, p.c, i, i, i);
    for (int i = 0; i < rows->n_results; i++)
        fprintf(out, "    %s *y%d = (%s *)(out[%d] + row * out_step[%d]);\n", p.c, i, p.c, i, i);
    for (int i = 0; i < rows->n_values; i++) {
        const int at = rows->n_tensors + i;
        if (i < rows->n_columns)
            fprintf(out,
                    "    const v%s p%d = v_splat_%s(*(const %s *)(in[%d] + row * in_step[%d]));\n",
                    type, rows->n_params + i, type, p.c, at, at);
        else fprintf(out, "    v%s p%d;\n", type, rows->n_params + i);
    }
    for (int i = 0; i < rows->n_passes; i++) print_pass(&p, &rows->pass[i]);
    for (int i = 0; i < rows->n_results; i++)
        if (rows->value_of[i] >= 0)
            fprintf(out, "    *y%d = p%d[0];\n", i, rows->n_params + rows->value_of[i]);
    fputs("    }\n}\n", out);
}

const gd_dialect gd_dialect_vector = {.name = "vector",
                                      .declare = "v%s ",
                                      .primitive = "v_%s_%s",
                                      .constant = "v_splat_%s(%s)",
                                      .nan = {"__builtin_nanf(\"\")", "__builtin_nan(\"\")"},
                                      .infinity = {"__builtin_inff()", "__builtin_inf()"},
                                      .loop = print_vector_loop,
                                      .rows = print_vector_rows};
