/* step.h - branches and loops as steps of a plan: their functions are plans of their own. */
#ifndef GRADUS_GRAPH_CONTROL_STEP_H
#define GRADUS_GRAPH_CONTROL_STEP_H

#include "graph/run/plan.h"

/* Makes the plans of all such steps; the program keeps them. */
gd_status gd_control_prepare(gd_program *program, gd_device *device, int level);

#endif
