/* loss.h - the loss of a batch: by name, by a function, with weights. */
#ifndef GRADUS_TRAIN_LOSS_H
#define GRADUS_TRAIN_LOSS_H

#include "train/batches.h"

/* Sets loss, sum and count of the result. Multiplies its weight, which metrics use, by the class
 * weights. */
gd_status gd_batch_loss(gd_batches *b, gd_tensors batch, gd_batch_result *result);

/* Fails if the loss of the training does not support weights. */
gd_status gd_check_weights(const gd_training *t, const char *what, const gd_tensor *class_weights);

#endif
