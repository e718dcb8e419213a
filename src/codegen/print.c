/* print.c - the printer, and the dialect of the CPU. */
#include "codegen/print.h"

#include <math.h>
#include <string.h>

#include "core/number.h"

/* --- any language ------------------------------------------------------------------------------
 */

/* A number as C writes it, to the last bit. */
static void number(char *text, size_t size, const char *type, double value) {
    const char *suffix = strcmp(type, "f32") == 0 ? "f" : "";
    if (type[0] == 'i')
        snprintf(text, size, "%lld", (long long)value);
    else if (isnan(value))
        snprintf(text, size, "__builtin_nan%s(\"\")", suffix);
    else if (isinf(value))
        snprintf(text, size, "%s__builtin_inf%s()", value < 0 ? "-" : "", suffix);
    else
        gd_snprintf(text, size, "%a%s", value, suffix);
}

static void operand(FILE *out, const gd_dialect *d, const gd_ir *ir, int node, const char *type) {
    const gd_ir_node *n = &ir->nodes[node];
    char text[64];
    switch (n->code) {
    case GD_IR_VAR: fprintf(out, "v%d", n->arg[0]); break;
    case GD_IR_PARAM: fprintf(out, "p%d", n->arg[0]); break;
    case GD_IR_CONST:
        number(text, sizeof text, type, n->value);
        fprintf(out, d->constant, type, text);
        break;
    default: fprintf(out, "t%d", node); break;
    }
}

void gd_print_statements(FILE *out, const gd_dialect *d, const gd_ir *ir, const char *type) {
    for (int i = 0; i < ir->count; i++) {
        const gd_ir_node *n = &ir->nodes[i];
        if (n->code < GD_IR_PRIM) continue;
        const gd_prim *p = &gd_prims[n->code - GD_IR_PRIM];
        fputs("        ", out);
        fprintf(out, d->declare, type);
        fprintf(out, "t%d = ", i);
        fprintf(out, d->primitive, p->name, type);
        for (int k = 0; k < p->arity; k++) {
            fputs(k ? ", " : "(", out);
            operand(out, d, ir, n->arg[k], type);
        }
        fputs(");\n", out);
    }
    for (int i = 0; i < ir->n_outputs; i++) {
        fputs("        ", out);
        fprintf(out, d->declare, type);
        fprintf(out, "o%d = ", i);
        operand(out, d, ir, ir->output[i], type);
        fputs(";\n", out);
    }
}

void gd_print_kernel(FILE *out, const gd_dialect *d, const gd_ir *ir, const char *type,
                     const char *name) {
    d->kernel(out, d, ir, type, name);
}

/* --- C -----------------------------------------------------------------------------------------
 */

static const char *c_type(const char *type) {
    if (type[0] == 'i') return type[1] == '3' ? "int32_t" : "int64_t";
    return type[1] == '3' ? "float" : "double";
}

/* Loads, statements and stores for one vector, or the part of one that is left. */
static void c_body(FILE *out, const gd_dialect *d, const gd_ir *ir, const char *type, bool part) {
    const char *which = part ? "_part" : "", *count = part ? ", (int)(n - i)" : "";
    for (int i = 0; i < ir->n_vars; i++)
        if (gd_ir_uses_var(ir, i))
            fprintf(out, "        v%s v%d = v_load%s_%s(x%d + i%s);\n", type, i, which, type, i,
                    count);
    gd_print_statements(out, d, ir, type);
    for (int i = 0; i < ir->n_outputs; i++)
        fprintf(out, "        v_store%s_%s(y%d + i, o%d%s);\n", which, type, i, i, count);
}

/* One pass over full vectors, then one partial vector. */
static void c_kernel(FILE *out, const gd_dialect *d, const gd_ir *ir, const char *type,
                     const char *name) {
    const char *c = c_type(type);
    const char upper[4] = {type[0] == 'f' ? 'F' : 'I', type[1], type[2], 0};
    fprintf(out,
            "void %s(int64_t n, const void *const *in, void *const *out, const double *params) {\n",
            name);
    fputs("    (void)in; (void)params;\n", out);
    for (int i = 0; i < ir->n_vars; i++)
        if (gd_ir_uses_var(ir, i)) fprintf(out, "    const %s *x%d = in[%d];\n", c, i, i);
    for (int i = 0; i < ir->n_outputs; i++) fprintf(out, "    %s *y%d = out[%d];\n", c, i, i);
    char number[24]; /* how a parameter becomes one of that type */
    snprintf(number, sizeof number, type[0] == 'i' ? "gd_whole_%s" : "(%s)",
             type[0] == 'i' ? type : c);
    for (int i = 0; i < ir->n_params; i++)
        fprintf(out, "    const v%s p%d = v_splat_%s(%s(params[%d])); (void)p%d;\n", type, i, type,
                number, i, i);
    fprintf(out, "    int64_t i = 0;\n    for (; i + V%s_LANES <= n; i += V%s_LANES) {\n", upper,
            upper);
    c_body(out, d, ir, type, false);
    fputs("    }\n    if (i < n) {\n", out);
    c_body(out, d, ir, type, true);
    fputs("    }\n}\n", out);
}

const gd_dialect gd_dialect_c = {.name = "c",
                                 .declare = "v%s ",
                                 .primitive = "v_%s_%s",
                                 .constant = "v_splat_%s(%s)",
                                 .kernel = c_kernel};
