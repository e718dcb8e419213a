/* dialect_scalar.c - C in which a call computes one element, one output of a reduction or one row.
 *
 * The text of a kernel comes after those of scalar_args.h and scalar_math.h. Names in it: `a` the
 * arguments, `i` the index of the call, `j` the index of the loop inside a call, `at` the
 * coordinates of both; v0 an element of a tensor, p0 a parameter or row value, k0 a kept row, s0 an
 * accumulator.
 *
 * Other dialects whose kernels compute one element use these skeletons with another `head`, which
 * holds the qualifiers and the computation of the index.
 */
#include <string.h>

#include "codegen/dialect.h"

typedef struct scalar_printer {
    FILE *out;
    const gd_dialect *dialect;
    const gd_kernel_source *source;
    const char *type;
    int n_tensors, n_params; /* parameters without row values */
} scalar_printer;

static const char *dtype_or(const char *dtype, const char *type) { return dtype ? dtype : type; }

/* --- operands --------------------------------------------------------------------------------- */

/* Declares the parameters: scalars are read from memory, the others are arguments. */
static void print_params(const scalar_printer *p) {
    const char *type = p->type, *kind = type[0] == 'i' ? "integer" : "real";
    for (int i = 0; i < p->n_params; i++) {
        fputs("    const ", p->out);
        fprintf(p->out, p->dialect->declare, type);
        if (i < p->source->n_scalars)
            fprintf(p->out, "p%d = s_load_%s_%s(a->scalars[%d], 0);", i,
                    dtype_or(p->source->in[p->n_tensors + i], type), type, i);
        else fprintf(p->out, "p%d = (%s)a->params[%d].%s;", i, gd_c_type(type), i, kind);
        fprintf(p->out, " (void)p%d;\n", i);
    }
}

/* `flat` is the index of the element if the operand is contiguous. */
static void print_load(const scalar_printer *p, int tensor, const char *flat) {
    fputs("        const ", p->out);
    fprintf(p->out, p->dialect->declare, p->type);
    fprintf(p->out, "v%d = s_load_%s_%s(a->operand[%d].data, s_offset(a, %d, at, %s));\n", tensor,
            dtype_or(p->source->in[tensor], p->type), p->type, tensor, tensor, flat);
}

static void print_store(const scalar_printer *p, int result, int value, const char *flat) {
    const int operand = p->n_tensors + result;
    fprintf(p->out, "        s_store_%s_%s(a->operand[%d].data, s_offset(a, %d, at, %s), o%d);\n",
            p->type, dtype_or(p->source->out[result], p->type), operand, operand, flat, value);
}

static void print_head(const scalar_printer *p, const char *name) {
    fprintf(p->out, p->dialect->head, name);
    fputs("    int64_t at[GD_SCALAR_RANK];\n    s_outer(a, i, at);\n", p->out);
    print_params(p);
}

static void print_loop_head(const scalar_printer *p) {
    fputs("    for (int64_t j = 0; j < a->inner_count; j++) {\n        s_inner(a, j, at);\n",
          p->out);
}

static const char loop_index[] = "i * a->inner_count + j"; /* `flat` inside the loop */

/* --- accumulators ----------------------------------------------------------------------------- */

static const char *const fold_names[] = {"add", "max", "min"}; /* by gd_row_use */

/* Sums of floats accumulate in f64, so that the error does not grow with the length. */
static bool sums_in_f64(const scalar_printer *p, gd_row_use fold) {
    return fold == GD_ROW_SUM && p->type[0] == 'f';
}

static void print_accumulator(const scalar_printer *p, int number, gd_row_use fold) {
    const int wide = strcmp(p->type, "f64") == 0;
    fputs("    ", p->out);
    fprintf(p->out, p->dialect->declare, sums_in_f64(p, fold) ? "f64" : p->type);
    fprintf(p->out, "s%d = ", number);
    if (fold == GD_ROW_SUM) fputs("0;\n", p->out);
    else if (p->type[0] == 'i')
        fprintf(p->out, "%s_%s;\n", fold == GD_ROW_MAX ? "S_MIN" : "S_MAX", p->type);
    else fprintf(p->out, "%s%s;\n", fold == GD_ROW_MAX ? "-" : "", p->dialect->infinity[wide]);
}

static void print_fold(const scalar_printer *p, int number, gd_row_use fold, int value) {
    fprintf(p->out, "        s%d = ", number);
    if (sums_in_f64(p, fold)) fprintf(p->out, "s%d + (double)o%d;\n", number, value);
    else {
        fprintf(p->out, p->dialect->primitive, fold_names[fold], p->type);
        fprintf(p->out, "(s%d, o%d);\n", number, value);
    }
}

/* --- the skeletons ---------------------------------------------------------------------------- */

static scalar_printer make_printer(FILE *out, const gd_dialect *d, const gd_kernel_source *s) {
    return (scalar_printer){.out = out,
                            .dialect = d,
                            .source = s,
                            .type = s->type,
                            .n_tensors = s->rows ? s->rows->n_tensors : s->ir->n_vars,
                            .n_params = s->rows ? s->rows->n_params : s->ir->n_params};
}

static void print_loads(const scalar_printer *p, const gd_ir *ir, const char *flat) {
    for (int i = 0; i < ir->n_vars && i < p->n_tensors; i++)
        if (gd_ir_uses_var(ir, i)) print_load(p, i, flat);
}

void gd_scalar_loop(FILE *out, const gd_dialect *d, const gd_kernel_source *s, const char *name) {
    const scalar_printer p = make_printer(out, d, s);
    print_head(&p, name);
    print_loads(&p, s->ir, "i");
    gd_print_statements(out, d, s->ir, s->type);
    for (int i = 0; i < s->ir->n_outputs; i++) print_store(&p, i, i, "i");
    fputs("}\n", out);
}

/* All outputs but the last are stored element by element. The last one is reduced and stored as
 * element i of its operand. */
void gd_scalar_reduction(FILE *out, const gd_dialect *d, const gd_kernel_source *s,
                         const char *name) {
    const scalar_printer p = make_printer(out, d, s);
    const int last = s->ir->n_outputs - 1, operand = p.n_tensors + last;
    const gd_row_use fold = s->reduces == GD_REDUCES_MAX   ? GD_ROW_MAX
                            : s->reduces == GD_REDUCES_MIN ? GD_ROW_MIN
                                                           : GD_ROW_SUM;
    print_head(&p, name);
    print_accumulator(&p, 0, fold);
    print_loop_head(&p);
    print_loads(&p, s->ir, loop_index);
    gd_print_statements(out, d, s->ir, s->type);
    for (int i = 0; i < last; i++) print_store(&p, i, i, loop_index);
    print_fold(&p, 0, fold, last);
    fputs("    }\n", out);
    if (s->reduces == GD_REDUCES_MEAN) fputs("    s0 = s0 / (double)a->inner_count;\n", out);
    /* the result's strides in the inner dims are 0 */
    fprintf(out, "    s_store_%s_%s(a->operand[%d].data, s_offset(a, %d, at, i), (%s)s0);\n}\n",
            s->type, dtype_or(s->out[last], s->type), operand, operand, gd_c_type(s->type));
}

/* --- passes over rows ------------------------------------------------------------------------- */

static void print_kept_rows(const scalar_printer *p) {
    const char *c = gd_c_type(p->type);
    for (int i = 0; i < p->source->rows->n_kept; i++)
        fprintf(p->out,
                "    %s *k%d = (%s *)a->kept + (i %% a->kept_rows * %d + %d) * a->inner_count;\n",
                c, i, c, p->source->rows->n_kept, i);
}

/* Declares the row values: columns are read, the others are computed by the passes. */
static void print_row_values(const scalar_printer *p) {
    const gd_row_program *rows = p->source->rows;
    for (int i = 0; i < rows->n_values; i++) {
        fputs("    ", p->out);
        fprintf(p->out, p->dialect->declare, p->type);
        fprintf(p->out, "p%d = ", rows->n_params + i);
        if (i < rows->n_columns)
            fprintf(p->out, "s_load_%s_%s(a->columns[%d], i);\n",
                    dtype_or(p->source->in[p->n_tensors + p->source->n_scalars + i], p->type),
                    p->type, i);
        else fputs("0;\n", p->out);
    }
}

/* Prints the row values that a pass computes once for each row. */
static void print_once(const scalar_printer *p, const gd_row_pass *pass) {
    if (!pass->once.n_outputs) return;
    fputs("    {\n", p->out);
    gd_print_statements(p->out, p->dialect, &pass->once, p->type);
    for (int i = 0; i < pass->once.n_outputs; i++)
        fprintf(p->out, "        p%d = o%d;\n", p->n_params + pass->once_to[i], i);
    fputs("    }\n", p->out);
}

/* Prints the loop of a pass over the elements of a row. */
static void print_each(const scalar_printer *p, const gd_row_pass *pass) {
    if (!pass->each.n_outputs) return;
    fputs("    {\n", p->out);
    for (int i = 0; i < pass->each.n_outputs; i++)
        if (gd_row_reduces(pass->use[i])) print_accumulator(p, i, pass->use[i]);
    print_loop_head(p);
    print_loads(p, &pass->each, loop_index);
    for (int i = p->n_tensors; i < pass->each.n_vars; i++)
        if (gd_ir_uses_var(&pass->each, i)) {
            fputs("        const ", p->out);
            fprintf(p->out, p->dialect->declare, p->type);
            fprintf(p->out, "v%d = k%d[j];\n", i, i - p->n_tensors);
        }
    gd_print_statements(p->out, p->dialect, &pass->each, p->type);
    for (int i = 0; i < pass->each.n_outputs; i++) {
        if (gd_row_reduces(pass->use[i])) print_fold(p, i, pass->use[i], i);
        else if (pass->use[i] == GD_ROW_STORE) print_store(p, pass->number[i], i, loop_index);
        else fprintf(p->out, "        k%d[j] = o%d;\n", pass->number[i], i);
    }
    fputs("    }\n", p->out);
    for (int i = 0; i < pass->each.n_outputs; i++)
        if (gd_row_reduces(pass->use[i]))
            fprintf(p->out, "    p%d = (%s)s%d;\n", p->n_params + pass->number[i],
                    gd_c_type(p->type), i);
    fputs("    }\n", p->out);
}

void gd_scalar_rows(FILE *out, const gd_dialect *d, const gd_kernel_source *s, const char *name) {
    const scalar_printer p = make_printer(out, d, s);
    const gd_row_program *rows = s->rows;
    print_head(&p, name);
    print_kept_rows(&p);
    print_row_values(&p);
    for (int i = 0; i < rows->n_passes; i++) {
        print_once(&p, &rows->pass[i]);
        print_each(&p, &rows->pass[i]);
    }
    for (int i = 0; i < rows->n_results; i++)
        if (rows->value_of[i] >= 0) /* a result with one value for each row */
            fprintf(out, "    s_store_%s_%s(a->operand[%d].data, i, p%d);\n", s->type,
                    dtype_or(s->out[i], s->type), p.n_tensors + i,
                    rows->n_params + rows->value_of[i]);
    fputs("}\n", out);
}

const gd_dialect gd_dialect_scalar = {.name = "scalar",
                                      .declare = "s_%s ",
                                      .primitive = "s_%s_%s",
                                      .constant = "((s_%s)%s)",
                                      .nan = {"__builtin_nanf(\"\")", "__builtin_nan(\"\")"},
                                      .infinity = {"__builtin_inff()", "__builtin_inf()"},
                                      .head = "void %s(int64_t i, const gd_scalar_args *a) {\n",
                                      .loop = gd_scalar_loop,
                                      .reduction = gd_scalar_reduction,
                                      .rows = gd_scalar_rows};
