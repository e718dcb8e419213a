/* images.h - the compiled kernels; the build writes the table from the .cu files. */
#ifndef GRADUS_BACKEND_CUDA_IMAGES_H
#define GRADUS_BACKEND_CUDA_IMAGES_H

typedef struct gd_cuda_image {
    const char *name;          /* of the file without .cu */
    const unsigned char *code; /* a fat binary: machine code for several generations of devices */
} gd_cuda_image;

extern const gd_cuda_image gd_cuda_images[];
extern const int gd_cuda_image_count;

#endif
