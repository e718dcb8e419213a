/* upgrade.h - what the functions that upgrade nets and solvers tell each other. See read.h. */
#ifndef GRADUS_CAFFE_UPGRADE_H
#define GRADUS_CAFFE_UPGRADE_H

#include "caffe/read.h"

/* What has been upgraded, for the line in the log. */
enum {
    GD_CAFFE_OLD_LAYERS = 1,
    GD_CAFFE_OLD_TRANSFORMS = 2,
    GD_CAFFE_OLD_BATCH_NORMS = 4,
    GD_CAFFE_OLD_SOLVER_TYPE = 8,
};

/* Turns the layers of version 1 of a net, `layers`, into `layer`. */
gd_status gd_caffe_upgrade_layers(gd_pb *net, unsigned *upgraded);

/* Warns of options of a data layer of today that only had an effect in layers of version 1. */
void gd_caffe_warn_of_transform(const gd_pb *layer, const char *file);

#endif
