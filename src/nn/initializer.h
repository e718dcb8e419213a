/* initializer.h - initial values of weights: records of the kind "init".
 *
 * Rules: NAME_check checks the options, NAME_make returns the tensor. Options are
 * gd_init_NAME_options; each initializer has `dtype`.
 */
#ifndef GRADUS_NN_INITIALIZER_H
#define GRADUS_NN_INITIALIZER_H

#include "core/error.h"
#include "core/tensor.h"
#include "dispatch/factory.h"

typedef struct gd_init_rules {
    gd_status (*check)(gd_shape dims, const void *options);
    gd_tensor *(*make)(gd_shape dims, const void *options);
} gd_init_rules;

/* Called by the typed constructors. */
gd_tensor *gd_init_make(const char *site, const gd_factory *factory, gd_shape dims,
                        const void *options);

/* Fills a tensor by an initializer with options, "xavier_uniform gain=2". Does not record a
 * failure. */
gd_status gd_init_fill(gd_tensor *t, const char *text);

#endif
