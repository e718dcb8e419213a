/* step.h - random nets as training steps: the first value, the layers, the losses, the optimizer. */
#ifndef GRADUS_TESTS_HARNESS_NETS_STEP_H
#define GRADUS_TESTS_HARNESS_NETS_STEP_H

#include "net.h"

typedef struct step_options {
    bool zero_last, zero_never, accumulates, clips_norm, clips_value, scales, two_groups;
    bool fetches_gradient, fetches_parameter;
    bool evaluates; /* no gradients */
    const char *optimizer, *options;
} step_options;

/* Where noise of halves is about as large as clipped gradients, nothing could be compared. */
#define CLIP_VALUE(n) ((n)->autocast ? 0.5 : 0.05)

/* Builds the net on the CPU. */
void build_net(net *n);
/* The net with copies of its tensors on the device. */
net copy_net(const net *from, gd_device *device);
/* Inputs of step number `step`, on the CPU. */
gd_tensors net_inputs(const net *n, int step);
void make_optimizer(net *n);
/* What the step does beside the net; f16 always has a scaled loss. */
step_options draw_step(net *n);
/* The loss of a call. `shift` is another batch for gradient accumulation. */
gd_tensor *net_loss(net *n, gd_tensors in, int shift);
/* The loss and fetched values. */
gd_tensors net_values(gd_tensors in, void *user);
/* A training step. Returns the loss, the norm of the gradients if they are clipped, and fetched
 * values. With a jit for the values, only these are computed by a plan, and the tape has one node
 * for them. */
gd_tensors step_with(net *n, gd_tensors in, gd_jit *values);
gd_tensors net_step(gd_tensors in, void *user);

#endif
