/* gradus.h - everything. */
#ifndef GRADUS_H
#define GRADUS_H

#include "gradus/autograd.h"
#include "gradus/control.h"
#include "gradus/device.h"
#include "gradus/dtype.h"
#include "gradus/extend.h"
#include "gradus/graph.h"
#include "gradus/index.h"
#include "gradus/jit.h"
#include "gradus/nn.h"
#include "gradus/npy.h"
#include "gradus/onnx.h"
#include "gradus/op.h"
#include "gradus/ops.h"
#include "gradus/optim.h"
#include "gradus/options.h"
#include "gradus/print.h"
#include "gradus/profiler.h"
#include "gradus/random.h"
#include "gradus/schedule.h"
#include "gradus/scope.h"
#include "gradus/session.h"
#include "gradus/state.h"
#include "gradus/status.h"
#include "gradus/tensor.h"
#include "gradus/testing.h"
#include "gradus/threads.h"
#include "gradus/zoo.h"

#endif
