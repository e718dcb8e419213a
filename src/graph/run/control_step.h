/* control_step.h - kernels that run branches and loops as steps of a plan. */
#ifndef GRADUS_GRAPH_RUN_CONTROL_STEP_H
#define GRADUS_GRAPH_RUN_CONTROL_STEP_H

#include "graph/lower/program.h"

/* Adds the kernels for a kind of device to the kernel table, if the program has such steps. Call it
 * before its plan is built. */
gd_status gd_control_add_kernels(const gd_program *program, const char *kind);

#endif
