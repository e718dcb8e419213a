/* fuzz_image.c - decodes any bytes as an image and resizes it. Gradus decodes PNM itself; libraries
 * decode JPEG and PNG. */
#include "format/image.h"

static void read_image(const uint8_t *data, size_t size) {
    gd_bitmap image;
    const gd_bitmap_options options = {.channels = (int)(size % 3) / 2 * 3,
                                       .alpha = size % 2,
                                       .width = (int)(size % 7),
                                       .height = (int)(size % 5)};
    /* large images are valid but slow */
    if (size > 1 << 14 || gd_bitmap_decode(&image, "fuzz", data, size, &options) != GD_OK) return;
    volatile uint8_t sum = 0;
    for (int64_t i = 0; i < (int64_t)image.width * image.height * image.channels; i++)
        sum = (uint8_t)(sum + image.pixels[i]);
    gd_bitmap_free(&image);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    read_image(data, size);
    return 0;
}
