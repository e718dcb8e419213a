/* print_rows.c - the passes over the rows of a tensor as C.
 *
 * The kernel sees rows of n elements next to each other, of the type computed in; `in` and `out`
 * are where the first row begins, `in_step` and `out_step` the bytes from one row to the next.
 * Names in the text: x0 a row of a tensor, k0 a kept row, y0 a row of a result, p0 a parameter or
 * row value.
 */
#include <string.h>

#include "codegen/rows.h"

typedef struct printing {
    FILE *out;
    const gd_rows *rows;
    const char *type, *c; /* "f32", "float" */
    const char *lanes;    /* "VF32_LANES" */
} printing;

/* Loads, statements and what becomes of the results, for the vector at i or the part that is left
 * of it. Sums go to a0[way], a1[way], ... */
static void body(const printing *p, const gd_row_pass *pass, bool part, const char *way) {
    const char *which = part ? "_part" : "", *count = part ? ", left" : "";
    for (int i = 0; i < pass->each.n_vars; i++) {
        if (!gd_ir_uses_var(&pass->each, i)) continue;
        const bool kept = i >= p->rows->n_tensors;
        fprintf(p->out, "        v%s v%d = v_load%s_%s(%c%d + i%s);\n", p->type, i, which, p->type,
                kept ? 'k' : 'x', kept ? i - p->rows->n_tensors : i, count);
    }
    gd_print_statements(p->out, &gd_dialect_c, &pass->each, p->type);
    for (int i = 0; i < pass->each.n_outputs; i++) {
        static const char *const folds[] = {"add", "max", "min"};
        static const char *const neutral[] = {"0", "-__builtin_inf()", "__builtin_inf()"};
        const gd_row_use use = pass->use[i];
        if (!gd_row_folds(use))
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

static void simple_pass(const printing *p, const gd_row_pass *pass) {
    fprintf(p->out, "    {\n    int64_t i = 0;\n    for (; i + %s <= n; i += %s) {\n", p->lanes,
            p->lanes);
    body(p, pass, false, "0");
    fputs("    }\n    if (i < n) {\n        const int left = (int)(n - i);\n", p->out);
    body(p, pass, true, "0");
    fputs("    }\n    }\n", p->out);
}

/* In chunks, `ways` vectors side by side in each; see v_put_together in vmath_row.h. */
static void folding_pass(const printing *p, const gd_row_pass *pass) {
    FILE *out = p->out;
    static const char *const names[] = {"add", "max", "min"};
    static const char *const starts[] = {"0", "-__builtin_inf()", "__builtin_inf()"};
    fputs("    {\n", out);
    for (int i = 0; i < pass->each.n_outputs; i++)
        if (gd_row_folds(pass->use[i]))
            fprintf(out, "    double s%d = %s;\n", i, starts[pass->use[i]]);
    fprintf(out, "    for (int64_t c = 0; c < n; c += %d) {\n", GD_ROW_CHUNK);
    fprintf(out, "    const int64_t end = n - c < %d ? n : c + %d;\n    int64_t at = c;\n",
            GD_ROW_CHUNK, GD_ROW_CHUNK);
    for (int i = 0; i < pass->each.n_outputs; i++)
        if (gd_row_folds(pass->use[i]))
            fprintf(out,
                    "    v%s a%d[%d];\n    for (int w = 0; w < %d; w++) a%d[w] = v_splat_%s(%s);\n",
                    p->type, i, pass->ways, pass->ways, i, p->type, starts[pass->use[i]]);
    if (pass->ways > 1) {
        fprintf(out, "    for (; at + %d * %s <= end; at += %d * %s) {\n", pass->ways, p->lanes,
                pass->ways, p->lanes);
        fprintf(out, "#pragma GCC unroll %d\n    for (int w = 0; w < %d; w++) {\n", pass->ways,
                pass->ways);
        fprintf(out, "        const int64_t i = at + w * %s;\n", p->lanes);
        body(p, pass, false, "w");
        fputs("    }\n    }\n", out);
    }
    fprintf(out, "    for (; at + %s <= end; at += %s) {\n        const int64_t i = at;\n",
            p->lanes, p->lanes);
    body(p, pass, false, "0");
    fputs("    }\n    if (at < end) {\n        const int64_t i = at;\n        const int left = "
          "(int)(end - at);\n",
          out);
    body(p, pass, true, "0");
    fputs("    }\n", out);
    for (int i = 0; i < pass->each.n_outputs; i++) {
        if (!gd_row_folds(pass->use[i])) continue;
        const char *name = names[pass->use[i]];
        fprintf(out, "    s%d = v_on_%s(s%d, v_across_%s_%s(a%d, %d));\n", i, name, i, name,
                p->type, i, pass->ways);
    }
    fputs("    }\n", out);
    for (int i = 0; i < pass->each.n_outputs; i++)
        if (gd_row_folds(pass->use[i]))
            fprintf(out, "    p%d = v_splat_%s((%s)s%d);\n", p->rows->n_params + pass->number[i],
                    p->type, p->c, i);
    fputs("    }\n", out);
}

static void print_pass(const printing *p, const gd_row_pass *pass) {
    if (pass->once.n_outputs) {
        fputs("    {\n", p->out);
        gd_print_statements(p->out, &gd_dialect_c, &pass->once, p->type);
        for (int i = 0; i < pass->once.n_outputs; i++)
            fprintf(p->out, "    p%d = o%d;\n", p->rows->n_params + pass->once_to[i], i);
        fputs("    }\n", p->out);
    }
    bool folds = false;
    for (int i = 0; i < pass->each.n_outputs; i++) folds |= gd_row_folds(pass->use[i]);
    if (folds) folding_pass(p, pass);
    else if (pass->each.n_outputs) simple_pass(p, pass);
}

void gd_print_rows(FILE *out, const gd_rows *rows, const char *type, const char *name) {
    const bool wide = strcmp(type, "f64") == 0;
    const printing p = {out, rows, type, wide ? "double" : "float",
                        wide ? "VF64_LANES" : "VF32_LANES"};
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
