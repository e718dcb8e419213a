/* previous_kernel.cuh - kernels that the device prepares while the kernel before them still runs.
 *
 * Such a kernel calls wait_for_previous_kernel in all threads, before it reads or writes memory of the
 * device. Only its launch overlaps with the kernel before it. GD_CUDA_KERNEL_WAITING (state.h) marks
 * it for the host.
 */
#ifndef GRADUS_BACKEND_CUDA_PREVIOUS_KERNEL_CUH
#define GRADUS_BACKEND_CUDA_PREVIOUS_KERNEL_CUH

/* Waits until the previous kernel has ended and its writes are visible. */
static __device__ __forceinline__ void wait_for_previous_kernel() {
#if defined __CUDA_ARCH__ && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#elif !defined __CUDACC__
    emulated_previous_kernel();
#endif
}

#endif
