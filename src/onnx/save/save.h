/* save.h - an ONNX file that is being made: shared by onnx_save*.c. */
#ifndef GRADUS_IO_ONNX_SAVE_H
#define GRADUS_IO_ONNX_SAVE_H

#include "graph/build/subgraph.h"
#include "core/names.h"
#include "gradus/module.h"
#include "onnx/onnx.h"

/* A tensor of the file, whose bytes are written at the end. */
typedef struct gd_onnx_initializer {
    gd_pb *tensor;
    const void *data;
    size_t bytes;
} gd_onnx_initializer;

struct gd_onnx_saver {
    gd_session *session;
    gd_pb_doc *doc;
    gd_pb *
        file_graph; /* the graph of the file: all tensors are in it, seen from every graph inside */
    gd_pb *into;    /* the graph that nodes are put into now */
    gd_names taken; /* names of values, those of all graphs of the file */
    gd_names constants; /* small tensors by their contents: their names */
    gd_names captured;  /* tensors outside the graph, by where they lie: their names */
    gd_onnx_initializer *initializers;
    size_t n_initializers, initializer_room;
    char *variables; /* their names, a line each, for the metadata */
    size_t variables_length;
    int nested;                  /* how many graphs `into` lies in */
    bool own_ops;                /* nodes of our own domain may be written */
    bool own_domain;             /* and some are */
    gd_module *module;           /* names tensors outside the graph; or NULL */
    const char *const *metadata; /* keys and values in turn, NULL at the end; or NULL */
};

/* A part of a graph on its way into the file: of the session's graph, or of the function of a
 * branch or a loop. A function may be written twice; each time its values have other names. */
typedef struct gd_onnx_part {
    gd_graph *graph;
    const char ***names; /* of each node's outputs; NULL: not needed */
    uint64_t *used;      /* which of them are read */
    bool *wanted;        /* nodes that must be computed */
} gd_onnx_part;

/* Behind gd_onnx_save and gd_onnx_save_module. `module` names tensors outside the graph; or NULL. */
gd_status gd_onnx_save_model(const char *path, gd_session *session, gd_tensors inputs,
                             gd_tensors outputs, const gd_onnx_save_options *options,
                             gd_module *module);

gd_status gd_onnx_part_begin(gd_onnx_part *part, gd_graph *graph);
void gd_onnx_part_end(gd_onnx_part *part);
/* Gives a value a name that is there already: an input of the part. */
gd_status gd_onnx_part_input(gd_onnx_part *part, const gd_node *node, int index, const char *name);
/* Notes that output `index` of a node is read, by whom messages call `reader`. */
gd_status gd_onnx_want(gd_onnx_part *part, const gd_node *node, int index, const char *reader);
/* Whatever those need that are wanted; and the names of a node's outputs. */
gd_status gd_onnx_want_all(gd_onnx_part *part);
gd_status gd_onnx_name_outputs(gd_onnx_saver *saver, gd_onnx_part *part, const gd_node *node);
/* The nodes that are wanted, into the graph that is being filled. */
gd_status gd_onnx_save_part(gd_onnx_saver *saver, gd_onnx_part *part);

/* An input or an output of a graph of the file; `list` says which. */
void gd_onnx_put_value_info(gd_pb *graph, const char *list, const char *name, gd_dtype dtype,
                            int rank, const int64_t *dims);
/* A node of one input and one output. */
void gd_onnx_put_simple(gd_onnx_saver *saver, const char *op_type, const char *from,
                        const char *to);

/* The file, and the one beside it for tensors of more than `above` bytes (save/file.c). */
gd_status gd_onnx_write_files(gd_onnx_saver *saver, const char *path, int64_t above);

/* A branch or a loop (save/control.c); false: it is none. */
bool gd_onnx_is_control(const gd_op *op);
gd_status gd_onnx_save_control(gd_onnx_saver *saver, const gd_onnx_call *call);

/* Ops that become several nodes (save/special.c). */
gd_status gd_onnx_save_full_like(gd_onnx_saver *saver, const gd_onnx_call *call, bool *done);
gd_status gd_onnx_save_floor_divide(gd_onnx_saver *saver, const gd_onnx_call *call, bool *done);
gd_status gd_onnx_save_sort(gd_onnx_saver *saver, const gd_onnx_call *call, bool *done);
gd_status gd_onnx_save_one_hot(gd_onnx_saver *saver, const gd_onnx_call *call, bool *done);
gd_status gd_onnx_save_adaptive(gd_onnx_saver *saver, const gd_onnx_call *call, bool *done);
gd_status gd_onnx_save_resize(gd_onnx_saver *saver, const gd_onnx_call *call, bool *done);
gd_status gd_onnx_save_recurrent(gd_onnx_saver *saver, const gd_onnx_call *call, bool *done);
gd_status gd_onnx_save_sizes_of(gd_onnx_saver *saver, const gd_onnx_call *call, bool *done);
gd_status gd_onnx_save_late(gd_onnx_saver *saver, const gd_onnx_call *call, bool *done);
gd_status gd_onnx_save_nonzero(gd_onnx_saver *saver, const gd_onnx_call *call, bool *done);
gd_status gd_onnx_save_max_pool_indices(gd_onnx_saver *saver, const gd_onnx_call *call, bool *done);
/* A call as the node that a row says. */
gd_status gd_onnx_save_by_row(gd_onnx_saver *saver, const gd_onnx_call *call,
                              const gd_onnx_row *row);

/* Ops said in others (bodies.c). */
void gd_onnx_cat_body(gd_expand *expand);
void gd_onnx_transpose_body(gd_expand *expand);
void gd_onnx_movedim_body(gd_expand *expand);
void gd_onnx_narrow_body(gd_expand *expand);
void gd_onnx_windows_body(gd_expand *expand);
void gd_onnx_stack_body(gd_expand *expand);
void gd_onnx_flip_body(gd_expand *expand);
void gd_onnx_flatten_body(gd_expand *expand);
void gd_onnx_squeeze_body(gd_expand *expand);
void gd_onnx_argmax_body(gd_expand *expand);
void gd_onnx_argmin_body(gd_expand *expand);
void gd_onnx_remainder_body(gd_expand *expand);
void gd_onnx_floor_divide_body(gd_expand *expand);
void gd_onnx_adaptive_body(gd_expand *expand);
void gd_onnx_index_add_body(gd_expand *expand);
void gd_onnx_diagonal_body(gd_expand *expand);
void gd_onnx_masked_select_body(gd_expand *expand);

#endif
