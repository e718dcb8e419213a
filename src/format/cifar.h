/* cifar.h - the binary files of CIFAR-10 and CIFAR-100: records of one or two label bytes and 3072
 * pixels (3, 32, 32). They have no header. */
#ifndef GRADUS_FORMAT_CIFAR_H
#define GRADUS_FORMAT_CIFAR_H

#include "format/stream.h"

enum { GD_CIFAR_PIXELS = 3 * 32 * 32, GD_CIFAR_MAX = 10000000 };

typedef struct gd_cifar {
    int64_t count, room;
    uint8_t *pixels; /* (count, 3, 32, 32) */
    uint8_t *labels; /* (count, labels of a record) */
} gd_cifar;

/* Appends all records of a file. Each has `labels` label bytes, and label byte k is below
 * limits[k]. GD_E_FORMAT: a label out of range, or a truncated record. */
gd_status gd_cifar_read(gd_cifar *cifar, gd_stream *stream, int labels, const int *limits);
void gd_cifar_free(gd_cifar *cifar); /* {0} is fine */

#endif
