/* schema_rows.h - how the tables of messages are written: the number and the name of a field, then
 *
 *     ONE(3, "scale", FLOAT, "1")                      its type and default; NULL: none, or zero
 *     WORD(1, "pool", pool_method_words, "MAX")        the words of its enum and its default
 *     MESSAGE(7, "filler", gd_caffe_filler_schema)     the schema of the message
 *
 * MANY, WORDS and MESSAGES are repeated fields, PACKED and VIEW (GD_PB_VIEW) some that are written
 * packed. The fields of a message are in the order of their numbers, in which they are written.
 */
#ifndef GRADUS_CAFFE_SCHEMA_ROWS_H
#define GRADUS_CAFFE_SCHEMA_ROWS_H

#include "caffe/schema.h"

/* clang-format off */
#define ONE(number, name, type, by_default)   {number, name, GD_PB_##type, 0, NULL, NULL, by_default}
#define MANY(number, name, type)              {number, name, GD_PB_##type, GD_PB_REPEATED, NULL, NULL, NULL}
#define PACKED(number, name, type)            {number, name, GD_PB_##type, GD_PB_PACKED, NULL, NULL, NULL}
#define VIEW(number, name, type)              {number, name, GD_PB_##type, GD_PB_VIEW, NULL, NULL, NULL}
#define WORD(number, name, words, by_default) {number, name, GD_PB_ENUM, 0, NULL, words, by_default}
#define WORDS(number, name, words)            {number, name, GD_PB_ENUM, GD_PB_REPEATED, NULL, words, NULL}
#define MESSAGE(number, name, schema)         {number, name, GD_PB_MESSAGE, 0, &schema, NULL, NULL}
#define MESSAGES(number, name, schema)        {number, name, GD_PB_MESSAGE, GD_PB_REPEATED, &schema, NULL, NULL}
/* clang-format on */

#endif
