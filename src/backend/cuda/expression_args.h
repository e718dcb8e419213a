/* expression_args.h - parameters of kernels that compute an expression for each element.
 *
 * Host and kernels include it, and it is part of the text that precedes kernels compiled at run
 * time. A parameter struct is a head, which all kernels of a variant share, followed by words of
 * 8 bytes, whose number depends on the expression: n operands (the tensors read, then those
 * written) and p parameters.
 *
 *   vector    n addresses, p parameters, n pairs of strides: the outermost one in the low half; in
 *             vectors, or in elements if the operand is broadcast
 *   general   n addresses, p parameters, n lists of GD_CUDA_EXPRESSION_RANK strides
 *   list      p parameters, the addresses and strides of the scalars, then the entries
 */
#ifndef GRADUS_BACKEND_CUDA_EXPRESSION_ARGS_H
#define GRADUS_BACKEND_CUDA_EXPRESSION_ARGS_H

#include "backend/cuda/divisor.h"
#include "backend/cuda/error_word.h"

enum {
    GD_CUDA_EXPRESSION_RANK = 8,
    GD_CUDA_EXPRESSION_THREADS = 256,
    GD_CUDA_VECTOR = 4, /* elements of a vector, which one thread loads with one instruction */
    GD_CUDA_ELEMENTS_UNROLL = 2, /* elements of a thread for type f32; 1 for the others */
    GD_CUDA_LIST_CHUNK = 4096,   /* elements of a list's entry that one block computes */
    GD_CUDA_LIST_WORDS = 500,    /* words of a list: its parameters are at most 4 KB */
};

/* The shape has up to three merged dimensions: outermost, middle, innermost. The last one is
 * contiguous in every operand, or the operand is broadcast along it. If `inner` is set, it is a
 * multiple of GD_CUDA_VECTOR and so are the other strides of the operands that are not
 * broadcast. */
typedef struct gd_cuda_vector_head {
    const gd_cuda_word *word;
    long long count;           /* elements */
    unsigned long long dtypes; /* gd_dtype, 4 bits for each operand */
    unsigned broadcast;        /* bit k: operand k has stride 0 in the innermost dimension; an
                                  output is not stored */
    gd_cuda_divisor inner; /* vectors of the innermost dimension; divisor 0: it is the only one */
    gd_cuda_divisor middle;
} gd_cuda_vector_head;

typedef struct gd_cuda_general_head {
    const gd_cuda_word *word;
    long long count;
    unsigned long long dtypes;
    unsigned absent;  /* bit k: output k is not stored */
    short rank, wide; /* wide: sizes or offsets need 64 bits */
    long long dims[GD_CUDA_EXPRESSION_RANK];
    gd_cuda_divisor divisors[GD_CUDA_EXPRESSION_RANK]; /* of the dims unless `wide` */
} gd_cuda_general_head;

/* A call for each of several entries, which are contiguous and aligned. An expression has `width`
 * tensors in each entry and further variables, the scalars, which are the same for all entries or
 * have one element for each. Words: p parameters; for each scalar its address and its stride
 * between entries; for each entry its first chunk (low half) and its number in the call's list (high
 * half), its number of elements, and the addresses of its tensors, inputs before outputs. */
typedef struct gd_cuda_list_head {
    const gd_cuda_word *word;
    unsigned long long dtypes; /* of the inputs, scalars and outputs */
    int width, count;          /* tensors read by an entry; entries */
} gd_cuda_list_head;

#endif
