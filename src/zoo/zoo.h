/* zoo.h - ready networks: records of the kind "net".
 *
 * Rules: NAME_check(options) checks the options, NAME_make(options) returns the module, or NULL if
 * a constructor failed and recorded the failure.
 */
#ifndef GRADUS_ZOO_ZOO_H
#define GRADUS_ZOO_ZOO_H

#include "core/error.h"
#include "gradus/module.h"
#include "dispatch/factory.h"

typedef struct gd_net_rules {
    gd_status (*check)(const void *options);
    gd_module *(*make)(const void *options);
} gd_net_rules;

/* Called by the typed constructors. */
gd_module *gd_net_make(const char *site, const gd_factory *factory, const void *options);

/* "classes is 0; it must be at least 1" */
gd_status gd_net_at_least(const char *option, int64_t value, int64_t least);

#endif
