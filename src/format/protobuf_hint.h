/* protobuf_hint.h - what a text may have meant, for the messages of its reader. */
#ifndef GRADUS_FORMAT_PROTOBUF_HINT_H
#define GRADUS_FORMAT_PROTOBUF_HINT_H

#include "format/protobuf_tree.h"

/* For a field that the innermost message of the path does not have: a similar field, the messages
 * in it that have the field, or that its bracket may not be closed. "; did you mean num_output?",
 * or "". `root` is the outermost message. */
void gd_pb_hint_field(const gd_pb_path *path, const gd_pb *root, const char *name, char *text,
                      size_t size);

/* For a word that an enum does not have: what it has, "MAX, AVE or STOCHASTIC", and a similar word,
 * "; did you mean MAX?", or "". Of a long enum only some words or their number. */
void gd_pb_hint_word(const gd_pb_enum *values, const char *word, char *expected, char *hint,
                     size_t size);

#endif
