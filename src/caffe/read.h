/* read.h - reads the files of Caffe: nets and solvers of any version, as text or binary.
 *
 * What is read has today's fields only: files of older versions are upgraded, and a line of the log
 * says so. Layers of version 0 are refused. `input`, `input_dim` and `input_shape` stay as they are,
 * and so do fields that have a meaning of their own beside their successors, such as concat_dim.
 */
#ifndef GRADUS_CAFFE_READ_H
#define GRADUS_CAFFE_READ_H

#include "caffe/schema.h"

/* A NetParameter: a prototxt or a .caffemodel. */
gd_status gd_caffe_read_net(gd_pb_doc **out, const char *path);
/* A SolverParameter. Nets in it are upgraded, too. */
gd_status gd_caffe_read_solver(gd_pb_doc **out, const char *path);

/* The same for messages that were read from elsewhere; `file` is for the log. */
gd_status gd_caffe_upgrade_net(gd_pb *net, const char *file);
gd_status gd_caffe_upgrade_solver(gd_pb *solver, const char *file);

/* Finds the file or folder that a field of the file `of_file` names: from the working directory, then from
 * the folder of `of_file` and from each folder around it. The message of a failure lists them. */
gd_status gd_caffe_find_file(const char *path, const char *of_file, char *found, size_t size);

#endif
