/* task.c - loss and metrics that fit the targets of data. */
#include "tool.h"

bool is_text(gd_tensors sample) {
    if (sample.count != 2) return false;
    for (int i = 0; i < 2; i++)
        if (gd_tensor_rank(sample.at[i]) != 1 || gd_dtype_is_float(gd_tensor_dtype(sample.at[i])))
            return false;
    return gd_tensor_dim(sample.at[0], 0) == gd_tensor_dim(sample.at[1], 0);
}

/* The loss of sequences: scores (N, T, C) and classes (N, T); each position is a sample. */
static gd_tensor *sequence_loss(gd_tensors outputs, gd_tensors targets, void *user) {
    (void)user;
    gd_tensor *scores = outputs.at[0];
    return gd_cross_entropy(gd_flatten(scores, .start_axis = 0, .end_axis = -2),
                            gd_flatten(targets.at[0]));
}

const char *set_task(gd_compile_options *c, gd_tensors sample, bool classes, const char *loss,
                     const char *metrics) {
    const bool sequence = classes && gd_tensor_rank(sample.at[sample.count - 1]) == 1;
    c->loss = loss ? loss : sequence ? NULL : classes ? "cross_entropy" : "mse";
    c->loss_function = c->loss ? NULL : sequence_loss;
    c->metrics = metrics ? metrics : sequence ? "accuracy axis=-1" : classes ? "accuracy" : "mae";
    return c->loss ? c->loss : "";
}
