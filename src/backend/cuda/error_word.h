/* error_word.h - the error word in device memory, for the host and for kernels. */
#ifndef GRADUS_BACKEND_CUDA_ERROR_WORD_H
#define GRADUS_BACKEND_CUDA_ERROR_WORD_H

/* The fields of gd_data_error (gradus/backend.h), and the number of the running plan. A kernel
 * claims `number` with an atomic compare-and-swap; the thread that succeeds writes the rest. */
typedef struct gd_cuda_word {
    unsigned long long number; /* of the call that failed; 0: no problem */
    unsigned long long run;    /* of the plan's run when it failed */
    long long problem;         /* gd_data_problem */
    long long element;
    long long values[3];
    double real;
    unsigned long long current_run; /* written by the entry kernel of a plan */
} gd_cuda_word;

/* --- boundaries: the only parameter of the kernels `boundary` --------------------------------- */

enum {
    GD_CUDA_COPIES = 96, /* of one kernel: its parameters are at most 4 KB */
    GD_CUDA_SCALARS = 64,
};

typedef struct gd_cuda_boundary {
    gd_cuda_word *word;
    unsigned long long run; /* sets the current run; ~0: it stays */
    int n_copies, n_scalars;
    int blocks; /* of each copy */
    struct {
        void *to;
        const void *from;
        unsigned long long bytes;
    } copies[GD_CUDA_COPIES];
    struct {
        void *to;
        unsigned long long bits;
        unsigned int bytes;
    } scalars[GD_CUDA_SCALARS];
} gd_cuda_boundary;

#endif
