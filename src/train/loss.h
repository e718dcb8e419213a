/* loss.h - the loss of a batch: by name, by a function, with weights. */
#ifndef GRADUS_TRAIN_LOSS_H
#define GRADUS_TRAIN_LOSS_H

#include "train/batches.h"

/* Fills loss, sum and count; the weight becomes that of metrics, with class weights in it. */
gd_status gd_batch_loss(gd_batches *b, gd_tensors batch, gd_batch_result *result);

/* Whether the training can weigh samples; the failure says what it needs. */
gd_status gd_check_weights(const gd_training *t, const char *what, const gd_tensor *class_weights);

#endif
