/* factory.h - records of objects that are created by name: layers, optimizers, schedules,
 * initializers.
 *
 * Each is defined by a record like an op's (codegen/record.h has the syntax), in a comment that
 * begins with its kind:
 *
 *     layer linear(x, in_features:int, out_features:int) -> y  of linear
 *
 * The generator derives from it the typed constructor gd_nn_linear(...), creation by name from
 * text, the reference page, and a gd_factory, which is the record as data. The record's rules are
 * functions of the same file named after it: linear_build, linear_forward. src/nn/layer.h,
 * src/optim/optimizer.h and so on describe the rules of a kind and how its objects are created. The
 * table of kinds is in codegen/opgen/factories.c.
 */
#ifndef GRADUS_DISPATCH_FACTORY_H
#define GRADUS_DISPATCH_FACTORY_H

#include "codegen/record.h"
#include "dispatch/op.h"

typedef struct gd_factory {
    const char *kind;            /* "layer" */
    gd_op record;                /* name, documentation, inputs, outputs and options */
    const char *of;              /* the op that a layer calls; NULL: none */
    const gd_record_find *finds; /* options that may be GD_ANY, with the sizes that replace it */
    int n_finds;
    const void *rules; /* a struct of functions, whose type depends on the kind */
    /* For records from a text with several, such as conv{1,2,3}d: */
    int variant;                           /* N: 2 for conv2d; 0: the text has one record */
    const struct gd_factory *last_variant; /* conv3d, whose options struct fits those of all */
} gd_factory;

/* The generated table. */
extern const gd_factory *const gd_factories[];
extern const int gd_factory_total;

/* Finds a record, also one that the program has defined; NULL if there is none. */
const gd_factory *gd_factory_find(const char *kind, const char *name);
/* The same, but fails with a message that lists known names. */
gd_status gd_factory_lookup(const char *kind, const char *name, const gd_factory **factory);
/* Record number `index` of a kind, from 0; NULL if there are fewer. */
const gd_factory *gd_factory_at(const char *kind, int index);

/* Defines a record at run time from its text, with a copy of `size` bytes of rules. It lives until
 * the program ends. */
gd_status gd_factory_define(const char *kind, const char *record, const void *rules, size_t size);

/* Copies the caller's options struct (NULL: the defaults), fills lists up to their length, and
 * checks words and lengths. *options is NULL if the record has no options. Free it with gd_free. */
gd_status gd_factory_take_options(const gd_factory *factory, const void *given, void **options);
/* The same from text: "in_features=10 out_features=20". Required options must be given. Options that
 * `finds` names may be "any". */
gd_status gd_factory_parse_options(const gd_factory *factory, const char *text, void **options);

/* Checks options against the ranges that their documentation begins with: "in [0, 1): ...".
 * `prefix` is that of the constructor's name, for the error message: "gd_optim_". */
gd_status gd_check_ranges(const gd_factory *factory, const void *options, const char *prefix);

/* Finds a record and reads its options from text. */
gd_status gd_factory_read(const char *kind, const char *name, const char *text,
                          const gd_factory **factory, void **options);

/* The address of an option in the options struct; NULL if there is none of that name. */
void *gd_factory_option(const gd_factory *factory, void *options, const char *name,
                        const gd_op_attr **attr);

#endif
