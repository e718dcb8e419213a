/* onnx.h - the inside of ONNX files: the schema, and the table of what maps to what.
 *
 * The table has a row for each way in which an op and an ONNX operator are the same thing. Saving
 * and loading read the same row, one from left to right, the other from right to left. An
 * elementwise op whose options have ONNX's names, or that has none, needs no row: its record says
 * all.
 */
#ifndef GRADUS_IO_ONNX_H
#define GRADUS_IO_ONNX_H

#include "autograd/node.h"
#include "format/file.h"
#include "format/protobuf.h"
#include "gradus/onnx.h"
#include "graph/build/graph.h"

enum { GD_ONNX_OPSET = 21, GD_ONNX_OLDEST = 13, GD_ONNX_IR = 10 };

/* Graphs in graphs, of branches and loops, that are saved and loaded: as many as a stack of 64 KiB
 * has room for, and as protocol buffers may be deep (three levels each). */
enum { GD_ONNX_MOST_NESTED = 20 };

extern const gd_pb_schema gd_onnx_model_schema, gd_onnx_tensor_schema;

/* TensorProto.DataType; 0 and GD_DTYPE_NONE where there is none. */
int gd_onnx_type_of(gd_dtype dtype);
gd_dtype gd_onnx_dtype(int64_t number);
const char *gd_onnx_type_name(int64_t number);

/* --- rows ------------------------------------------------------------------------------------- */

typedef struct gd_onnx_call gd_onnx_call;
typedef struct gd_onnx_loader gd_onnx_loader;
typedef struct gd_onnx_saver gd_onnx_saver;

/* A row is text, words with a space between them.
 *
 * inputs, in ONNX's order (NULL: those of the record, in its order):
 *     x              the op's input x
 *     weight|1       the same; where it is absent ONNX gets a list of ones, one for each channel of
 * x axes:axis      the op's option `axis`, as a list; in older files it is an attribute `axes`
 *     axes:axis/how  the same, the numbers changed as `how` says (gd_onnx_list_to)
 *     axes:axis/all  where the list is empty or absent, all axes are meant, or none if the node's
 *                    noop_with_empty_axes says so
 *     k=diagonal     the op's option `diagonal`, as a tensor of rank 0
 * attributes:
 *     alpha=slope    ONNX's alpha is the op's option `slope`
 *     keepdims=keepdim~1   the same, and ONNX's default is 1 (else: the same as the op's)
 *     pads=padding*2       the list twice, one behind the other
 *     axis=dims/how  the op's option `dims`, changed as `how` says
 *     strides=stride|kernel      where `stride` is not given it is as `kernel`
 *     mode=mode,replicate:edge   words of other names
 *     transB!1~0     ONNX's transB must be 1; its default is 0
 *     kernel_shape?  follows from the inputs
 * when, what must hold:
 *     training=false the option has this value
 *     x:rank=4 x:rank>1 x:int x:float x:f64   what input x is
 *     x:as=index     its rank is that of input index
 */
typedef struct gd_onnx_row {
    const char *op;
    const char *name; /* ONNX's; NULL: the record says it */
    const char *inputs, *attributes, *when;
    /* What each input is cast to first when saving, the last letter for all that follow: y the
     * output's dtype, b bool, i an integer for indices, p what the inputs' dtypes promote to, o the
     * same, but no bool, w f32 where it is bf16 (then the result is cast back), - as it is. NULL: -
     * (y or o for elementwise ops) */
    const char *cast;
    /* Whether this row can save the call, beyond `when`; NULL: yes. */
    bool (*fits)(const gd_onnx_call *call);
    /* Instead of the row: the op said in others when saving, the node said in ops when loading. */
    void (*body)(gd_expand *expand);
    gd_status (*load)(gd_onnx_loader *loader, const gd_pb *node);
    /* The same for what takes nodes that no op is: *done false where it cannot. */
    gd_status (*save)(gd_onnx_saver *saver, const gd_onnx_call *call, bool *done);
} gd_onnx_row;

extern const gd_onnx_row gd_onnx_rows[];
extern const int gd_onnx_row_count;

/* The name that ONNX has for a row's op. */
const char *gd_onnx_row_name(const gd_onnx_row *row);

/* The row that an elementwise op's record is by itself; false where it is none. */
bool gd_onnx_own_row(const gd_op *op, gd_onnx_row *row);

enum { GD_ONNX_WORD = 48 };

typedef struct gd_onnx_input {
    enum { GD_ONNX_TENSOR, GD_ONNX_LIST, GD_ONNX_NUMBER } kind;
    char onnx[GD_ONNX_WORD]; /* of an option */
    char ours[GD_ONNX_WORD];
    char how[GD_ONNX_WORD];
    bool filled; /* with `fill` where absent */
    double fill;
} gd_onnx_input;

typedef struct gd_onnx_attribute {
    char onnx[GD_ONNX_WORD],
        ours[GD_ONNX_WORD];       /* ours "": a fixed value, or one that is ignored */
    char fixed[GD_ONNX_WORD];     /* the value that it must have */
    char otherwise[GD_ONNX_WORD]; /* ONNX's default; "": the same as ours */
    char instead[GD_ONNX_WORD];   /* the option that stands in */
    char how[GD_ONNX_WORD];
    char words[2 * GD_ONNX_WORD]; /* ",ours:onnx,ours:onnx" */
    bool twice;
} gd_onnx_attribute;

typedef struct gd_onnx_condition {
    char name[GD_ONNX_WORD], value[GD_ONNX_WORD];
    enum {
        GD_ONNX_OPTION,
        GD_ONNX_RANK_IS,
        GD_ONNX_RANK_ABOVE,
        GD_ONNX_IS_INT,
        GD_ONNX_IS_FLOAT,
        GD_ONNX_IS_DTYPE, /* `value` */
        GD_ONNX_SAME_RANK /* as input `value` */
    } kind;
} gd_onnx_condition;

/* The next word of a row, and `text` moved behind it; false at the end. */
bool gd_onnx_next_input(const char **text, gd_onnx_input *input);
bool gd_onnx_next_attribute(const char **text, gd_onnx_attribute *attribute);
bool gd_onnx_next_condition(const char **text, gd_onnx_condition *condition);

/* --- looking at records ----------------------------------------------------------------------- */

const gd_op_attr *gd_onnx_option(const gd_op *op, const char *name); /* NULL: none of that name */
int gd_onnx_input_index(const gd_op *op, const char *name);          /* -1: none */
/* The text of a word option's value. */
const char *gd_onnx_word(const gd_op_attr *attr, gd_word value, char word[GD_ONNX_WORD]);
/* The numbers of an int, int[n] or int[] option; -1 where it is not given. */
int gd_onnx_numbers(const gd_op_attr *attr, const void *attrs, int64_t *numbers);

/* --- saving ----------------------------------------------------------------------------------- */

/* A call of an op, to be saved. */
struct gd_onnx_call {
    const gd_op *op;
    const void *attrs;
    const gd_slot *in, *out;
    int n_in, n_out;
    const char **in_names; /* NULL: absent */
    const char **out_names;
    uint64_t used;     /* bit k: somebody reads output k */
    const char *label; /* what messages and further values call it */
};

/* Numbers of the option `attr` as ONNX has them: changed as `how` says ("": not). -1: not given. */
enum { GD_ONNX_MOST_NUMBERS = 64 };
int gd_onnx_list_to(const gd_onnx_call *call, const char *how, const gd_op_attr *attr,
                    int64_t *numbers);

/* One call as nodes of the file, by a row, its expression, its body, or as it is. */
gd_status gd_onnx_save_call(gd_onnx_saver *saver, const gd_onnx_call *call, int depth);

/* Pieces that it needs of the file that is being made (save/save.c). Names belong to the saver;
 * NULL, noted, when there is no memory. */
const char *gd_onnx_unique_name(gd_onnx_saver *saver, const char *name, const char *suffix);
gd_pb *gd_onnx_add_node(gd_onnx_saver *saver, const char *op_type, const char *domain,
                        const char *label);
const char *gd_onnx_add_constant(gd_onnx_saver *saver, const char *label, gd_dtype dtype, int rank,
                                 const int64_t *dims, const void *data);
gd_status gd_onnx_add_tensor(gd_onnx_saver *saver, const char *name, gd_tensor *value);
gd_status gd_onnx_expand(gd_onnx_saver *saver, const gd_onnx_call *call, void (*body)(gd_expand *),
                         int depth, bool *done);
gd_status gd_onnx_save_expression(gd_onnx_saver *saver, const gd_onnx_call *call, bool *done);

/* A tensor outside the graph that a node reads, as it is now, in the current scope; and its name in
 * the file, where it is put if it is not there. NULL: the failure is noted. */
gd_tensor *gd_onnx_captured(const gd_slot *slot);
const char *gd_onnx_captured_name(gd_onnx_saver *saver, const gd_slot *slot, const char *reader);

/* Attributes of a node. */
void gd_onnx_put_int(gd_pb *node, const char *name, int64_t value);
void gd_onnx_put_float(gd_pb *node, const char *name, double value);
void gd_onnx_put_ints(gd_pb *node, const char *name, int count, const int64_t *values);
void gd_onnx_put_string(gd_pb *node, const char *name, const char *value);
void gd_onnx_put_strings(gd_pb *node, const char *name, int count, const char *const *values);
gd_pb *gd_onnx_put_graph(gd_pb *node, const char *name); /* an empty one */

/* --- tensors ---------------------------------------------------------------------------------- */

/* Reads a TensorProto, in the current scope. `folder` is where external data may lie. */
gd_status gd_onnx_read_tensor(const gd_pb *tensor, const char *folder, gd_tensor **out);

/* --- loading ---------------------------------------------------------------------------------- */

/* Of the node that is being loaded. */
size_t gd_onnx_input_count(const gd_pb *node);
/* Input i as a tensor; NULL: absent, or `*status` says why not. */
gd_tensor *gd_onnx_get_input(gd_onnx_loader *loader, const gd_pb *node, size_t i,
                             gd_status *status);
/* Input i, or the attribute that older files have instead, as numbers that are known now: their
 * count, -1 where neither is there. */
gd_status gd_onnx_get_numbers(gd_onnx_loader *loader, const gd_pb *node, size_t i,
                              const char *attribute, int *count, int64_t *numbers);
/* Sets an option from input i, a tensor of one element that is known now. */
gd_status gd_onnx_set_number(gd_onnx_loader *loader, const gd_pb *node, size_t i, gd_attrs *attrs,
                             const char *option);
const gd_pb *gd_onnx_attribute_of(const gd_pb *node, const char *name); /* NULL: not there */
/* Whether an attribute, which is `otherwise` where it is not there, is this word. */
bool gd_onnx_word_is(const gd_pb *node, const char *name, const char *otherwise, const char *word);
/* A number of x's dtype. */
gd_tensor *gd_onnx_number_like(const gd_tensor *x, double value);
gd_status gd_onnx_int_attribute(const gd_pb *node, const char *name, int64_t otherwise,
                                int64_t *value);
gd_status gd_onnx_float_attribute(const gd_pb *node, const char *name, double otherwise,
                                  double *value);
/* Makes `tensor` the result number i of the node. */
gd_status gd_onnx_set_output(gd_onnx_loader *loader, const gd_pb *node, size_t i,
                             gd_tensor *tensor);
/* The folder that a file's external data lie in. */
const char *gd_onnx_folder(const gd_onnx_loader *loader);

/* A graph from a ModelProto, owned by the caller. `folder` NULL: there are no files beside it. */
/* From a file. The caller owns the graph, for which the scope has room. */
gd_status gd_onnx_load_file(const char *path, bool trainable, gd_graph **out);
gd_status gd_onnx_load_model(const gd_pb *model, char *folder, bool trainable, gd_graph **out);

/* By a row. *fits false: it is not for this node, for the reason that is noted. `padded` stands for
 * the first input, and the borders that the node asks for are in it; NULL: it is as the file says.
 */
gd_status gd_onnx_load_row(gd_onnx_loader *loader, const gd_pb *node, const gd_onnx_row *row,
                           gd_tensor *padded, bool *fits);
/* The first input of a Conv or of a pool with a border of its own, where our ops have no option for
 * it: one that is not the same on both sides, or that keeps sizes. NULL: they have. */
gd_status gd_onnx_pad_windows(gd_onnx_loader *loader, const gd_pb *node, gd_tensor **padded);
/* The options that an op's first row reads from a node's attributes; `borders` false: all but pads.
 */
gd_status gd_onnx_row_options(const gd_pb *node, const char *op, gd_attrs *attrs, bool borders);
/* A node of the domain "gradus". */
gd_status gd_onnx_load_own(gd_onnx_loader *loader, const gd_pb *node);

/* Nodes that rows cannot say (load/special.c). */
gd_status gd_onnx_load_constant(gd_onnx_loader *loader, const gd_pb *node);
gd_status gd_onnx_load_constant_of_shape(gd_onnx_loader *loader, const gd_pb *node);
gd_status gd_onnx_load_shape(gd_onnx_loader *loader, const gd_pb *node);
gd_status gd_onnx_load_reshape(gd_onnx_loader *loader, const gd_pb *node);
gd_status gd_onnx_load_flatten(gd_onnx_loader *loader, const gd_pb *node);
gd_status gd_onnx_load_unsqueeze(gd_onnx_loader *loader, const gd_pb *node);
gd_status gd_onnx_load_expand(gd_onnx_loader *loader, const gd_pb *node);
gd_status gd_onnx_load_transpose(gd_onnx_loader *loader, const gd_pb *node);
gd_status gd_onnx_load_slice(gd_onnx_loader *loader, const gd_pb *node);
gd_status gd_onnx_load_split(gd_onnx_loader *loader, const gd_pb *node);
gd_status gd_onnx_load_pad(gd_onnx_loader *loader, const gd_pb *node);
gd_status gd_onnx_load_gemm(gd_onnx_loader *loader, const gd_pb *node);
gd_status gd_onnx_load_gather(gd_onnx_loader *loader, const gd_pb *node);
gd_status gd_onnx_load_div(gd_onnx_loader *loader, const gd_pb *node);
gd_status gd_onnx_load_lstm(gd_onnx_loader *loader, const gd_pb *node); /* recurrent.c */
gd_status gd_onnx_load_gru(gd_onnx_loader *loader, const gd_pb *node);
gd_status gd_onnx_load_rnn(gd_onnx_loader *loader, const gd_pb *node);
gd_status gd_onnx_load_one_hot(gd_onnx_loader *loader, const gd_pb *node);
gd_status gd_onnx_load_resize(gd_onnx_loader *loader, const gd_pb *node);
gd_status gd_onnx_load_topk(gd_onnx_loader *loader, const gd_pb *node);
gd_status gd_onnx_load_range(gd_onnx_loader *loader, const gd_pb *node);
gd_status gd_onnx_load_tile(gd_onnx_loader *loader, const gd_pb *node);

/* load/window.c */
gd_status gd_onnx_load_average_pool(gd_onnx_loader *loader, const gd_pb *node);
gd_status gd_onnx_load_conv_transpose(gd_onnx_loader *loader, const gd_pb *node);

/* load/index.c */
gd_status gd_onnx_load_gather_elements(gd_onnx_loader *loader, const gd_pb *node);
gd_status gd_onnx_load_scatter_elements(gd_onnx_loader *loader, const gd_pb *node);
gd_status gd_onnx_load_gather_nd(gd_onnx_loader *loader, const gd_pb *node);
gd_status gd_onnx_load_scatter_nd(gd_onnx_loader *loader, const gd_pb *node);
gd_status gd_onnx_load_nonzero(gd_onnx_loader *loader, const gd_pb *node);
gd_status gd_onnx_load_max_pool_indices(gd_onnx_loader *loader, const gd_pb *node);

/* load/compose.c */
gd_status gd_onnx_load_pow(gd_onnx_loader *loader, const gd_pb *node);
gd_status gd_onnx_load_clip(gd_onnx_loader *loader, const gd_pb *node);
gd_status gd_onnx_load_sum(gd_onnx_loader *loader, const gd_pb *node);
gd_status gd_onnx_load_mean(gd_onnx_loader *loader, const gd_pb *node);
gd_status gd_onnx_load_max(gd_onnx_loader *loader, const gd_pb *node);
gd_status gd_onnx_load_min(gd_onnx_loader *loader, const gd_pb *node);
gd_status gd_onnx_load_cast_like(gd_onnx_loader *loader, const gd_pb *node);
gd_status gd_onnx_load_hard_sigmoid(gd_onnx_loader *loader, const gd_pb *node);
gd_status gd_onnx_load_selu(gd_onnx_loader *loader, const gd_pb *node);
gd_status gd_onnx_load_thresholded_relu(gd_onnx_loader *loader, const gd_pb *node);
gd_status gd_onnx_load_shrink(gd_onnx_loader *loader, const gd_pb *node);
gd_status gd_onnx_load_swish(gd_onnx_loader *loader, const gd_pb *node);
gd_status gd_onnx_load_bit_shift(gd_onnx_loader *loader, const gd_pb *node);
gd_status gd_onnx_load_isinf(gd_onnx_loader *loader, const gd_pb *node);
gd_status gd_onnx_load_sum_square(gd_onnx_loader *loader, const gd_pb *node);
gd_status gd_onnx_load_log_sum(gd_onnx_loader *loader, const gd_pb *node);
gd_status gd_onnx_load_argmax(gd_onnx_loader *loader, const gd_pb *node);
gd_status gd_onnx_load_argmin(gd_onnx_loader *loader, const gd_pb *node);
gd_status gd_onnx_load_hardmax(gd_onnx_loader *loader, const gd_pb *node);
gd_status gd_onnx_load_lp_normalization(gd_onnx_loader *loader, const gd_pb *node);
gd_status gd_onnx_load_size(gd_onnx_loader *loader, const gd_pb *node);
gd_status gd_onnx_load_eye_like(gd_onnx_loader *loader, const gd_pb *node);
gd_status gd_onnx_load_depth_to_space(gd_onnx_loader *loader, const gd_pb *node);
gd_status gd_onnx_load_space_to_depth(gd_onnx_loader *loader, const gd_pb *node);

/* load/image.c */
gd_status gd_onnx_load_grid_sample(gd_onnx_loader *loader, const gd_pb *node);
gd_status gd_onnx_load_affine_grid(gd_onnx_loader *loader, const gd_pb *node);
gd_status gd_onnx_load_col2im(gd_onnx_loader *loader, const gd_pb *node);

/* load/sequence.c */
gd_status gd_onnx_load_sequence_construct(gd_onnx_loader *loader, const gd_pb *node);
gd_status gd_onnx_load_sequence_empty(gd_onnx_loader *loader, const gd_pb *node);
gd_status gd_onnx_load_sequence_at(gd_onnx_loader *loader, const gd_pb *node);
gd_status gd_onnx_load_sequence_length(gd_onnx_loader *loader, const gd_pb *node);
gd_status gd_onnx_load_sequence_insert(gd_onnx_loader *loader, const gd_pb *node);
gd_status gd_onnx_load_sequence_erase(gd_onnx_loader *loader, const gd_pb *node);
gd_status gd_onnx_load_concat_from_sequence(gd_onnx_loader *loader, const gd_pb *node);
gd_status gd_onnx_load_split_to_sequence(gd_onnx_loader *loader, const gd_pb *node);

/* load/layer.c */
gd_status gd_onnx_load_batch_norm(gd_onnx_loader *loader, const gd_pb *node);
gd_status gd_onnx_load_layer_norm(gd_onnx_loader *loader, const gd_pb *node);
gd_status gd_onnx_load_dropout(gd_onnx_loader *loader, const gd_pb *node);
gd_status gd_onnx_load_softmax_loss(gd_onnx_loader *loader, const gd_pb *node);
gd_status gd_onnx_load_rms_norm(gd_onnx_loader *loader, const gd_pb *node);
gd_status gd_onnx_load_mean_variance(gd_onnx_loader *loader, const gd_pb *node);
gd_status gd_onnx_load_attention(gd_onnx_loader *loader, const gd_pb *node);

#endif
