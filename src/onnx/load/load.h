/* load.h - an ONNX file that is being loaded: shared by the files of load/.
 *
 * Order: the loader and its values; attributes, inputs and outputs of a node; lists and sizes that
 * are known only at run time; graphs and files.
 */
#ifndef GRADUS_ONNX_LOAD_LOAD_H
#define GRADUS_ONNX_LOAD_LOAD_H

#include "core/map.h"
#include "core/name_map.h"
#include "onnx/operator_table.h"
#include "dispatch/deferred_call.h"

/* --- the loader (load/load.c, load/value.c) --------------------------------------------------- */

/* A value of the file: an input, an initializer, or an output of a node. */
typedef struct gd_onnx_value {
    const char *name;
    gd_tensor *tensor;   /* the operand of ops; NULL: a variable that no op has read yet */
    gd_tensor *constant; /* its data if they are known at load time */
    bool foldable;       /* gd_onnx_constant_value can compute it: small, from constants only */
    bool from_sizes;     /* it depends on constants and unknown sizes only */
    bool variable, trainable;
    size_t number;     /* index in the loader's list */
    gd_tensor **items; /* the tensors of a sequence; NULL: not a sequence */
    int64_t n_items;
} gd_onnx_value;

/* The names of a graph that is being loaded: the model's graph or a subgraph of an If, Loop or
 * Scan, whose nodes also see the values of the graphs around it. */
typedef struct gd_onnx_frame {
    const gd_pb *graph;
    gd_name_map by_name;   /* its values so far */
    gd_name_map producers; /* the node that computes each output, also for nodes not loaded yet */
    gd_name_map outputs;   /* of the model's graph: the program finds these symbols by name */
    struct gd_onnx_frame *outer;
} gd_onnx_frame;

struct gd_onnx_loader {
    const gd_pb *model;
    gd_onnx_frame *frame;
    int depth;  /* of frames */
    int trials; /* loop bodies that are loaded only for the shapes of their outputs */
    char *folder;
    gd_onnx_value **values; /* of all frames */
    size_t count, room;
    gd_name_map operators; /* the rows that can load each operator */
    gd_map evaluated;      /* from a folded node to the number of its value */
    int first_new_node;    /* graph nodes from this one on belong to the ONNX node being loaded */
    bool saved_by_gradus;  /* then the file lists its variables */
    bool trainable;        /* initializers of other programs' files become trainable variables */
};

/* Adds a value to the innermost graph. */
gd_status gd_onnx_add_value(gd_onnx_loader *loader, const char *name, gd_onnx_value **value);
/* The value of a name in the innermost graph or one around it; NULL: none yet. */
gd_onnx_value *gd_onnx_lookup_value(const gd_onnx_loader *loader, const char *name);
/* The same; fails with the reason if there is none. */
gd_status gd_onnx_find_value(gd_onnx_loader *loader, const char *name, gd_onnx_value **value);
/* The operand of ops. A variable is created when the first op reads it. */
gd_status gd_onnx_value_tensor(gd_onnx_value *value, gd_tensor **tensor);

/* Reads a TensorProto in the current scope. `folder` is where external data may be. */
gd_status gd_onnx_read_tensor(const gd_pb *tensor, const char *folder, gd_tensor **out);

/* The data of a value, evaluated if necessary; *out is NULL if they are known only at run time. */
gd_status gd_onnx_constant_value(gd_onnx_loader *loader, const char *name, gd_tensor **out);
/* Evaluates a symbol that depends on constants and sizes only, with `size` for each unknown
 * size. */
gd_status gd_onnx_evaluate(gd_onnx_loader *loader, gd_tensor *symbol, int64_t size,
                           gd_tensor **out);

/* --- attributes of a node (load/attribute.c) -------------------------------------------------- */

const gd_pb *gd_onnx_find_attribute(const gd_pb *node, const char *name); /* NULL: not given */
/* Whether a string attribute, or its default if it is not given, is this word. */
bool gd_onnx_attribute_is(const gd_pb *node, const char *name, const char *by_default,
                          const char *word);
/* The index of a string attribute among `words`, 0 if it is not given. */
gd_status gd_onnx_word_attribute(const gd_pb *node, const char *name, const char *const *words,
                                 int count, int *index);
gd_status gd_onnx_int_attribute(const gd_pb *node, const char *name, int64_t by_default,
                                int64_t *value);
gd_status gd_onnx_float_attribute(const gd_pb *node, const char *name, double by_default,
                                  double *value);
/* Exactly `count` integers; all `by_default` if the attribute is not given. */
gd_status gd_onnx_ints_attribute(const gd_pb *node, const char *name, int count, int64_t by_default,
                                 int64_t *values);

/* Sets an option of an op from an attribute, as a word of a row describes it. */
gd_status gd_onnx_set_option(gd_attrs *attrs, const gd_operator_attribute *word,
                             const gd_op_attr *option, const gd_pb *attribute);
/* Sets an int, int[n] or int[] option; messages call the list `name`. */
gd_status gd_onnx_set_numbers(gd_attrs *attrs, const gd_op_attr *option, const char *name,
                              int count, const int64_t *numbers);
/* Whether an attribute (NULL: not given) has the value that a row's word fixes. */
bool gd_onnx_has_fixed_value(const gd_pb *attribute, const gd_operator_attribute *word);

/* --- inputs and outputs of a node (load/node_io.c) -------------------------------------------- */

size_t gd_onnx_input_count(const gd_pb *node);
/* Input i as a tensor; NULL: it is absent, or *status is a failure. */
gd_tensor *gd_onnx_get_input(gd_onnx_loader *loader, const gd_pb *node, size_t i,
                             gd_status *status);
/* Input i, or the attribute that older files have instead, as integers that must be constant. The
 * count is -1 if neither is given. */
gd_status gd_onnx_get_numbers(gd_onnx_loader *loader, const gd_pb *node, size_t i,
                              const char *attribute, int *count, int64_t *numbers);
/* Sets an option from input i, which must be constant and have one element. */
gd_status gd_onnx_set_number(gd_onnx_loader *loader, const gd_pb *node, size_t i, gd_attrs *attrs,
                             const char *option);
/* Whether the node has output i: it is neither beyond the last one nor absent. */
static inline bool gd_onnx_has_output(const gd_pb *node, size_t i) {
    return *gd_pb_string_at(node, "output", i) != '\0';
}
/* Sets output i of the node. */
gd_status gd_onnx_set_output(gd_onnx_loader *loader, const gd_pb *node, size_t i,
                             gd_tensor *tensor);
/* The same for a tensor of sizes. */
gd_status gd_onnx_set_size_output(gd_onnx_loader *loader, const gd_pb *node, size_t i,
                                  gd_tensor *tensor);

/* Declares tensor `t`, input `i` of `node`; returns with a failure if it is absent. */
#define GD_ONNX_REQUIRE_INPUT(t, i)                                               \
    gd_tensor *t;                                                                 \
    do {                                                                          \
        gd_status require_status_;                                                \
        t = gd_onnx_get_input(l, node, i, &require_status_);                      \
        if (require_status_ != GD_OK) return require_status_;                     \
        if (!t) return gd_fail(GD_E_FORMAT, "its input %d is missing", (int)(i)); \
    } while (0)

/* Declares tensor `t`, input `i` of `node`; NULL if it is absent. */
#define GD_ONNX_OPTIONAL_INPUT(t, i)                            \
    gd_tensor *t;                                               \
    do {                                                        \
        gd_status optional_status_;                             \
        t = gd_onnx_get_input(l, node, i, &optional_status_);   \
        if (optional_status_ != GD_OK) return optional_status_; \
    } while (0)

/* Fails because a list has too many numbers to be a shape. */
gd_status gd_onnx_fail_too_long(const char *list, int count);

/* Makes an axis nonnegative; fails if a tensor of this rank has no such axis. */
gd_status gd_onnx_normalize_axis(int64_t *axis, int rank);
/* A tensor of rank 0 with x's dtype. */
gd_tensor *gd_onnx_scalar_like(const gd_tensor *x, double value);

/* --- lists and sizes known only at run time (load/symbolic_size.c) ---------------------------- */

/* Whether a value is a constant or depends on constants and sizes only: gd_onnx_get_list takes
 * it. */
bool gd_onnx_is_data_independent(const gd_onnx_loader *loader, const char *name);
/* Input i as a list of integers: a value, or a symbol that depends on sizes; NULL if it is absent.
 * Fails if it depends on data. */
gd_status gd_onnx_get_list(gd_onnx_loader *loader, const gd_pb *node, size_t i, gd_tensor **list);
/* Whether a list (NULL: absent) is known only at run time. */
static inline bool gd_onnx_is_symbolic(const gd_tensor *list) {
    return list && list->kind == GD_SYMBOL;
}
/* Adds the op deferred_call (dispatch/deferred_call.h) for a call with such lists: a run makes the call
 * once the sizes are known. */
gd_status gd_onnx_add_deferred_node(gd_onnx_loader *loader, gd_deferred_call_options options,
                                    gd_tensor *x, gd_tensor *const *lists, int n_lists,
                                    gd_tensor **y);
/* The same, as output 0 of a node. */
gd_status gd_onnx_set_deferred_output(gd_onnx_loader *loader, const gd_pb *node,
                                      gd_deferred_call_options options, gd_tensor *x,
                                      gd_tensor *const *lists, int n_lists);
/* The sizes of x as a symbol, i64 (rank). */
gd_status gd_onnx_sizes_of(gd_tensor *x, gd_tensor **sizes);

/* A size: an integer, or a symbol if it is known only at run time. */
typedef struct gd_onnx_size {
    int64_t known;     /* GD_UNKNOWN: see `symbol` */
    gd_tensor *symbol; /* i64, rank 0 */
} gd_onnx_size;
gd_onnx_size gd_onnx_known_size(int64_t known);
gd_status gd_onnx_size_of(gd_tensor *x, int axis, gd_onnx_size *size);
gd_status gd_onnx_size_multiply(gd_onnx_size a, gd_onnx_size b, gd_onnx_size *product);
/* Fails if a known size is not a multiple of `by`. */
gd_status gd_onnx_size_divide(gd_onnx_size a, int64_t by, gd_onnx_size *quotient);
gd_tensor *gd_onnx_size_tensor(gd_onnx_size size); /* i64, rank 0 */
gd_status gd_onnx_reshape_to(gd_onnx_loader *loader, gd_tensor *x, int rank,
                             const gd_onnx_size *sizes, gd_tensor **y);

/* --- nodes (load/row.c, load/own_node.c) ------------------------------------------------------ */

/* Loads a node by a row. *fits is false if the row is not for this node; gd_failure() has the
 * reason. `padded` replaces the first input, and the node's padding is already applied to it; NULL:
 * the input of the file. */
gd_status gd_onnx_load_row(gd_onnx_loader *loader, const gd_pb *node, const gd_onnx_row *row,
                           gd_tensor *padded, bool *fits);
/* Sets the options that an op's first row reads from the node's attributes; without `pads`: all but
 * pads and auto_pad. */
gd_status gd_onnx_read_row_options(const gd_pb *node, const char *op, gd_attrs *attrs, bool pads);
/* Loads a node of the domain "gradus". */
gd_status gd_onnx_load_own_node(gd_onnx_loader *loader, const gd_pb *node);

/* --- graphs and files (load/graph.c, load/load.c) --------------------------------------------- */

/* Loads the nodes of the current frame's graph. */
gd_status gd_onnx_load_nodes(gd_onnx_loader *loader);
/* Creates the variables that the nodes of a subgraph read. Must be called outside of the subgraph,
 * before it is loaded. */
gd_status gd_onnx_create_variables(gd_onnx_loader *loader, const gd_pb *graph);
/* Loads a subgraph with these inputs into the graph that is being built. `outputs` has room for
 * gd_pb_count(graph, "output") values. */
gd_status gd_onnx_load_subgraph(gd_onnx_loader *loader, const gd_pb *graph,
                                gd_tensor *const *inputs, size_t n_inputs, gd_onnx_value **outputs);
void gd_onnx_frame_free(gd_onnx_frame *frame);
void gd_onnx_operators_free(gd_name_map *operators);

/* Loads a graph, which the caller owns, from a file or from a ModelProto. `folder` is where
 * external data may be; NULL: there are none. The scope has room for the graph of a file. */
gd_status gd_onnx_load_file(const char *path, bool trainable, gd_graph **out);
gd_status gd_onnx_load_model(const gd_pb *model, char *folder, bool trainable, gd_graph **out);

#endif
