/* save.h - an ONNX file that is being saved: shared by the files of save/.
 *
 * Order: the saver; names and tensors; messages of nodes; parts of graphs; calls; functions and
 * bodies that rows of the table name; files.
 */
#ifndef GRADUS_ONNX_SAVE_SAVE_H
#define GRADUS_ONNX_SAVE_SAVE_H

#include "core/name_map.h"
#include "gradus/module.h"
#include "graph/build/subgraph.h"
#include "onnx/operator_table.h"

/* A tensor of the file. Its bytes are written at the end. */
typedef struct gd_onnx_initializer {
    gd_pb *tensor;
    const void *data;
    size_t bytes;
} gd_onnx_initializer;

struct gd_onnx_saver {
    gd_session *session;
    gd_pb_doc *doc;
    gd_pb *file_graph;      /* holds all initializers: subgraphs see them, too */
    gd_pb *current_graph;   /* receives the nodes: the file's graph or a subgraph */
    gd_name_map used_names; /* of values, in all graphs of the file */
    gd_name_map constants;  /* small tensors by their contents: their names */
    gd_name_map captured;   /* captured tensors by storage and view: their names */
    gd_name_map parameters; /* those of `module` by storage and view: their paths */
    gd_onnx_initializer *initializers;
    size_t n_initializers, initializer_room;
    char *variables; /* their names, a line each, for the metadata */
    size_t variables_length, variables_room;
    int depth;                   /* of subgraphs around current_graph */
    bool own_ops;                /* nodes of the domain "gradus" are allowed */
    bool has_own_nodes;          /* the file has such nodes */
    gd_module *module;           /* captured tensors get the names of its parameters; or NULL */
    const char *const *metadata; /* keys and values in turn, NULL at the end; or NULL */
    const char *remedy;          /* what to do if a node needs known sizes */
};

/* --- names and tensors (save/initializer.c) --------------------------------------------------- */

/* Names belong to the saver. NULL: no memory; the failure is recorded. */
const char *gd_onnx_unique_name(gd_onnx_saver *saver, const char *name, const char *suffix);
/* Adds a small initializer; equal ones are added once. */
const char *gd_onnx_add_constant(gd_onnx_saver *saver, const char *label, gd_dtype dtype, int rank,
                                 const int64_t *dims, const void *data);
/* The same for a number, rank 0; one that the dtype cannot hold is clamped. */
const char *gd_onnx_add_number(gd_onnx_saver *saver, const char *label, gd_dtype dtype,
                               gd_number value);
gd_status gd_onnx_add_tensor(gd_onnx_saver *saver, const char *name, gd_tensor *value);
/* Lists the parameters and buffers of the module. */
gd_status gd_onnx_name_parameters(gd_onnx_saver *saver);
/* Adds a line about a variable to the metadata. */
gd_status gd_onnx_record_variable(gd_onnx_saver *saver, bool trainable, const char *name);

/* A captured tensor that a node reads, with its present value, in the current scope; and its name
 * in the file, to which it is added if necessary. NULL: the failure is recorded. */
gd_tensor *gd_onnx_captured_tensor(const gd_slot *slot);
const char *gd_onnx_captured_name(gd_onnx_saver *saver, const gd_slot *slot, const char *reader);

/* --- messages of nodes (save/node.c, save/attribute.c) ---------------------------------------- */

/* A node without inputs and outputs in the current graph. */
gd_pb *gd_onnx_add_node(gd_onnx_saver *saver, const char *op_type, const char *domain,
                        const char *label);
/* A node of the standard domain with `n` inputs (NULL: absent) and one output, `to` or, if that is
 * NULL, a new name that begins with `label`. Returns the output's name; NULL: no memory. *node
 * is the node, for attributes; `node` may be NULL. */
const char *gd_onnx_put_node(gd_onnx_saver *saver, const char *label, const char *op_type, int n,
                             const char *const *inputs, const char *to, gd_pb **node);
/* The count and the array of inputs for gd_onnx_put_node. */
#define GD_ONNX_INPUTS(...)                                                        \
    (int)(sizeof((const char *const[]){__VA_ARGS__}) / sizeof(const char *const)), \
        (const char *const[]) {                                                    \
        __VA_ARGS__                                                                \
    }
/* A Cast, as gd_onnx_put_node. */
const char *gd_onnx_put_cast(gd_onnx_saver *saver, const char *label, const char *name,
                             gd_dtype dtype, const char *to);
/* A node of one input and one output, without attributes. */
void gd_onnx_put_unary(gd_onnx_saver *saver, const char *op_type, const char *from, const char *to);
/* A ValueInfoProto in `list`, "input" or "output", of a graph. */
void gd_onnx_put_value_info(gd_pb *graph, const char *list, const char *name, gd_dtype dtype,
                            int rank, const int64_t *dims);

/* Attributes. */
void gd_onnx_put_int(gd_pb *node, const char *name, int64_t value);
void gd_onnx_put_float(gd_pb *node, const char *name, double value);
/* A double that a float cannot hold, as a tensor of rank 0. */
void gd_onnx_put_double(gd_pb *node, const char *name, double value);
void gd_onnx_put_ints(gd_pb *node, const char *name, int count, const int64_t *values);
void gd_onnx_put_string(gd_pb *node, const char *name, const char *value);
void gd_onnx_put_strings(gd_pb *node, const char *name, int count, const char *const *values);
gd_pb *gd_onnx_put_subgraph(gd_pb *node, const char *name); /* an empty one */

/* --- parts of graphs (save/part.c) ------------------------------------------------------------ */

/* The nodes of a graph that go into the file: of the session's graph, or of the function of a
 * branch or a loop. A function may be saved twice; each time its values have other names. */
typedef struct gd_onnx_part {
    gd_graph *graph;
    const char ***names; /* of each node's outputs; NULL: not needed */
    uint64_t *used;      /* for each node: bit k if output k is read */
    bool *needed;        /* for each node: it must be computed */
} gd_onnx_part;

gd_status gd_onnx_part_begin(gd_onnx_part *part, gd_graph *graph);
void gd_onnx_part_end(gd_onnx_part *part);
/* Makes a value an input of the part, with an existing name. */
gd_status gd_onnx_part_input(gd_onnx_part *part, const gd_node *node, int index, const char *name);
/* Records that output `index` of a node is read; messages call the reader `reader`. */
gd_status gd_onnx_need_output(gd_onnx_part *part, const gd_node *node, int index,
                              const char *reader);
/* Marks everything that the needed nodes depend on. */
gd_status gd_onnx_need_inputs(gd_onnx_part *part);
gd_status gd_onnx_name_outputs(gd_onnx_saver *saver, gd_onnx_part *part, const gd_node *node);
/* Saves the needed nodes into the current graph. */
gd_status gd_onnx_save_part(gd_onnx_saver *saver, gd_onnx_part *part);

/* --- calls (save/call.c) ---------------------------------------------------------------------- */

/* A call of an op that is being saved. */
struct gd_onnx_call {
    const gd_op *op;
    const void *attrs;
    const gd_slot *in, *out;
    int n_in, n_out;
    const char **in_names; /* NULL: absent */
    const char **out_names;
    uint64_t used;     /* bit k: output k is read */
    const char *label; /* its name in messages, and the prefix of names of further values */
};

/* Whether a size of an input is not known before a run. */
bool gd_onnx_has_unknown_size(const gd_onnx_call *call);
/* Whether the call has a random key, which ONNX does not have. */
bool gd_onnx_draws_from_key(const gd_onnx_call *call);
/* Saves a call by a row, its expression, its body, or as a node of the domain "gradus". */
gd_status gd_onnx_save_call(gd_onnx_saver *saver, const gd_onnx_call *call, int depth);

/* Whether a row can save a call, and saving it. */
gd_status gd_onnx_row_fits(const gd_onnx_call *call, const gd_onnx_row *row, bool *fits);
gd_status gd_onnx_save_row(gd_onnx_saver *saver, const gd_onnx_call *call, const gd_onnx_row *row);
/* The integers of the option `attr`, converted for ONNX (save/attribute.c has the conversions; "":
 * none). Returns their count, -1 if the option is not given. */
int gd_onnx_convert_list(const gd_onnx_call *call, const char *conversion, const gd_op_attr *attr,
                         int64_t *numbers);
/* The dtype that the inputs of a call promote to. */
gd_dtype gd_onnx_promoted_dtype(const gd_onnx_call *call);

/* Saves a call by the op's expression, or by a body. *done is false if that is not possible. */
gd_status gd_onnx_save_expression(gd_onnx_saver *saver, const gd_onnx_call *call, bool *done);
gd_status gd_onnx_save_body(gd_onnx_saver *saver, const gd_onnx_call *call,
                            void (*body)(gd_expansion *), int depth, bool *done);

/* Branches and loops (save/control_flow.c). */
bool gd_onnx_is_control(const gd_op *op);
gd_status gd_onnx_save_control(gd_onnx_saver *saver, const gd_onnx_call *call);

/* --- functions that rows name ----------------------------------------------------------------- */

/* save/multi_node.c */
gd_status gd_onnx_save_full_like(gd_onnx_saver *saver, const gd_onnx_call *call, bool *done);
gd_status gd_onnx_save_floor_divide(gd_onnx_saver *saver, const gd_onnx_call *call, bool *done);
gd_status gd_onnx_save_sort(gd_onnx_saver *saver, const gd_onnx_call *call, bool *done);
gd_status gd_onnx_save_one_hot(gd_onnx_saver *saver, const gd_onnx_call *call, bool *done);
gd_status gd_onnx_save_nonzero(gd_onnx_saver *saver, const gd_onnx_call *call, bool *done);
gd_status gd_onnx_save_max_pool_indices(gd_onnx_saver *saver, const gd_onnx_call *call, bool *done);
gd_status gd_onnx_save_adaptive(gd_onnx_saver *saver, const gd_onnx_call *call, bool *done);
gd_status gd_onnx_save_axes(gd_onnx_saver *saver, const gd_onnx_call *call, bool *done);
gd_status gd_onnx_save_causal(gd_onnx_saver *saver, const gd_onnx_call *call, bool *done);
/* save/recurrent.c */
gd_status gd_onnx_save_recurrent(gd_onnx_saver *saver, const gd_onnx_call *call, bool *done);
/* save/size_list.c */
gd_status gd_onnx_save_resize(gd_onnx_saver *saver, const gd_onnx_call *call, bool *done);
gd_status gd_onnx_save_sizes_of(gd_onnx_saver *saver, const gd_onnx_call *call, bool *done);
gd_status gd_onnx_save_deferred(gd_onnx_saver *saver, const gd_onnx_call *call, bool *done);

/* Bodies of ops (save/op_bodies.c). */
void gd_onnx_transpose_body(gd_expansion *expand);
void gd_onnx_movedim_body(gd_expansion *expand);
void gd_onnx_narrow_body(gd_expansion *expand);
void gd_onnx_unbind_body(gd_expansion *expand);
void gd_onnx_causal_body(gd_expansion *expand);
void gd_onnx_windows_body(gd_expansion *expand);
void gd_onnx_stack_body(gd_expansion *expand);
void gd_onnx_flip_body(gd_expansion *expand);
void gd_onnx_flatten_body(gd_expansion *expand);
void gd_onnx_squeeze_body(gd_expansion *expand);
void gd_onnx_argmax_body(gd_expansion *expand);
void gd_onnx_argmin_body(gd_expansion *expand);
void gd_onnx_adaptive_body(gd_expansion *expand);
void gd_onnx_remainder_body(gd_expansion *expand);
void gd_onnx_floor_divide_body(gd_expansion *expand);
void gd_onnx_cat_body(gd_expansion *expand);
void gd_onnx_index_add_body(gd_expansion *expand);
void gd_onnx_diagonal_body(gd_expansion *expand);
void gd_onnx_masked_select_body(gd_expansion *expand);

/* --- files ------------------------------------------------------------------------------------ */

/* Implements gd_onnx_save and gd_onnx_save_module. Captured tensors that are parameters of `module`
 * get their names; or NULL. `remedy` tells what to do if a node needs known sizes. */
gd_status gd_onnx_save_model(const char *path, gd_session *session, gd_tensors inputs,
                             gd_tensors outputs, const gd_onnx_save_options *options,
                             gd_module *module, const char *remedy);
/* Writes the file, and a second one for tensors of more than `above` bytes (save/files.c). */
gd_status gd_onnx_write_files(gd_onnx_saver *saver, const char *path, int64_t above);

#endif
