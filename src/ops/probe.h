/* probe.h - shape rules and sizes that are not known yet. */
#ifndef GRADUS_OPS_PROBE_H
#define GRADUS_OPS_PROBE_H

#include "ops/op.h"

/* Runs an op's rule where an input may be a symbol with unknown sizes. The rules themselves know
 * nothing of that: they are asked with one size in place of the unknown ones, then with another,
 * and what differs in the answers is unknown. Fails only if no sizes would fit. */
gd_status gd_infer_any(const gd_op *op, gd_infer *infer);

/* What the op's body makes of symbols of these shapes, for ops that have a body. */
gd_status gd_infer_by_body(gd_infer *infer);

/* Whether a symbol among them has an unknown size. */
bool gd_has_unknown(gd_tensor *const *in, int n_in);

#endif
