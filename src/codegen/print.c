/* print.c - the printer, and the dialect of the CPU. */
#include "codegen/print.h"

#include <math.h>
#include <string.h>

#include "codegen/stages.h"
#include "core/number.h"

/* --- any language ----------------------------------------------------------------------------- */

/* A number as C writes it, to the last bit. */
static void number(char *text, size_t size, const char *type, double value) {
    const char *suffix = strcmp(type, "f32") == 0 ? "f" : "";
    if (type[0] == 'i') snprintf(text, size, "%lld", (long long)value);
    else if (isnan(value)) snprintf(text, size, "__builtin_nan%s(\"\")", suffix);
    else if (isinf(value))
        snprintf(text, size, "%s__builtin_inf%s()", value < 0 ? "-" : "", suffix);
    else gd_snprintf(text, size, "%a%s", value, suffix);
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

static void statement(FILE *out, const gd_dialect *d, const gd_ir *ir, const char *type, int node) {
    const gd_ir_node *n = &ir->nodes[node];
    const gd_prim *p = &gd_prims[n->code - GD_IR_PRIM];
    fputs("        ", out);
    fprintf(out, d->declare, type);
    fprintf(out, "t%d = ", node);
    fprintf(out, d->primitive, p->name, type);
    for (int k = 0; k < p->arity; k++) {
        fputs(k ? ", " : "(", out);
        operand(out, d, ir, n->arg[k], type);
    }
    fputs(");\n", out);
}

static void assign_outputs(FILE *out, const gd_dialect *d, const gd_ir *ir, const char *type) {
    for (int i = 0; i < ir->n_outputs; i++) {
        fputs("        ", out);
        fprintf(out, d->declare, type);
        fprintf(out, "o%d = ", i);
        operand(out, d, ir, ir->output[i], type);
        fputs(";\n", out);
    }
}

void gd_print_statements(FILE *out, const gd_dialect *d, const gd_ir *ir, const char *type) {
    for (int i = 0; i < ir->count; i++)
        if (ir->nodes[i].code >= GD_IR_PRIM) statement(out, d, ir, type, i);
    assign_outputs(out, d, ir, type);
}

void gd_print_kernel(FILE *out, const gd_dialect *d, const gd_ir *ir, const char *type,
                     const char *name) {
    d->kernel(out, d, ir, type, name);
}

/* --- C ---------------------------------------------------------------------------------------- */

static const char *c_type(const char *type) {
    if (type[0] == 'i') return type[1] == '3' ? "int32_t" : "int64_t";
    return type[1] == '3' ? "float" : "double";
}

/* Loads, statements and stores of a stage for one vector, or the part of one that is left. Elements
 * [.., end) are worked on; buffers hold those from `block` on. */
static void c_body(FILE *out, const gd_dialect *d, const gd_ir *ir, const char *type,
                   const gd_stages *s, int stage, bool part) {
    const char *which = part ? "_part" : "", *count = part ? ", (int)(end - i)" : "";
    const bool last = stage == s->count - 1;
    for (int i = 0; i < ir->n_vars; i++)
        if (gd_stage_reads_var(ir, s, stage, i))
            fprintf(out, "        v%s v%d = v_load%s_%s(x%d + i%s);\n", type, i, which, type, i,
                    count);
    for (int i = 0; i < ir->count; i++) {
        if (ir->nodes[i].code < GD_IR_PRIM) continue;
        if (s->stage[i] == stage) statement(out, d, ir, type, i);
        else if (gd_stage_reads_node(ir, s, stage, i))
            fprintf(out, "        v%s t%d = v_load_%s(b%d + (i - block));\n", type, i, type,
                    s->buffer[i]);
    }
    for (int i = 0; i < ir->count; i++)
        if (s->stage[i] == stage && s->buffer[i] >= 0)
            fprintf(out, "        v_store_%s(b%d + (i - block), t%d);\n", type, s->buffer[i], i);
    if (!last) return;
    assign_outputs(out, d, ir, type);
    for (int i = 0; i < ir->n_outputs; i++)
        fprintf(out, "        v_store%s_%s(y%d + i, o%d%s);\n", which, type, i, i, count);
}

/* One pass over full vectors, then one partial vector. */
static void c_loop(FILE *out, const gd_dialect *d, const gd_ir *ir, const char *type,
                   const gd_stages *s, int stage) {
    const char upper[4] = {type[0] == 'f' ? 'F' : 'I', type[1], type[2], 0};
    fprintf(out, "    for (; i + V%s_LANES <= end; i += V%s_LANES) {\n", upper, upper);
    c_body(out, d, ir, type, s, stage, false);
    fputs("    }\n    if (i < end) {\n", out);
    c_body(out, d, ir, type, s, stage, true);
    fputs("    }\n", out);
}

/* The loops of all stages over a block, then the next block. */
static void c_blocks(FILE *out, const gd_dialect *d, const gd_ir *ir, const char *type,
                     const gd_stages *s) {
    const int block = GD_STAGE_BYTES / (type[1] == '3' ? 4 : 8);
    for (int i = 0; i < s->n_buffers; i++)
        fprintf(out, "    _Alignas(64) %s b%d[%d];\n", c_type(type), i, block);
    fprintf(out, "    for (int64_t block = 0; block < n; block += %d) {\n", block);
    fprintf(out, "    const int64_t end = n - block < %d ? n : block + %d;\n    int64_t i;\n",
            block, block);
    for (int stage = 0; stage < s->count; stage++) {
        fputs("    i = block;\n", out);
        c_loop(out, d, ir, type, s, stage);
    }
    fputs("    }\n", out);
}

static void c_kernel(FILE *out, const gd_dialect *d, const gd_ir *ir, const char *type,
                     const char *name) {
    const char *c = c_type(type);
    fprintf(
        out,
        "void %s(int64_t n, const void *const *in, void *const *out, const gd_param *params) {\n",
        name);
    fputs("    (void)in; (void)params;\n", out);
    for (int i = 0; i < ir->n_vars; i++)
        if (gd_ir_uses_var(ir, i)) fprintf(out, "    const %s *x%d = in[%d];\n", c, i, i);
    for (int i = 0; i < ir->n_outputs; i++) fprintf(out, "    %s *y%d = out[%d];\n", c, i, i);
    const char *kind = type[0] == 'i' ? "whole" : "real";
    for (int i = 0; i < ir->n_params; i++)
        fprintf(out, "    const v%s p%d = v_splat_%s((%s)params[%d].%s); (void)p%d;\n", type, i,
                type, c, i, kind, i);
    gd_stages stages;
    gd_find_stages(ir, type[0] == 'f', &stages);
    if (stages.count > 1) c_blocks(out, d, ir, type, &stages);
    else {
        fputs("    const int64_t end = n;\n    int64_t i = 0;\n", out);
        c_loop(out, d, ir, type, &stages, 0);
    }
    fputs("}\n", out);
}

const gd_dialect gd_dialect_c = {.name = "c",
                                 .declare = "v%s ",
                                 .primitive = "v_%s_%s",
                                 .constant = "v_splat_%s(%s)",
                                 .kernel = c_kernel};
