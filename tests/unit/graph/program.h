/* program.h - lowers small graphs to programs, runs passes, and compares programs as text. */
#ifndef GRADUS_TESTS_UNIT_GRAPH_PROGRAM_H
#define GRADUS_TESTS_UNIT_GRAPH_PROGRAM_H

#include "core/device.h"
#include "gradus/gradus.h"
#include "graph/passes/passes.h"
#include "test.h"

/* The program of a run, before any pass. */
static inline gd_program *program_of(gd_tensors feeds, gd_tensors values, gd_tensors fetches) {
    gd_program *p = NULL;
    gd_status status = gd_program_make(fetches, feeds, values, &p);
    CHECK_SAYING(status == GD_OK, "%s", gd_error_message());
    return p;
}

/* Runs a pass for the CPU; returns the number of changes, or -1 if it failed. */
static inline int run_pass(gd_program *p, const char *name) {
    gd_rewrite r = {.program = p, .device = gd_cpu()};
    return gd_pass_run(&r, name) == GD_OK ? r.changes : -1;
}

static inline void check_text(const gd_program *p, const char *expected) {
    char *text = gd_program_text(p);
    CHECK_SAYING(text && strcmp(text, expected) == 0, "the program is\n%snot\n%s",
                 text ? text : "(none)\n", expected);
    free(text);
}

/* Starts a graph in which x is a placeholder of shape (m, n). FETCH ends it and lowers it to the
 * program p that computes these tensors. */
#define IN_GRAPH(name, m, n)                              \
    GD_SCOPE;                                             \
    gd_graph *name = gd_graph_new();                      \
    gd_tensor *x, *y, *value = gd_full(gd_dims(m, n), 1); \
    gd_block block = gd_graph_begin(name);                \
    x = gd_placeholder(gd_dims(m, n))
#define FETCH(...)        \
    gd_graph_end(&block); \
    gd_program *p = program_of(gd_list(x), gd_list(value), gd_list(__VA_ARGS__))

#endif
