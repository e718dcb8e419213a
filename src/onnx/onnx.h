/* onnx.h - ONNX files: the overview of this folder, and what load/ and save/ share.
 *
 * A row maps an op to an ONNX operator. It is a text in the op's record, behind the word `onnx`, or
 * an entry of operator_table.c. Saving reads it from left to right (op to operator), loading from
 * right to left.
 *
 * Loading a file (gd_onnx_load):
 *   schema.c                 the protocol buffer's fields; format/protobuf.h parses the bytes
 *   load/load.c              versions, initializers, inputs; then the nodes; then the outputs
 *   load/graph.c             the nodes of the model's graph and of subgraphs, in their order
 *   load/row.c               one node as one call of an op, by a row;
 *     load/attribute.c         its attributes as options, load/node_io.c its inputs and outputs
 *   load/operators/          operators that a row cannot describe, one file for each family
 *   load/own_node.c          nodes of the domain "gradus", which name an op and its options
 *   load/value.c             the values of the file by their names; load/tensor.c reads their data
 *   load/evaluate.c          constant folding: shapes and axes that nodes of the file compute
 *   load/symbolic_size.c     arithmetic with sizes that are known only at run time
 *   load/module.c            gd_onnx_module: the loaded graph as a module
 *
 * Saving a file (gd_onnx_save):
 *   save/save.c              inputs and outputs of the file, metadata
 *   save/part.c              the nodes that the outputs need, in the order of the graph
 *   save/call.c              one call of an op, by the first of these that applies:
 *     save/row.c               a row of text
 *     save/multi_node.c        a function of the row that adds several nodes; others are in
 *                              save/recurrent.c and save/size_list.c
 *     save/expression.c        the expression of an elementwise op
 *     save/body.c              the op's body in other ops, its own or one of save/op_bodies.c
 *     save/call.c              a node of the domain "gradus"
 *   save/control_flow.c      branches and loops, with their subgraphs
 *   save/initializer.c       names, constants, captured tensors, variables
 *   save/node.c, attribute.c the messages of nodes and of their attributes
 *   save/files.c             writes the file, and large tensors into a second file
 *   save/module.c            gd_onnx_save_module: traces a module and saves the graph
 */
#ifndef GRADUS_ONNX_ONNX_H
#define GRADUS_ONNX_ONNX_H

#include "autograd/node.h"
#include "format/file.h"
#include "format/protobuf.h"
#include "gradus/onnx.h"
#include "graph/build/graph.h"

/* Files are saved with GD_ONNX_OPSET; those from GD_ONNX_OLDEST_OPSET on can be loaded. */
enum { GD_ONNX_OPSET = 21, GD_ONNX_OLDEST_OPSET = 13, GD_ONNX_IR_VERSION = 10 };

/* How deep subgraphs (of If, Loop and Scan) may nest. A stack of 64 KiB has room for this many
 * levels, and the depth limit of protocol buffers allows them (a level takes three messages). */
enum { GD_ONNX_MAX_NESTED = 20 };

/* The longest list of integers that is an option of an op. */
enum { GD_ONNX_MAX_NUMBERS = 64 };

extern const gd_pb_schema gd_onnx_model_schema, gd_onnx_tensor_schema;

/* Converts a dtype to TensorProto.DataType, and back; 0 and GD_DTYPE_NONE: no equivalent. */
int gd_onnx_type_of(gd_dtype dtype);
gd_dtype gd_onnx_dtype(int64_t data_type);
const char *gd_onnx_type_name(int64_t data_type);

/* A valid axis, counted from the front. */
static inline int gd_onnx_nonnegative_axis(int64_t axis, int rank) {
    return (int)(axis < 0 ? axis + rank : axis);
}

#endif
