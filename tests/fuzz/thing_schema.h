/* thing_schema.h - a protobuf message with every type of field, for tests of reader and writer. */
#ifndef GRADUS_TESTS_FUZZ_THING_SCHEMA_H
#define GRADUS_TESTS_FUZZ_THING_SCHEMA_H

#include "format/protobuf.h"

static const gd_pb_schema thing_schema;
static const gd_pb_enum thing_colors[] = {{"RED", 0}, {"GREEN", 5}, {"BLUE", 10}, {NULL, 0}};
static const gd_pb_field thing_fields[] = {
    {1, "i32", GD_PB_INT32, 0, NULL, NULL, NULL},
    {2, "i64", GD_PB_INT64, 0, NULL, NULL, NULL},
    {3, "u32", GD_PB_UINT32, 0, NULL, NULL, NULL},
    {4, "u64", GD_PB_UINT64, 0, NULL, NULL, NULL},
    {5, "flag", GD_PB_BOOL, 0, NULL, NULL, NULL},
    {6, "color", GD_PB_ENUM, 0, NULL, thing_colors, NULL},
    {7, "f", GD_PB_FLOAT, 0, NULL, NULL, NULL},
    {8, "d", GD_PB_DOUBLE, 0, NULL, NULL, NULL},
    {9, "text", GD_PB_STRING, 0, NULL, NULL, NULL},
    {10, "data", GD_PB_BYTES, 0, NULL, NULL, NULL},
    {11, "child", GD_PB_MESSAGE, 0, &thing_schema, NULL, NULL},
    {12, "things", GD_PB_MESSAGE, GD_PB_REPEATED, &thing_schema, NULL, NULL},
    {13, "numbers", GD_PB_INT64, GD_PB_REPEATED, NULL, NULL, NULL},
    {14, "packed", GD_PB_INT32, GD_PB_PACKED, NULL, NULL, NULL},
    {15, "floats", GD_PB_FLOAT, GD_PB_PACKED, NULL, NULL, NULL},
    {17, "doubles", GD_PB_DOUBLE, GD_PB_VIEW, NULL, NULL, NULL},
    {1000, "names", GD_PB_STRING, GD_PB_REPEATED, NULL, NULL, NULL},
};
static const gd_pb_schema thing_schema = GD_PB_SCHEMA("Thing", thing_fields);

#endif
