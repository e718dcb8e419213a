/* print.c - the printer: the part that all dialects share. */
#include <math.h>
#include <string.h>

#include "codegen/dialect.h"
#include "codegen/record.h"
#include "core/number.h"

const char *gd_c_type(const char *type) {
    if (type[0] == 'i') return type[1] == '3' ? "int32_t" : "int64_t";
    return type[1] == '3' ? "float" : "double";
}

/* Writes a number as a C literal with the same bits. */
static void write_number(char *text, size_t size, const gd_dialect *d, const char *type,
                         double value) {
    const int wide = strcmp(type, "f64") == 0;
    if (type[0] == 'i') snprintf(text, size, "%lld", (long long)value);
    else if (isnan(value)) snprintf(text, size, "%s", d->nan[wide]);
    else if (isinf(value)) snprintf(text, size, "%s%s", value < 0 ? "-" : "", d->infinity[wide]);
    else gd_snprintf(text, size, "%a%s", value, wide ? "" : "f");
}

static void print_operand(FILE *out, const gd_dialect *d, const gd_ir *ir, int node,
                          const char *type) {
    const gd_ir_node *n = &ir->nodes[node];
    char text[64];
    switch (n->code) {
    case GD_IR_VAR: fprintf(out, "v%d", n->arg[0]); break;
    case GD_IR_PARAM: fprintf(out, "p%d", n->arg[0]); break;
    case GD_IR_CONST:
        write_number(text, sizeof text, d, type, n->value);
        fprintf(out, d->constant, type, text);
        break;
    default: fprintf(out, "t%d", node); break;
    }
}

void gd_print_statement(FILE *out, const gd_dialect *d, const gd_ir *ir, const char *type,
                        int node) {
    const gd_ir_node *n = &ir->nodes[node];
    const gd_prim *p = &gd_prims[n->code - GD_IR_PRIM];
    fputs("        ", out);
    fprintf(out, d->declare, type);
    fprintf(out, "t%d = ", node);
    fprintf(out, d->primitive, p->name, type);
    for (int k = 0; k < p->arity; k++) {
        fputs(k ? ", " : "(", out);
        print_operand(out, d, ir, n->arg[k], type);
    }
    fputs(");\n", out);
}

void gd_print_outputs(FILE *out, const gd_dialect *d, const gd_ir *ir, const char *type) {
    for (int i = 0; i < ir->n_outputs; i++) {
        fputs("        ", out);
        fprintf(out, d->declare, type);
        fprintf(out, "o%d = ", i);
        print_operand(out, d, ir, ir->output[i], type);
        fputs(";\n", out);
    }
}

void gd_print_statements(FILE *out, const gd_dialect *d, const gd_ir *ir, const char *type) {
    for (int i = 0; i < ir->count; i++)
        if (ir->nodes[i].code >= GD_IR_PRIM) gd_print_statement(out, d, ir, type, i);
    gd_print_outputs(out, d, ir, type);
}

bool gd_print_kernel(FILE *out, const gd_dialect *d, const gd_kernel_source *s, const char *name) {
    const gd_skeleton skeleton = s->rows ? d->rows : s->reduces ? d->reduction : d->loop;
    if (skeleton) skeleton(out, d, s, name);
    return skeleton != NULL;
}

static uint64_t hash_text(uint64_t h, const char *text) {
    for (; text && *text; text++) h = (h ^ (unsigned char)*text) * 1099511628211u;
    return (h ^ 0xFF) * 1099511628211u;
}

uint64_t gd_kernel_source_hash(const gd_kernel_source *s) {
    uint64_t h = s->rows ? gd_row_program_hash(s->rows) : gd_ir_hash(s->ir);
    h = hash_text(h, s->type);
    h = (h ^ (uint64_t)s->reduces) * 1099511628211u;
    h = (h ^ (uint64_t)s->n_scalars) * 1099511628211u;
    for (int i = 0; i < GD_SOURCE_INPUTS; i++) h = hash_text(h, s->in[i]);
    for (int i = 0; i < GD_SOURCE_OUTPUTS; i++) h = hash_text(h, s->out[i]);
    return h;
}
