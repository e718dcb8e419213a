/* hdf5_write.h - the parts of the HDF5 writer: hdf5_write.c has the calls, hdf5_write_tree.c writes
 * groups, headers and texts at the commit.
 */
#ifndef GRADUS_FORMAT_HDF5_WRITE_H
#define GRADUS_FORMAT_HDF5_WRITE_H

#include "core/error.h"
#include "core/name_map.h"
#include "format/file.h"
#include "format/hdf5.h"

enum {
    GD_HDF5_SUPERBLOCK_BYTES = 96,
    GD_HDF5_REFERENCE_BYTES = 16, /* of a text that is elsewhere: length, address, number */
};
#define GD_HDF5_ELSEWHERE UINT32_MAX

/* The type and shape of what is written. */
typedef struct gd_hdf5_array {
    gd_dtype dtype; /* of numbers */
    uint32_t text;  /* bytes of each string; ELSEWHERE: they have any length; 0: numbers */
    int rank;
    int64_t dims[GD_HDF5_MAX_RANK];
} gd_hdf5_array;

typedef struct gd_hdf5_written {
    char *name;
    gd_hdf5_array array;
    void *data; /* texts that are elsewhere: one after the other, each with a zero byte */
    size_t bytes;
} gd_hdf5_written;

/* A group or a dataset. */
typedef struct gd_hdf5_node {
    char *path;
    const char *name; /* the end of the path */
    bool is_dataset;
    gd_hdf5_written *attributes;
    struct gd_hdf5_node **parts; /* of a group */
    int n_attributes, attribute_room, n_parts, part_room;
    gd_hdf5_array array; /* of a dataset */
    uint64_t data_at, bytes;
    uint64_t header_at, tree_at, heap_at; /* set by the commit */
} gd_hdf5_node;

struct gd_hdf5_writer {
    gd_file_writer *file;
    gd_hdf5_node **nodes; /* the root first; each after its group */
    int n_nodes, node_room;
    gd_name_map by_path;
    gd_hdf5_node *open; /* the dataset whose elements are being written */
    uint64_t written;   /* bytes of it */
    gd_status failure;  /* the first one */
    char message[GD_MESSAGE_MAX];
};

/* Writes all but the elements of datasets. */
gd_status gd_hdf5_write_tree(gd_hdf5_writer *writer);

#endif
