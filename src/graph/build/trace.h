/* trace.h - symbols.
 *
 * An op with a symbol among its inputs, or any op while a trace is open, appends a node. The node
 * is the tape's struct, so one backward walk serves both.
 */
#ifndef GRADUS_GRAPH_BUILD_TRACE_H
#define GRADUS_GRAPH_BUILD_TRACE_H

#include "gradus/tensor.h"

/* A placeholder that belongs to no graph. Sizes in `shape` may be GD_ANY. */
gd_tensor *gd_symbol(gd_shape shape, gd_dtype dtype, gd_device *device);

/* Between the two calls every op of this thread appends a node, also one without inputs. */
void gd_trace_begin(void);
void gd_trace_end(void);

#endif
