/* math.c - elementary functions: nanoseconds per element, one thread, data in cache. */
#include <stdio.h>

#include "bench.h"
#include "gradus/gradus.h"

enum { COUNT = 16384 };
typedef struct {
    const gd_op *op;
    gd_tensor *x, *y;
} job;

static void apply_op(void *arg) {
    job *j = arg;
    gd_op_run_into(j->op, gd_list(j->x), NULL, gd_list(j->y));
}

static void bench_functions(void) {
    GD_SCOPE;
    gd_set_num_threads(1);
    static const char *const names[] = {"exp", "tanh", "erf", "log", "sin", "sigmoid", "gelu"};
    static float values[COUNT];
    for (int i = 0; i < COUNT; i++) values[i] = 0.01f + 4.0f * (float)i / COUNT;
    job j = {.x = gd_from_array(gd_dims(COUNT), GD_F32, values),
             .y = gd_empty(gd_dims(COUNT), GD_F32)};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        j.op = gd_op_find(names[i]);
        if (!j.op) continue;
        char name[40];
        double spread, ns = bench_time(apply_op, &j, &spread);
        snprintf(name, sizeof name, "%s_ns", names[i]);
        bench_report(name, ns / COUNT, spread / COUNT, "ns/elem",
                     i < 3 ? "target 0.6 with AVX2" : "");
    }
}

const bench_entry bench_math[] = {{"math", bench_functions}, {NULL, NULL}};
