/* stages.h - the stages of a net, which a program names in one text. */
#ifndef GRADUS_CAFFE_STAGES_H
#define GRADUS_CAFFE_STAGES_H

#include "gradus/status.h"

enum { GD_CAFFE_MAX_STAGES = 64 };

/* Reads names that are separated by spaces; they are interned. NULL: none. */
gd_status gd_caffe_read_stages(const char *text, const char *stages[GD_CAFFE_MAX_STAGES],
                               int *count);

#endif
