/* attrs.h - the options (attributes) of an op call: as a struct, and by name. */
#ifndef GRADUS_DISPATCH_ATTRS_H
#define GRADUS_DISPATCH_ATTRS_H

#include "core/integer.h"
#include "dispatch/op.h"

/* --- as a struct (attrs.c) -------------------------------------------------------------------- */

/* Expands list options that were written as one number (stride = 2). */
void gd_attrs_normalize(const gd_op *op, void *attrs);

/* Checks that words are among those of the record, and that lists have a known length. */
gd_status gd_attrs_check(const gd_op *op, const void *attrs);

/* The size of an option in its struct. */
size_t gd_attr_size(const gd_op_attr *attr);

/* An attribute as a number, for expressions. */
gd_number gd_attr_number(const gd_op_attr *attr, const void *attrs);
/* An attribute as the parameter of a kernel that computes in f32, f64, i32 or i64. A number out
 * of the range of i32 is clamped to it. */
gd_param gd_attr_param(const gd_op_attr *attr, const void *attrs, gd_dtype type);

/* Computes the offsets of options in a struct: in the order of the record, naturally aligned, as
 * a C compiler lays them out. Returns the size of the struct. */
size_t gd_attrs_lay_out(gd_op_attr *attrs, int n);

/* Whether a word is among `words`, which spaces separate. */
bool gd_word_is_among(gd_word word, const char *words);

/* --- by name (attrs_by_name.c) ---------------------------------------------------------------- */

/* gd_attrs_set_int and the like for library code: a failure is not recorded for the thread. */
gd_status gd_attrs_put_int(gd_attrs *attrs, const char *name, int64_t value);
gd_status gd_attrs_put_float(gd_attrs *attrs, const char *name, double value);
gd_status gd_attrs_put_ints(gd_attrs *attrs, const char *name, int count, const int64_t *values);
gd_status gd_attrs_put_text(gd_attrs *attrs, const char *name, const char *text);

/* gd_attrs_parse for library code: sets options from text, "stride=2 padding=1". */
gd_status gd_attrs_put_options(gd_attrs *attrs, const char *text);

/* The text of this option may be "any", which is GD_ANY. */
void gd_attrs_allow_any(gd_attrs *attrs, const char *name);

/* Fails if a required option was not set. */
gd_status gd_attrs_check_given(const gd_op *op, const gd_attrs *attrs);

/* Fills a struct with the defaults of a record that was parsed at run time. */
gd_status gd_attrs_fill_defaults(const gd_op *op, void *defaults);

/* The options struct inside attrs. */
const void *gd_attrs_data(const gd_attrs *attrs);

#endif
