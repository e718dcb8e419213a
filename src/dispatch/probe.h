/* probe.h - shape inference for inputs with unknown sizes. */
#ifndef GRADUS_DISPATCH_PROBE_H
#define GRADUS_DISPATCH_PROBE_H

#include "dispatch/op.h"

/* Runs an op's infer rule for inputs of which some are symbols with unknown sizes. Rules handle known
 * sizes only, so the rule is called several times with different sizes in place of the unknown ones.
 * Sizes of the results that differ between the calls are unknown, too. Fails only if the rule fails
 * for all sizes that are tried. */
gd_status gd_probe_sizes(gd_infer *infer);

/* Whether an input is a symbol with an unknown size. */
bool gd_has_unknown(gd_tensor *const *in, int n_in);

#endif
