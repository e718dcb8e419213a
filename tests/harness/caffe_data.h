/* caffe_data.h - small databases for solvers of Caffe. */
#ifndef GRADUS_TESTS_HARNESS_CAFFE_DATA_H
#define GRADUS_TESTS_HARNESS_CAFFE_DATA_H

#include "gradus/status.h"

/* Writes `count` samples (3,6,5) of 4 classes to an LMDB folder: normal numbers from the seed, of which one of
 * the first four is larger; its index is the class. GD_E_UNSUPPORTED: the library has no liblmdb. */
bool caffe_has_databases(void); /* whether it has */
gd_status caffe_write_database(const char *folder, int count, int seed);

#endif
