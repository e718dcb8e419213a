/* fuzz_cifar.c - reads any bytes as files of CIFAR-10 and CIFAR-100. */
#include "format/cifar.h"

#include <stdlib.h>

static void read_cifar(const uint8_t *data, size_t size, int labels) {
    static const int limits[2][2] = {{10, 0}, {20, 100}};
    gd_stream *s;
    gd_cifar cifar = {.count = 0};
    if (gd_stream_open_memory(&s, "fuzz", data, size) != GD_OK) return;
    if (gd_cifar_read(&cifar, s, labels, limits[labels - 1]) == GD_OK)
        for (int64_t i = 0; i < cifar.count * labels; i++)
            if (cifar.labels[i] >= limits[labels - 1][i % labels]) abort();
    gd_cifar_free(&cifar);
    gd_stream_close(s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    read_cifar(data, size, 1);
    read_cifar(data, size, 2);
    return 0;
}
