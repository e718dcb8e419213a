/* layout.h - internals of the layout pass (layout.c, layout_sink.c, layout_channels.c). */
#ifndef GRADUS_GRAPH_PASSES_LAYOUT_H
#define GRADUS_GRAPH_PASSES_LAYOUT_H

#include "graph/passes/uses.h"
#include "graph/passes/passes.h"
#include "gradus/ops.h"

/* A permute step to be inserted after the step that computes `made`; `value` is its result. */
typedef struct gd_layout_permute {
    int made, value;
    bool is_result; /* `made` is what the step writes now, and `value` what it wrote before */
    gd_permute_options *options;
} gd_layout_permute;

typedef struct gd_layout {
    gd_program *p;
    gd_device *device;
    gd_uses uses;
    int *writes;   /* per root: how many steps write it */
    bool *fixed;   /* per root: it is fetched or committed, so its layout cannot change */
    int *chain;    /* per step: the first step of its chain of elementwise steps; -1: none */
    int *next;     /* per step: the next step of its chain; n_steps: none */
    int *producer; /* per root: the step of a chain that writes it; -1: none */
    gd_layout_permute *permuted;
    int n_permuted, changes;
} gd_layout;

/* Whether the root is a temporary, written once, and not fetched or committed. */
static inline bool gd_layout_can_change(const gd_layout *l, int root) {
    return l->p->roots[root].kind == GD_ROOT_TEMPORARY && l->writes[root] == 1 && !l->fixed[root];
}

/* --- layout.c --------------------------------------------------------------------------------- */

enum { GD_NO_CHAIN = -1, GD_AND_ELEMENTWISE = -2 };

/* Whether all readers of the root of `base` (but for step `but`, and those of `chain`) accept these
 * strides: no kernel has to copy an operand that it does not copy now. Elementwise steps must not
 * get operands that are no longer row-major, either, unless `chain` is GD_AND_ELEMENTWISE. */
bool gd_layout_readers_agree(gd_layout *l, const gd_pvalue *base, const int64_t *strides, int but,
                             int chain);
/* Gives `base` and all views of it new strides. */
void gd_layout_set_strides(gd_layout *l, gd_pvalue base, const int64_t *strides);
/* Makes steps that read value `from` read `to`; both are of one root, which is not fetched. */
void gd_layout_replace(gd_layout *l, int from, int to);

/* Computes the view `v` of `base`, which is row-major, after `base` gets new strides. False for
 * views that split or join axes. */
bool gd_layout_restride_view(const gd_pvalue *base, const int64_t *strides, const gd_pvalue *v,
                             gd_pvalue *to);

/* --- layout_sink.c ---------------------------------------------------------------------------- */

/* Finds chains, and moves permutes from their operands to their results. */
gd_status gd_layout_sink_permutes(gd_layout *l);

/* --- layout_channels.c ------------------------------------------------------------------------ */

/* Stores images with channels last where the device's kernels prefer that. */
gd_status gd_layout_move_channels(gd_layout *l);

#endif
