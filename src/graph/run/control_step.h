/* control_step.h - branches and loops as steps of a plan. Their subgraphs have plans of their own. */
#ifndef GRADUS_GRAPH_CONTROL_STEP_H
#define GRADUS_GRAPH_CONTROL_STEP_H

#include "graph/plan/plan.h"

/* Builds the plans of the subgraphs of all such steps. The plan owns them. */
gd_status gd_control_prepare(gd_plan *plan, int level);

#endif
