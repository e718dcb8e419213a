/* kernel_files.h - the tables of kernels that the build writes from their blocks.
 *
 * gd_kernel_files_KIND has an entry for each file with kernels for that kind of device. An entry is
 * NULL if the build leaves the file out. The library reads the table of the CPU; a backend, which is
 * a library of its own, reads that of its kind.
 */
#ifndef GRADUS_DISPATCH_KERNEL_FILES_H
#define GRADUS_DISPATCH_KERNEL_FILES_H

#include "gradus/extend.h"

/* The kernels of one source file. */
typedef struct gd_kernel_file {
    const gd_kernel *kernels;
    int count;
} gd_kernel_file;

#define GD_KERNEL_TABLE(kind)                                    \
    extern const gd_kernel_file *const gd_kernel_files_##kind[]; \
    extern const int gd_kernel_file_count_##kind

GD_KERNEL_TABLE(cpu);

#endif
