/* transform.h - transforms of a tensor of a sample: records of the kind "transform".
 *
 *     transform crop(size:int[2])
 *
 * Rules are functions of the record's file, named after it: NAME_check(options) checks the options
 * (optional), and NAME_apply(options, x, random) returns the new tensor in the current scope, or an
 * error tensor. Every record has `field int = 0`: the tensor of the sample that it changes. An
 * option whose documentation begins with a range, "in [0, 1]: ...", is checked against it.
 */
#ifndef GRADUS_DATA_TRANSFORM_H
#define GRADUS_DATA_TRANSFORM_H

#include "core/error.h"
#include "core/object.h"
#include "gradus/dataset.h"
#include "dispatch/factory.h"

typedef struct gd_transform_rules {
    gd_status (*check)(const void *options);
    gd_tensor *(*apply)(const void *options, gd_tensor *x, gd_random *random);
} gd_transform_rules;

struct gd_transform {
    gd_object object;
    const gd_factory *factory;
    void *options;
    int64_t field;
};

/* Called by the typed constructors. */
gd_transform *gd_transform_make(const char *site, const gd_factory *factory, const void *options);

/* Applies a transform. Does not record a failure; its message names the transform. */
gd_status gd_transform_run(const gd_transform *transform, gd_tensor *x, gd_random *random,
                           gd_tensor **y);

#endif
