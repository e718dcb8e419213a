/* function.h - the internals of functions of the program (gd_apply). */
#ifndef GRADUS_AUTOGRAD_FUNCTION_H
#define GRADUS_AUTOGRAD_FUNCTION_H

#include "autograd/node.h"

enum { GD_MAX_SAVED = 32 };

/* context->state: collects the saved tensors in forward, and holds them in backward. */
typedef struct gd_function_state {
    gd_tensor *saved[GD_MAX_SAVED];
    int n_saved;
    gd_status status;    /* of gd_save */
    bool shapes;         /* tensors without data may be saved, too */
    const gd_node *node; /* backward on the tape: the node, which holds the saved tensors */
} gd_function_state;

static inline const char *gd_function_name(const gd_function *f) {
    return f->name ? f->name : "a function";
}

/* Calls forward or infer without the tape, and checks that all results are set. */
gd_status gd_function_forward(const gd_function *f, void (*half)(gd_context *), gd_tensors x,
                              void *user, gd_tensor **y, gd_function_state *state);

/* gd_apply while a graph is being built: adds a node. */
gd_status gd_function_trace(const gd_function *f, gd_tensors x, void *user, gd_tensor **y);

static inline int gd_function_results(const gd_function *f) { return f->n_out > 0 ? f->n_out : 1; }

#endif
