/* elementwise.c - writes the kernels of elementwise ops, of their gradients, and of single
 * primitives.
 *
 * The tiled evaluator runs the kernels of primitives one after the other for expressions that have
 * no kernel. A kernel is found by the hash of its expression, so equal expressions share one. The
 * hash also distributes kernels over a fixed number of files: editing an op rebuilds one or two of
 * them.
 */
#include <stdlib.h>
#include <string.h>

#include "codegen/dialect.h"
#include "codegen/opgen/opgen.h"

enum { SHARDS = 12 };

kernel_entry *entries[MAX_ENTRIES];
int n_entries;

/* `o` is NULL for a primitive. */
static kernel_entry *add_entry(const op *o, const gd_ir *ir, const gd_ir_node *nodes,
                               const char *label) {
    uint64_t hash = gd_ir_hash(ir);
    for (int i = 0; i < n_entries; i++)
        if (entries[i]->hash == hash) return entries[i];
    kernel_entry *e = calloc(1, sizeof *e);
    e->hash = hash;
    e->op = o;
    e->nodes = malloc(sizeof *nodes * GD_IR_MAX_NODES);
    memcpy(e->nodes, nodes, sizeof *nodes * GD_IR_MAX_NODES);
    e->ir = *ir;
    e->ir.nodes = e->nodes;
    snprintf(e->label, sizeof e->label, "%s", label);
    return entries[n_entries++] = e;
}

static void add_op_entries(op *o) {
    gd_record *r = &o->record;
    gd_ir_node nodes[GD_IR_MAX_NODES];
    gd_ir ir;
    char label[120];
    int used[4 * GD_RECORD_MAX];
    memset(nodes, 0, sizeof nodes);
    if (!gd_record_forward(r, &ir, nodes)) die(o->source->path, o->line, "%s", r->error);
    kernel_entry *e = add_entry(o, &ir, nodes, r->name);
    bool writes = false;
    for (int i = 0; i < r->n_inputs; i++) writes |= r->inputs[i].mutated;
    e->for_lists |= writes || r->inplace_too;
    if (writes) {
        gd_ir forward = ir;
        gd_ir_node forward_nodes[GD_IR_MAX_NODES];
        memcpy(forward_nodes, nodes, sizeof nodes);
        forward.nodes = forward_nodes;
        if (!gd_ir_unless(&forward, r->inputs, r->n_inputs, &ir, nodes))
            die(o->source->path, o->line, "the expressions are too long for the form with `skip`");
        snprintf(label, sizeof label, "%s, unless", r->name);
        add_entry(o, &ir, nodes, label)->for_lists = true;
    }
    for (int i = 0; i < r->n_inputs; i++) {
        if (!gd_record_gradient(r, i, &ir, nodes)) die(o->source->path, o->line, "%s", r->error);
        if (ir.nodes[ir.output[0]].code < GD_IR_PRIM) continue; /* zero, or passes through */
        gd_ir_compact(&ir, nodes, used);
        snprintf(label, sizeof label, "gradient of %s by %s", r->name, r->inputs[i].name);
        add_entry(o, &ir, nodes, label);
    }
}

static void add_prim_entry(int prim) {
    gd_ir_builder b = {.count = 0};
    gd_ir_node nodes[GD_IR_MAX_NODES];
    int args[3] = {-1, -1, -1};
    for (int i = 0; i < gd_prims[prim].arity; i++) args[i] = gd_ir_var(&b, i);
    int node = gd_ir_apply(&b, gd_prims[prim].name, args[0], args[1], args[2]);
    memset(nodes, 0, sizeof nodes);
    gd_ir ir = gd_ir_finish(&b, &node, 1, nodes);
    char label[120];
    snprintf(label, sizeof label, "primitive %s", gd_prims[prim].name);
    add_entry(NULL, &ir, nodes, label);
}

const kernel_type kernel_types[4] = {
    {"f32", GD_PRIM_FLOAT}, {"f64", GD_PRIM_FLOAT}, {"i32", GD_PRIM_INT}, {"i64", GD_PRIM_INT}};

static void print_kernel(FILE *out, const kernel_entry *e, int t) {
    char name[40];
    snprintf(name, sizeof name, "k_%016llx_%s", (unsigned long long)e->hash, kernel_types[t].type);
    fprintf(out, "/* %s */\nstatic ", e->label);
    const gd_kernel_source expression = {.ir = &e->ir, .type = kernel_types[t].type};
    gd_print_kernel(out, &gd_dialect_vector, &expression, name);
    fputs("\n", out);
}

static int by_hash(const void *a, const void *b) {
    uint64_t x = (*(kernel_entry *const *)a)->hash, y = (*(kernel_entry *const *)b)->hash;
    return x < y ? -1 : x > y;
}

static void print_shard(int shard) {
    char name[40];
    snprintf(name, sizeof name, "ew_%d.isa.c", shard);
    FILE *out = begin_output(name);
    fputs("/* Written by the build from the op records. */\n#include "
          "\"backend/cpu/elementwise.h\"\n#include \"backend/cpu/vmath_int_rounding.h\"\n\n",
          out);
    int count = 0;
    for (int i = 0; i < n_entries; i++) {
        if ((int)(entries[i]->hash % SHARDS) != shard) continue;
        for (int t = 0; t < 4; t++)
            if (gd_ir_types(&entries[i]->ir) & kernel_types[t].need)
                print_kernel(out, entries[i], t);
    }
    fprintf(out, "const gd_ew_kernel GD_ISA_FN(gd_ew_shard_%d)[] = {\n", shard);
    for (int i = 0; i < n_entries; i++) {
        kernel_entry *e = entries[i];
        if ((int)(e->hash % SHARDS) != shard) continue;
        fprintf(out, "    {0x%016llxu, {", (unsigned long long)e->hash);
        for (int t = 0; t < 4; t++) {
            if (gd_ir_types(&e->ir) & kernel_types[t].need)
                fprintf(out, "%sk_%016llx_%s", t ? ", " : "", (unsigned long long)e->hash,
                        kernel_types[t].type);
            else fprintf(out, "%sNULL", t ? ", " : "");
        }
        fputs("}},\n", out);
        count++;
    }
    if (!count) fputs("    {0, {NULL, NULL, NULL, NULL}},\n", out);
    fputs("};\n", out);
    fprintf(out, "const int GD_ISA_FN(gd_ew_shard_%d_count) = %d;\n", shard, count);
    finish_output();
}

void write_elementwise(void) {
    for (int i = 0; i < n_ops; i++)
        if (ops[i]->record.flags & GD_OP_ELEMENTWISE) add_op_entries(ops[i]);
    for (int i = 0; i < gd_prim_count; i++) add_prim_entry(i);
    qsort(entries, (size_t)n_entries, sizeof *entries, by_hash);
    for (int i = 0; i < SHARDS; i++) print_shard(i);
    FILE *out = begin_output("ew_table.isa.c");
    fputs("/* Written by the build from the op records. */\n#include "
          "\"backend/cpu/elementwise.h\"\n\n",
          out);
    for (int i = 0; i < SHARDS; i++)
        fprintf(out,
                "extern const gd_ew_kernel GD_ISA_FN(gd_ew_shard_%d)[];\nextern const int "
                "GD_ISA_FN(gd_ew_shard_%d_count);\n",
                i, i);
    fputs("\n/* The kernel of an expression, or NULL: each shard is sorted by hash. */\n"
          "const gd_ew_kernel *GD_ISA_FN(gd_ew_find)(uint64_t hash) {\n"
          "    const gd_ew_kernel *shard = NULL;\n    int low = 0, high = 0;\n",
          out);
    fprintf(out, "    switch (hash %% %d) {\n", SHARDS);
    for (int i = 0; i < SHARDS; i++)
        fprintf(out,
                "    case %d: shard = GD_ISA_FN(gd_ew_shard_%d), high = "
                "GD_ISA_FN(gd_ew_shard_%d_count); break;\n",
                i, i, i);
    fputs("    }\n    int count = high;\n    while (low < high) {\n        int middle = (low + "
          "high) / 2;\n"
          "        if (shard[middle].hash < hash) low = middle + 1;\n        else high = middle;\n "
          "   }\n"
          "    return shard && low < count && shard[low].hash == hash ? &shard[low] : NULL;\n}\n",
          out);
    finish_output();
    write_cuda_kernels();
}
