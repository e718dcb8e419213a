/* gaps.h - finds free memory among many buffers that are live at different times.
 *
 * At any time the buffers of a plan lie almost without gaps: a thousand of them are a few runs of
 * used memory. The tree keeps such runs for ranges of time, so that a search looks at few runs and
 * not at all buffers.
 */
#ifndef GRADUS_GRAPH_PLAN_GAPS_H
#define GRADUS_GRAPH_PLAN_GAPS_H

#include "core/error.h"

typedef struct gd_gap_tree gd_gap_tree;

/* For times from 0 to `times` - 1. NULL: no memory. */
gd_gap_tree *gd_gap_tree_new(int times);
void gd_gap_tree_clear(gd_gap_tree *tree);
/* Marks memory as used from time `begin` to `end`. */
void gd_gap_tree_add(gd_gap_tree *tree, int begin, int end, size_t offset, size_t bytes);
/* The offset of the smallest gap of at least `bytes` that is free all this time, or of the end of
 * the used memory. The lowest of several gaps of that size. */
size_t gd_gap_tree_find(gd_gap_tree *tree, int begin, int end, size_t bytes);
/* GD_E_MEMORY if a call was ever out of memory: what it found may be wrong. Accepts NULL. */
gd_status gd_gap_tree_free(gd_gap_tree *tree);

#endif
