/* kernel_files.h - the tables of kernels that the build writes from their blocks.
 *
 * gd_kernel_families_KIND has an entry for each file with kernels for that kind of device. An entry is
 * NULL if the build leaves the file out. The library reads the table of the CPU; a backend, which is
 * a library of its own, reads that of its kind.
 */
#ifndef GRADUS_DISPATCH_KERNEL_FILES_H
#define GRADUS_DISPATCH_KERNEL_FILES_H

#include "gradus/extend.h"

typedef struct gd_kernel_family {
    const gd_kernel *kernels;
    int count;
} gd_kernel_family;

#define GD_KERNEL_TABLE(kind)                                         \
    extern const gd_kernel_family *const gd_kernel_families_##kind[]; \
    extern const int gd_kernel_family_count_##kind

GD_KERNEL_TABLE(cpu);

#endif
