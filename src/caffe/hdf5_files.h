/* hdf5_files.h - weights and states of solvers in HDF5 files, as messages.
 *
 *   .caffemodel.h5    the groups data and, with the latest changes of the weights, diff: in them a group for
 *                     each layer, with its blobs as "0", "1", ...
 *   .solverstate.h5   the datasets iter and current_step (int, (1)), learned_net (a text), and the group
 *                     history with "0", "1", ...
 *
 * A layer whose name has slashes is a group in groups.
 */
#ifndef GRADUS_CAFFE_HDF5_FILES_H
#define GRADUS_CAFFE_HDF5_FILES_H

#include "format/file.h"
#include "format/protobuf.h"

/* Whether a path ends in ".h5". */
bool gd_caffe_is_hdf5(const char *path);

/* A NetParameter: the names and blobs of its layers. */
gd_status gd_caffe_net_save_hdf5(const gd_pb *net, const char *path);
gd_status gd_caffe_net_load_hdf5(gd_pb_doc **out, const char *path);

/* A SolverState. */
gd_status gd_caffe_state_save_hdf5(const gd_pb *state, const char *path);
gd_status gd_caffe_state_load_hdf5(gd_pb_doc **out, const char *path);

/* The same of files that are open. */
gd_status gd_caffe_net_read_hdf5(gd_pb_doc **out, const gd_file_reader *file);
gd_status gd_caffe_state_read_hdf5(gd_pb_doc **out, const gd_file_reader *file);

#endif
