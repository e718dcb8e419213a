/* maker.h - what is made by name: layers, optimizers, schedules, initializers.
 *
 * Each of them is a record like an op (codegen/record.h has the form), found by the generator in a comment
 * that begins with its kind:
 *
 *     layer linear(x, in_features:int, out_features:int) -> y  of linear
 *
 * From it follow the typed constructor gd_nn_linear(...), creation by name from text, the reference page,
 * and a gd_maker, the record as data. Its rules are functions of the same file, named after it: linear_build,
 * linear_forward. Which rules a kind has, and how its objects are made, is its own: src/nn/layer.h,
 * src/optim/optimizer.h. The table of kinds is in codegen/opgen/makers.c.
 */
#ifndef GRADUS_OPS_MAKER_H
#define GRADUS_OPS_MAKER_H

#include "codegen/record.h"
#include "ops/op.h"

typedef struct gd_maker {
    const char *kind;            /* "layer" */
    gd_op record;                /* name, documentation, inputs, outputs and options */
    const char *of;              /* the op that a layer calls; NULL: none */
    const gd_record_find *finds; /* options that may be GD_ANY, and the sizes that they are then */
    int n_finds;
    const void *rules; /* the kind's own struct of functions */
    /* Of a record whose text has several, such as conv{1,2,3}d: */
    int variant;                         /* N: 2 of conv2d; 0: the text has one record */
    const struct gd_maker *last_variant; /* conv3d, whose options have room for those of all */
} gd_maker;

/* The generated list. */
extern const gd_maker *const gd_makers[];
extern const int gd_maker_total;

/* NULL: there is none. Finds those that the program has defined, too. */
const gd_maker *gd_maker_find(const char *kind, const char *name);
/* Fails with a message that lists some that there are. */
gd_status gd_maker_lookup(const char *kind, const char *name, const gd_maker **maker);
/* Number `index` of a kind, from 0; NULL: there are fewer. */
const gd_maker *gd_maker_at(const char *kind, int index);

/* Defines one at run time from the text of its record, with a copy of `size` bytes of rules. It lives until the
 * program ends. */
gd_status gd_maker_define(const char *kind, const char *record, const void *rules, size_t size);

/* An options struct of its own from the caller's (NULL: the defaults): lists are filled up, words and
 * lengths are checked. NULL in *options where there are none. Free it with gd_free. */
gd_status gd_maker_take_options(const gd_maker *maker, const void *given, void **options);
/* The same from text: "in_features=10 out_features=20". Options that are required must be there. */
gd_status gd_maker_parse_options(const gd_maker *maker, const char *text, void **options);

/* Options must be in the ranges that their documentation begins with: "in [0, 1): ...". `prefix` is
 * that of constructors, for the message: "gd_optim_". */
gd_status gd_check_ranges(const gd_maker *maker, const void *options, const char *prefix);

/* Finds a record and reads its options from text. */
gd_status gd_maker_read(const char *kind, const char *name, const char *text,
                        const gd_maker **maker, void **options);

/* The place of an option in the struct; NULL: there is none of that name. */
void *gd_maker_option(const gd_maker *maker, void *options, const char *name,
                      const gd_op_attr **attr);

#endif
