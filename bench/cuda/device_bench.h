/* device_bench.h - the parts of bench_device (steps.c). */
#ifndef GRADUS_BENCH_CUDA_DEVICE_BENCH_H
#define GRADUS_BENCH_CUDA_DEVICE_BENCH_H

double device_bench_now(void); /* nanoseconds */

/* One measurement (one.c): "add", "gelu", "start" or "bare". `began`: when the program started. */
int device_bench_one(const char *name, const char *device, double began);

#endif
