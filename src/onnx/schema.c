/* schema.c - the messages of an ONNX file, and its element types.
 *
 * Field numbers and names are those of onnx.proto (IR version 10). The parser skips fields that are
 * not listed: quantization, devices, functions, training.
 */
#include "onnx/onnx.h"

/* clang-format off */
#define ONE(number, name, type)            {number, name, type, 0, NULL, NULL, NULL}
#define MANY(number, name, type)           {number, name, type, GD_PB_REPEATED, NULL, NULL, NULL}
#define PACKED(number, name, type)         {number, name, type, GD_PB_PACKED, NULL, NULL, NULL}
#define A_MESSAGE(number, name, schema)    {number, name, GD_PB_MESSAGE, 0, &schema, NULL, NULL}
#define MANY_MESSAGES(number, name, schema) {number, name, GD_PB_MESSAGE, GD_PB_REPEATED, &schema, NULL, NULL}

static const gd_pb_field pair_fields[] = {ONE(1, "key", GD_PB_STRING), ONE(2, "value", GD_PB_STRING)};
static const gd_pb_schema pair = GD_PB_SCHEMA("StringStringEntryProto", pair_fields);

static const gd_pb_field opset_fields[] = {ONE(1, "domain", GD_PB_STRING), ONE(2, "version", GD_PB_INT64)};
static const gd_pb_schema opset = GD_PB_SCHEMA("OperatorSetIdProto", opset_fields);

static const gd_pb_enum location_values[] = {{"DEFAULT", 0}, {"EXTERNAL", 1}, {NULL, 0}};
static const gd_pb_field segment_fields[] = {ONE(1, "begin", GD_PB_INT64), ONE(2, "end", GD_PB_INT64)};
static const gd_pb_schema segment = GD_PB_SCHEMA("TensorProto.Segment", segment_fields);
static const gd_pb_field tensor_fields[] = {
    MANY(1, "dims", GD_PB_INT64),
    ONE(2, "data_type", GD_PB_INT32),
    A_MESSAGE(3, "segment", segment),
    PACKED(4, "float_data", GD_PB_FLOAT),
    PACKED(5, "int32_data", GD_PB_INT32),
    MANY(6, "string_data", GD_PB_BYTES),
    PACKED(7, "int64_data", GD_PB_INT64),
    ONE(8, "name", GD_PB_STRING),
    ONE(9, "raw_data", GD_PB_BYTES),
    PACKED(10, "double_data", GD_PB_DOUBLE),
    PACKED(11, "uint64_data", GD_PB_UINT64),
    ONE(12, "doc_string", GD_PB_STRING),
    MANY_MESSAGES(13, "external_data", pair),
    {14, "data_location", GD_PB_ENUM, 0, NULL, location_values, NULL},
};
const gd_pb_schema gd_onnx_tensor_schema = GD_PB_SCHEMA("TensorProto", tensor_fields);

static const gd_pb_field dimension_fields[] = {
    ONE(1, "dim_value", GD_PB_INT64), ONE(2, "dim_param", GD_PB_STRING), ONE(3, "denotation", GD_PB_STRING)};
static const gd_pb_schema dimension = GD_PB_SCHEMA("TensorShapeProto.Dimension", dimension_fields);
static const gd_pb_field shape_fields[] = {MANY_MESSAGES(1, "dim", dimension)};
static const gd_pb_schema shape = GD_PB_SCHEMA("TensorShapeProto", shape_fields);
static const gd_pb_field tensor_type_fields[] = {ONE(1, "elem_type", GD_PB_INT32), A_MESSAGE(2, "shape", shape)};
static const gd_pb_schema tensor_type = GD_PB_SCHEMA("TypeProto.Tensor", tensor_type_fields);
static const gd_pb_field type_fields[] = {A_MESSAGE(1, "tensor_type", tensor_type), ONE(6, "denotation", GD_PB_STRING)};
static const gd_pb_schema type = GD_PB_SCHEMA("TypeProto", type_fields);
static const gd_pb_field value_info_fields[] = {
    ONE(1, "name", GD_PB_STRING), A_MESSAGE(2, "type", type), ONE(3, "doc_string", GD_PB_STRING)};
static const gd_pb_schema value_info = GD_PB_SCHEMA("ValueInfoProto", value_info_fields);

static const gd_pb_schema graph;
static const gd_pb_enum attribute_types[] = {{"UNDEFINED", 0}, {"FLOAT", 1},   {"INT", 2},     {"STRING", 3},
                                             {"TENSOR", 4},    {"GRAPH", 5},   {"FLOATS", 6},  {"INTS", 7},
                                             {"STRINGS", 8},   {"TENSORS", 9}, {"GRAPHS", 10}, {NULL, 0}};
static const gd_pb_field attribute_fields[] = {
    ONE(1, "name", GD_PB_STRING),
    ONE(2, "f", GD_PB_FLOAT),
    ONE(3, "i", GD_PB_INT64),
    ONE(4, "s", GD_PB_BYTES),
    A_MESSAGE(5, "t", gd_onnx_tensor_schema),
    A_MESSAGE(6, "g", graph),
    MANY(7, "floats", GD_PB_FLOAT),
    MANY(8, "ints", GD_PB_INT64),
    MANY(9, "strings", GD_PB_BYTES),
    MANY_MESSAGES(10, "tensors", gd_onnx_tensor_schema),
    MANY_MESSAGES(11, "graphs", graph),
    ONE(13, "doc_string", GD_PB_STRING),
    {20, "type", GD_PB_ENUM, 0, NULL, attribute_types, NULL},
    ONE(21, "ref_attr_name", GD_PB_STRING),
};
static const gd_pb_schema attribute = GD_PB_SCHEMA("AttributeProto", attribute_fields);

static const gd_pb_field node_fields[] = {
    MANY(1, "input", GD_PB_STRING),     MANY(2, "output", GD_PB_STRING),
    ONE(3, "name", GD_PB_STRING),       ONE(4, "op_type", GD_PB_STRING),
    MANY_MESSAGES(5, "attribute", attribute), ONE(6, "doc_string", GD_PB_STRING),
    ONE(7, "domain", GD_PB_STRING),
};
static const gd_pb_schema node = GD_PB_SCHEMA("NodeProto", node_fields);

static const gd_pb_field graph_fields[] = {
    MANY_MESSAGES(1, "node", node),
    ONE(2, "name", GD_PB_STRING),
    MANY_MESSAGES(5, "initializer", gd_onnx_tensor_schema),
    ONE(10, "doc_string", GD_PB_STRING),
    MANY_MESSAGES(11, "input", value_info),
    MANY_MESSAGES(12, "output", value_info),
    MANY_MESSAGES(13, "value_info", value_info),
};
static const gd_pb_schema graph = GD_PB_SCHEMA("GraphProto", graph_fields);

static const gd_pb_field model_fields[] = {
    ONE(1, "ir_version", GD_PB_INT64),
    ONE(2, "producer_name", GD_PB_STRING),
    ONE(3, "producer_version", GD_PB_STRING),
    ONE(4, "domain", GD_PB_STRING),
    ONE(5, "model_version", GD_PB_INT64),
    ONE(6, "doc_string", GD_PB_STRING),
    A_MESSAGE(7, "graph", graph),
    MANY_MESSAGES(8, "opset_import", opset),
    MANY_MESSAGES(14, "metadata_props", pair),
};
const gd_pb_schema gd_onnx_model_schema = GD_PB_SCHEMA("ModelProto", model_fields);

/* clang-format on */

/* --- element types ---------------------------------------------------------------------------- */

/* TensorProto.DataType of each dtype. */
static const int type_numbers[GD_DTYPE_COUNT] = {
    [GD_F32] = 1,  [GD_U8] = 2,   [GD_I8] = 3,   [GD_I32] = 6,  [GD_I64] = 7,
    [GD_BOOL] = 9, [GD_F16] = 10, [GD_F64] = 11, [GD_BF16] = 16};

int gd_onnx_type_of(gd_dtype dtype) {
    return (unsigned)dtype < GD_DTYPE_COUNT ? type_numbers[dtype] : 0;
}

gd_dtype gd_onnx_dtype(int64_t data_type) {
    for (int dtype = 1; dtype < GD_DTYPE_COUNT; dtype++)
        if (type_numbers[dtype] == data_type) return (gd_dtype)dtype;
    return GD_DTYPE_NONE;
}

const char *gd_onnx_type_name(int64_t data_type) {
    static const char *const names[] = {"undefined",  "FLOAT",   "UINT8",  "INT8",   "UINT16",
                                        "INT16",      "INT32",   "INT64",  "STRING", "BOOL",
                                        "FLOAT16",    "DOUBLE",  "UINT32", "UINT64", "COMPLEX64",
                                        "COMPLEX128", "BFLOAT16"};
    return data_type >= 0 && data_type < (int64_t)(sizeof names / sizeof *names)
               ? names[data_type]
               : "an unknown element type";
}
