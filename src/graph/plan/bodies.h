/* bodies.h - the plans of branches and loop bodies, which are subgraphs of a plan's steps. */
#ifndef GRADUS_GRAPH_PLAN_BODIES_H
#define GRADUS_GRAPH_PLAN_BODIES_H

#include "gradus/ops.h"
#include "graph/plan/plan.h"

/* The options of such a step: those of its op, then the plans. */
typedef struct gd_control_options {
    union {
        gd_cond_graph_options cond;
        gd_while_graph_options loop;
        gd_scan_graph_options scan;
    } options;
    gd_plan *plan[2]; /* of the subgraphs, in the order of the options */
} gd_control_options;

/* Builds the plans of the subgraphs of all such steps. The plan owns them. */
gd_status gd_plan_add_bodies(gd_plan *plan, int level);

#endif
