/* call_infer.h - infers the results of a call: their dtypes and shapes.
 *
 * All infer rules are run by gd_infer_known: for calls of the dispatcher, for sizes to try
 * (probe.h), for lists of calls, and for steps of plans. Only a rule itself may call the rule of
 * another op.
 */
#ifndef GRADUS_DISPATCH_CALL_INFER_H
#define GRADUS_DISPATCH_CALL_INFER_H

#include "dispatch/op.h"

/* Infers the results of a call in the dispatcher, whose inputs may be symbols with unknown sizes, and
 * checks that the bytes of the results do not overflow. */
gd_status gd_call_infer(const gd_invocation *call, gd_infer *infer);

/* Infers the results of an op whose inputs have known sizes: by its rule, or by its body if it has
 * none. If infer->out changes, the rule has allocated it (gd_infer_outputs), and the caller frees
 * it. */
static inline gd_status gd_infer_known(gd_infer *infer);

/* Infers the results by running the op's body on symbols. */
gd_status gd_infer_by_body(gd_infer *infer);

/* The default of an output, before the op's infer rule runs: rank 0, the dtype of the first
 * input. */
static inline void gd_meta_clear(gd_meta *m, gd_tensor *const *in, int n_in) {
    m->dtype = n_in > 0 && in[0] ? (gd_dtype)in[0]->dtype : GD_F32;
    m->rank = 0;
    m->view_of = -1;
    m->offset = 0;
    m->device = NULL;
}

static inline gd_status gd_infer_known(gd_infer *infer) {
    for (int i = 0; i < infer->n_out; i++) gd_meta_clear(&infer->out[i], infer->in, infer->n_in);
    return infer->op->infer ? infer->op->infer(infer) : gd_infer_by_body(infer);
}

#endif
