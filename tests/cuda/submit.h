/* submit.h - how emulated libraries queue work on a stream of the emulated driver. */
#ifndef GRADUS_TESTS_CUDA_SUBMIT_H
#define GRADUS_TESTS_CUDA_SUBMIT_H

#include <cuda.h>

#include <functional>

#include "emulated.h"

/* Queues a call, or records it if the stream is captured. */
CUresult emulated_submit(CUstream stream, std::function<void()> call);
/* Whether the bytes are in one allocation of the device. */
bool emulated_is_device_memory(const void *address, size_t bytes);
extern "C" emulated_controls *gradus_emulated_controls(void);

#endif
