/* library.h - libraries of NVIDIA, loaded at run time. */
#ifndef GRADUS_BACKEND_CUDA_LIBRARY_H
#define GRADUS_BACKEND_CUDA_LIBRARY_H

/* Opens the first library of the list that can be loaded ("libcublasLt.so.13"; ends with NULL):
 * from the folders of the program (gd_host.each_library_folder), from $CUDA_HOME/lib64, by the system's search path, or from /usr/local/cuda/lib64. NULL: none. */
void *gd_cuda_open_library(const char *const *names);

#endif
