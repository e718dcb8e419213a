/* loss_scale.h - the struct of a loss scale, and its part in gd_minimize. */
#ifndef GRADUS_OPTIM_LOSS_SCALE_H
#define GRADUS_OPTIM_LOSS_SCALE_H

#include "gradus/loss_scale.h"
#include "optim/optimizer.h"

/* The state, all of rank 0: the scale (f32); good steps since its last change, and skipped steps
 * (f64). */
enum { GD_LOSS_SCALE_SCALE, GD_LOSS_SCALE_GOOD, GD_LOSS_SCALE_SKIPPED, GD_LOSS_SCALE_STATE };
extern const char *const gd_loss_scale_names[GD_LOSS_SCALE_STATE];

/* Whether the state is eager or in a graph; the first use decides. */
typedef enum gd_loss_scale_home {
    GD_LOSS_SCALE_UNUSED, /* eager, and may become variables */
    GD_LOSS_SCALE_EAGER,  /* eager tensors */
    GD_LOSS_SCALE_GRAPH,  /* variables of a graph */
} gd_loss_scale_home;

struct gd_loss_scale {
    gd_object object;
    gd_loss_scale_options options;
    gd_loss_scale_home home;
    gd_tensor *state[GD_LOSS_SCALE_STATE]; /* retained */
    bool unscaled;           /* gd_loss_scale_unscale was called since the last apply */
    const void *unscaled_in; /* the trace of that call; NULL: none */
};

/* The decision about a step. */
typedef struct gd_verdict {
    gd_tensor *skip; /* as in gd_update */
    gd_tensor *next[GD_LOSS_SCALE_STATE];
} gd_verdict;

/* The steps of gd_minimize with a loss scale: scale the loss; unscale and check the gradients of
 * the optimizer, which are symbols; write the state. */
gd_status gd_loss_scale_begin(gd_loss_scale *s, const gd_optimizer *o, gd_tensor **loss);
gd_status gd_loss_scale_symbols(gd_loss_scale *s, const gd_optimizer *o, gd_verdict *verdict);
gd_status gd_loss_scale_assign(const gd_loss_scale *s, const gd_verdict *verdict, gd_tensor **done,
                               int *n_done);

#endif
