/* png.c - decodes PNG with libpng; see image.h. */
#include <setjmp.h>
#include <string.h>

#include "core/alloc.h"
#include "core/checked.h"
#include "core/error.h"
#include "format/image.h"

#ifdef GD_HAVE_PNG

#include <png.h>

enum {
    MAX_CHUNK = 1 << 24, /* bytes of a chunk other than pixels */
    MAX_CHUNKS = 1000,
    BEST_RATIO = 1032, /* the best possible ratio of deflate */
};

typedef struct decoder {
    const char *name;
    const uint8_t *data;
    size_t bytes, at;
    png_structp png;
    png_infop info;
    png_bytep *rows;
    gd_status status;
} decoder;

static void PNGCBAPI fail_decoder(png_structp png, png_const_charp text) {
    decoder *d = png_get_error_ptr(png);
    d->status = gd_fail(strstr(text, "memory") ? GD_E_MEMORY : GD_E_FORMAT,
                        "%s: damaged PNG at byte %zu: %s", d->name, d->at, text);
    png_longjmp(png, 1);
}

static void PNGCBAPI ignore_warning(png_structp png, png_const_charp text) {
    (void)png, (void)text;
}

static void PNGCBAPI fetch_bytes(png_structp png, png_bytep to, size_t count) {
    decoder *d = png_get_io_ptr(png);
    if (count > d->bytes - d->at) {
        d->at = d->bytes;
        png_error(png, "it ends too early");
    }
    memcpy(to, d->data + d->at, count);
    d->at += count;
}

static png_voidp PNGCBAPI allocate_memory(png_structp png, png_alloc_size_t bytes) {
    (void)png;
    return gd_malloc(bytes);
}
static void PNGCBAPI free_memory(png_structp png, png_voidp p) {
    (void)png;
    gd_free(p);
}

/* Converts any depth and colour type to 8 bits and 1 to 4 channels. */
static void set_transforms(decoder *d) {
    const int depth = png_get_bit_depth(d->png, d->info),
              type = png_get_color_type(d->png, d->info);
    if (type == PNG_COLOR_TYPE_PALETTE) png_set_palette_to_rgb(d->png);
    if (type == PNG_COLOR_TYPE_GRAY && depth < 8) png_set_expand_gray_1_2_4_to_8(d->png);
    if (png_get_valid(d->png, d->info, PNG_INFO_tRNS)) png_set_tRNS_to_alpha(d->png);
    if (depth == 16) png_set_strip_16(d->png); /* keeps the upper byte, as Pillow does */
    png_set_interlace_handling(d->png);
    png_read_update_info(d->png, d->info);
}

/* Fails if the file is too small for the size in its header. */
static gd_status check_size(const decoder *d, uint64_t width, uint64_t height) {
    const int depth = png_get_bit_depth(d->png, d->info),
              channels = png_get_channels(d->png, d->info);
    const uint64_t row = width * (uint64_t)(depth * channels) / 8; /* of 31 bits and 6 bits */
    uint64_t most;
    if (!gd_mul_u64(d->bytes, BEST_RATIO, &most) || row == 0 || height <= most / row) return GD_OK;
    return gd_fail(
        GD_E_FORMAT,
        "%s: damaged PNG: its header has %llu x %llu pixels, which its %zu bytes cannot hold",
        d->name, (unsigned long long)width, (unsigned long long)height, d->bytes);
}

static gd_status decode_pixels(decoder *d, gd_bitmap *image) {
    png_set_read_fn(d->png, d, fetch_bytes);
    png_set_user_limits(d->png, GD_BITMAP_MAX_PIXELS, GD_BITMAP_MAX_PIXELS);
    png_set_chunk_malloc_max(d->png, MAX_CHUNK);
    png_set_chunk_cache_max(d->png, MAX_CHUNKS);
    png_read_info(d->png, d->info);
    const uint64_t width = png_get_image_width(d->png, d->info),
                   height = png_get_image_height(d->png, d->info);
    GD_TRY(check_size(d, width, height));
    set_transforms(d);
    const int channels = png_get_channels(d->png, d->info);
    GD_TRY(gd_bitmap_new(image, d->name, "PNG", width, height, channels));
    const size_t row = (size_t)width * (size_t)channels;
    if (png_get_rowbytes(d->png, d->info) != row) png_error(d->png, "rows of an unknown kind");
    d->rows = gd_malloc((size_t)height * sizeof *d->rows);
    if (!d->rows) return gd_fail(GD_E_MEMORY, "%s: no memory for its pixels", d->name);
    for (size_t y = 0; y < height; y++) d->rows[y] = image->pixels + y * row;
    png_read_image(d->png, d->rows);
    png_read_end(d->png, NULL);
    return GD_OK;
}

gd_status gd_png_decode(gd_bitmap *image, const char *name, const uint8_t *data, size_t bytes) {
    decoder *d = gd_calloc(1, sizeof *d); /* on the heap, since longjmp may lose local variables */
    if (!d) return gd_fail(GD_E_MEMORY, "%s: no memory to decode it", name);
    d->name = name;
    d->data = data;
    d->bytes = bytes;
    d->status = GD_E_MEMORY;
    d->png = png_create_read_struct_2(PNG_LIBPNG_VER_STRING, d, fail_decoder, ignore_warning, NULL,
                                      allocate_memory, free_memory);
    if (d->png) d->info = png_create_info_struct(d->png);
    if (!d->info) gd_fail(GD_E_MEMORY, "%s: no memory to decode it", name);
    else if (setjmp(png_jmpbuf(d->png)) == 0) d->status = decode_pixels(d, image);
    const gd_status status = d->status;
    if (d->png) png_destroy_read_struct(&d->png, d->info ? &d->info : NULL, NULL);
    gd_free(d->rows);
    gd_free(d);
    return status;
}

#else

gd_status gd_png_decode(gd_bitmap *image, const char *name, const uint8_t *data, size_t bytes) {
    (void)image, (void)data, (void)bytes;
    return gd_fail(GD_E_UNSUPPORTED,
                   "%s: is a PNG, and this library was built without libpng: install libpng-dev "
                   "(Debian, Ubuntu) or libpng-devel (Fedora) and build it again",
                   name);
}

#endif
