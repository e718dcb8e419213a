/* phase.h - the two phases of a net. */
#ifndef GRADUS_CAFFE_PHASE_H
#define GRADUS_CAFFE_PHASE_H

/* The numbers are those of the enum Phase in Caffe's files. */
typedef enum gd_caffe_phase { GD_CAFFE_TRAIN, GD_CAFFE_TEST } gd_caffe_phase;

#endif
