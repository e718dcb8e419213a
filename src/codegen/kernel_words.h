/* kernel_words.h - the words of kernel blocks that are flags of a kernel (CONTRIBUTING.md explains
 * them): the generator reads them, lists of kernels print them. */
#ifndef GRADUS_CODEGEN_KERNEL_WORDS_H
#define GRADUS_CODEGEN_KERNEL_WORDS_H

#include "gradus/extend.h"

static const struct {
    const char *word;
    unsigned flag;
} gd_kernel_flag_words[] = {
    {"contiguous", GD_KERNEL_CONTIGUOUS}, {"wide", GD_KERNEL_WIDE},
    {"double", GD_KERNEL_DOUBLE},         {"checked", GD_KERNEL_CHECKED},
    {"mixed", GD_KERNEL_MIXED},           {"strided", GD_KERNEL_STRIDED_RESULTS},
};
enum { GD_KERNEL_FLAG_WORDS = sizeof gd_kernel_flag_words / sizeof *gd_kernel_flag_words };

#endif
