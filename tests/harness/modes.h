/* modes.h - the modes of modes_symbolic.c and modes_device.c, for the table in modes.c. */
#ifndef GRADUS_TESTS_HARNESS_MODES_H
#define GRADUS_TESTS_HARNESS_MODES_H

#include "run.h"

extern const run_mode graph_mode, plan_mode, optimized_mode, unknown_mode, device_mode;

#endif
