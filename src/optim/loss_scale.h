/* loss_scale.h - the inside of a loss scale. */
#ifndef GRADUS_OPTIM_LOSS_SCALE_H
#define GRADUS_OPTIM_LOSS_SCALE_H

#include "gradus/loss_scale.h"
#include "optim/optimizer.h"

/* All of rank 0: the scale (f32); good steps since it changed last, and steps that were skipped (f64). */
enum { GD_LOSS_SCALE_SCALE, GD_LOSS_SCALE_GOOD, GD_LOSS_SCALE_SKIPPED, GD_LOSS_SCALE_STATE };
extern const char *const gd_loss_scale_names[GD_LOSS_SCALE_STATE];

/* Where the state lives: its first use decides. */
typedef enum gd_loss_scale_home {
    GD_LOSS_SCALE_UNUSED, /* values, which may become variables */
    GD_LOSS_SCALE_EAGER,  /* values */
    GD_LOSS_SCALE_GRAPH,  /* variables of a graph */
} gd_loss_scale_home;

struct gd_loss_scale {
    gd_object object;
    gd_loss_scale_options options;
    gd_loss_scale_home home;
    gd_tensor *state[GD_LOSS_SCALE_STATE]; /* held */
    bool unscaled;                         /* gd_loss_scale_unscale came since the last apply */
    const void *unscaled_in;               /* the trace that it came in; NULL: none */
};

/* What the gradients say of a step. */
typedef struct gd_verdict {
    gd_tensor *skip; /* as in gd_update */
    gd_tensor *next[GD_LOSS_SCALE_STATE];
} gd_verdict;

/* The parts of gd_minimize: the loss becomes the scaled one; the gradients of the optimizer, which are
 * symbols, are unscaled and judged; the state is written. */
gd_status gd_loss_scale_begin(gd_loss_scale *s, const gd_optimizer *o, gd_tensor **loss);
gd_status gd_loss_scale_symbols(gd_loss_scale *s, const gd_optimizer *o, gd_verdict *verdict);
gd_status gd_loss_scale_assign(const gd_loss_scale *s, const gd_verdict *verdict, gd_tensor **done,
                               int *n_done);

#endif
