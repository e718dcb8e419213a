/* modes.h - ways of running a case: as a graph, as a plan, on another device. */
#ifndef GRADUS_TESTS_MODES_H
#define GRADUS_TESTS_MODES_H

#include "run.h"

extern const run_mode graph_mode, plan_mode, optimized_mode, unknown_mode, device_mode;

#endif
