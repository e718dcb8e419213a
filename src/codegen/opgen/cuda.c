/* cuda.c - writes the kernels of elementwise ops for the CUDA backend.
 *
 * All kernels of an op are in one file, so that editing the op recompiles one file. An expression
 * has the variants of codegen/dialect_cuda.h: vectors for compute type f32, elements for all types,
 * and lists for f32 where an op can write its inputs. Dtypes are arguments of the kernels. The
 * single primitives, which the CPU's tiled evaluator needs, have none.
 */
#include <stdlib.h>

#include "codegen/dialect_cuda.h"
#include "codegen/opgen/opgen.h"

enum { SHARDS = 24 }; /* cmake/cuda.cmake has the same number */

static int shard_of(const kernel_entry *e) {
    uint32_t hash = 2166136261u;
    for (const char *c = e->op->record.name; *c; c++) hash = (hash ^ (unsigned char)*c) * 16777619u;
    return (int)(hash % SHARDS);
}

static bool has_long_primitive(const gd_ir *ir) {
    for (int i = 0; i < ir->count; i++)
        if (ir->nodes[i].code >= GD_IR_PRIM && gd_prims[ir->nodes[i].code - GD_IR_PRIM].is_long)
            return true;
    return false;
}

/* Lists of other ops are rare; the backend compiles their kernels when it needs them. */
static bool has_list_kernel(const kernel_entry *e) {
    if (e->ir.n_vars == 1 && e->ir.n_outputs == 1 && gd_ir_is_var(&e->ir, 0))
        return true; /* casts */
    return e->for_lists && (gd_ir_types(&e->ir) & GD_PRIM_FLOAT) && !has_long_primitive(&e->ir) &&
           e->ir.n_vars + e->ir.n_params >= 2;
}

typedef struct kernel_names {
    FILE *out, *list;
} kernel_names;

static void print_kernel(const kernel_names *n, gd_cuda_variant variant, const kernel_entry *e,
                         const char *type) {
    char expression[64], name[64];
    snprintf(expression, sizeof expression, "x_%016llx_%s", (unsigned long long)e->hash, type);
    snprintf(name, sizeof name, "gd_%c_%016llx_%s", "vel"[variant], (unsigned long long)e -> hash,
             type);
    gd_cuda_print_kernel(n->out, variant, expression, name);
    fprintf(n->list, "    EMULATED_KERNEL(%s, false),\n", name);
}

static void print_kernels(const kernel_names *n, const kernel_entry *e) {
    fprintf(n->out, "\n/* %s */\n", e->label);
    for (int t = 0; t < 4; t++) {
        if (!(gd_ir_types(&e->ir) & kernel_types[t].need)) continue;
        char expression[64];
        snprintf(expression, sizeof expression, "x_%016llx_%s", (unsigned long long)e->hash,
                 kernel_types[t].type);
        const gd_kernel_source text = {.ir = &e->ir, .type = kernel_types[t].type};
        gd_cuda_print_expression(n->out, &text, expression, true);
        if (t == 0) print_kernel(n, GD_CUDA_VECTORS, e, kernel_types[t].type);
        print_kernel(n, GD_CUDA_ELEMENTS, e, kernel_types[t].type);
        if (t == 0 && has_list_kernel(e)) print_kernel(n, GD_CUDA_LIST, e, kernel_types[t].type);
    }
}

/* The end of the file is for the emulator (tests/cuda), which needs a table of the kernels. */
static void print_shard(int shard) {
    char name[40], *list = NULL;
    size_t bytes;
    snprintf(name, sizeof name, "expression_%d.cu", shard);
    const kernel_names n = {.out = begin_output(name), .list = open_memstream(&list, &bytes)};
    fputs("/* Written by the build from the op records. */\n"
          "#include \"backend/cuda/expression.cuh\"\n",
          n.out);
    for (int i = 0; i < n_entries; i++)
        if (entries[i]->op && shard_of(entries[i]) == shard) print_kernels(&n, entries[i]);
    fclose(n.list);
    fprintf(n.out,
            "\n#ifdef EMULATED_KERNEL\nextern const emulated_kernel emulated_expression_%d[];\n"
            "const emulated_kernel emulated_expression_%d[] = {\n%s    {}};\n#endif\n",
            shard, shard, list);
    free(list);
    finish_output();
}

void write_cuda_kernels(void) {
    for (int i = 0; i < SHARDS; i++) print_shard(i);
    FILE *out = begin_output("expression_table.c");
    fputs("/* Written by the build from the op records. */\n"
          "#include \"backend/cuda/expression_table.h\"\n\n"
          "const gd_cuda_expression gd_cuda_expressions[] = {\n",
          out);
    int count = 0;
    for (int i = 0; i < n_entries; i++) {
        const kernel_entry *e = entries[i];
        if (!e->op) continue;
        unsigned mask = 0;
        for (int t = 0; t < 4; t++)
            mask |= (gd_ir_types(&e->ir) & kernel_types[t].need ? 1u : 0u) << t;
        fprintf(out, "    {0x%016llxu, %d, 0x%x, %d, %d, %d, %d}, /* %s */\n",
                (unsigned long long)e->hash, shard_of(e), mask, has_list_kernel(e), e->ir.n_vars,
                e->ir.n_params, gd_cuda_unroll(&e->ir), e->label);
        count++;
    }
    fprintf(out, "};\nconst int gd_cuda_expression_count = %d;\n", count);
    finish_output();
}
