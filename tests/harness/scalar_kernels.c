/* scalar_kernels.c - collects, compiles and runs kernels of the scalar dialect. */
#include "scalar_kernels.h"

#include <stdlib.h>
#include <string.h>

#include "gradus/extend.h"

struct scalar_state scalar;

scalar_kernel *scalar_find(uint64_t hash) {
    for (int i = 0; i < scalar.count; i++)
        if (scalar.kernels[i].hash == hash) return &scalar.kernels[i];
    return NULL;
}

void scalar_collect(const gd_kernel_source *source, uint64_t hash) {
    if (scalar_find(hash)) return;
    if (scalar.count == scalar.room) {
        scalar.room = 2 * scalar.room + 64;
        scalar.kernels = realloc(scalar.kernels, (size_t)scalar.room * sizeof *scalar.kernels);
    }
    scalar.kernels[scalar.count++] = (scalar_kernel){.hash = hash, .source = *source};
}

static bool scalar_match(const gd_kernel_call *call) {
    gd_kernel_source source;
    if (scalar.phase == SCALAR_OFF || !gd_scalar_source_of_call(call, &source)) return false;
    const uint64_t hash = gd_kernel_source_hash(&source);
    if (scalar.phase == SCALAR_COLLECT) {
        scalar_collect(&source, hash);
        return false;
    }
    const scalar_kernel *k = scalar_find(hash);
    return k && k->fn;
}

static gd_status scalar_run(gd_kernel_call *call) {
    enum { ROWS_AT_ONCE = 3 }; /* few, so that slots of `kept` are reused */
    gd_kernel_source source;
    gd_scalar_args args;
    gd_scalar_source_of_call(call, &source);
    const scalar_kernel *k = scalar_find(gd_kernel_source_hash(&source));
    gd_scalar_args_of_call(call, &args);
    args.kept_rows = ROWS_AT_ONCE;
    args.kept = malloc(gd_scalar_kept_bytes(call, &args, ROWS_AT_ONCE) + 1);
    for (int64_t i = 0; i < args.count; i++) k->fn(i, &args);
    free(args.kept);
    scalar.runs++;
    scalar.runs_of_rows += source.rows != NULL;
    scalar.runs_of_reductions += source.reduces != GD_REDUCES_NOTHING;
    return GD_OK;
}

void scalar_begin(int sample) {
    static const gd_kernel each = {.op = "elementwise",
                                   .variant = "scalar",
                                   .device = "cpu",
                                   .rank = 100,
                                   .match = scalar_match,
                                   .run = scalar_run},
                           fused = {.op = "fused_reduction",
                                    .variant = "scalar",
                                    .device = "cpu",
                                    .rank = 100,
                                    .match = scalar_match,
                                    .run = scalar_run};
    static gd_kernel reductions[8]; /* sum, mean, max, min */
    static bool registered;
    int n = 0;
    if (!registered) {
        gd_kernel_register(&each);
        gd_kernel_register(&fused);
    }
    for (int i = 0; !registered && i < gd_op_count() && n < 8; i++) {
        const gd_op *op = gd_op_at(i);
        if (op->facts.reduces == GD_REDUCES_NOTHING) continue;
        reductions[n] = fused;
        reductions[n].op = op->name;
        gd_kernel_register(&reductions[n++]);
    }
    registered = true;
    scalar.phase = SCALAR_COLLECT;
    scalar.sample = sample;
    scalar.runs = scalar.runs_of_rows = scalar.runs_of_reductions = 0;
}

const gd_native_target *scalar_target(void) {
    static const char *const flags[] = {"-O1", NULL};
    static gd_native_target target = {.name = "scalar", .dialect = &gd_dialect_scalar};
    target.flags = flags;
    target.prelude = gd_scalar_prelude;
    target.prelude_bytes = gd_scalar_prelude_bytes;
    return &target;
}

int scalar_compile(void) {
    gd_kernel_source *sources = calloc((size_t)scalar.count + 1, sizeof *sources);
    gd_compiled_fn *fns = calloc((size_t)scalar.count + 1, sizeof *fns);
    int *which = calloc((size_t)scalar.count + 1, sizeof *which), n = 0, compiled = 0;
    for (int i = 0; i < scalar.count; i++) {
        if (scalar.kernels[i].hash % (uint64_t)scalar.sample) continue;
        which[n] = i;
        sources[n++] = scalar.kernels[i].source;
    }
    gd_native_kernels(sources, n, scalar_target(), fns);
    for (int i = 0; i < n; i++) {
        scalar.kernels[which[i]].fn = (gd_scalar_fn)(void *)fns[i];
        compiled += fns[i] != NULL;
    }
    free(sources);
    free(fns);
    free(which);
    scalar.phase = SCALAR_RUN;
    return compiled == n ? n : -1;
}

void scalar_end(void) {
    scalar.phase = SCALAR_OFF;
    free(scalar.kernels);
    scalar.kernels = NULL;
    scalar.count = scalar.room = 0;
}
