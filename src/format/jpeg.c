/* jpeg.c - decodes and encodes JPEG with libjpeg (libjpeg-turbo); see image.h. */
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/error.h"
#include "format/image.h"

#ifdef GD_HAVE_JPEG

#include <jpeglib.h>
#include <jerror.h>

enum { MAX_SCANS = 500 }; /* a small progressive file may have millions of scans, and take hours */

typedef struct decoder {
    struct jpeg_decompress_struct info;
    struct jpeg_error_mgr errors;
    struct jpeg_progress_mgr progress;
    jmp_buf failed;
    const char *name;
    const uint8_t *data;
    size_t bytes;
    gd_status status;
} decoder;

/* libjpeg calls this on a fatal error. */
static void fail_decoder(j_common_ptr common) {
    decoder *d = common->client_data;
    char text[JMSG_LENGTH_MAX];
    common->err->format_message(common, text);
    const struct jpeg_source_mgr *src = d->info.src;
    const size_t at =
        src && src->next_input_byte >= d->data && src->next_input_byte <= d->data + d->bytes
            ? (size_t)(src->next_input_byte - d->data)
            : d->bytes;
    const bool memory = common->err->msg_code == JERR_OUT_OF_MEMORY;
    d->status = gd_fail(memory ? GD_E_MEMORY : GD_E_FORMAT, "%s: damaged JPEG at byte %zu: %s",
                        d->name, at, text);
    longjmp(d->failed, 1);
}

/* libjpeg warns and continues with grey pixels if data are missing; here that is a failure. Other
 * warnings do not affect pixels. */
static void handle_warning(j_common_ptr common, int level) {
    if (level >= 0) return;
    switch (common->err->msg_code) {
    case JWRN_JPEG_EOF:
    case JWRN_HIT_MARKER:
    case JWRN_HUFF_BAD_CODE:
    case JWRN_ARITH_BAD_CODE:
    case JWRN_MUST_RESYNC: fail_decoder(common);
    }
}

static void ignore_output(j_common_ptr common) { (void)common; }

static void limit_scans(j_common_ptr common) {
    decoder *d = common->client_data;
    if (d->info.input_scan_number <= MAX_SCANS) return;
    d->status =
        gd_fail(GD_E_UNSUPPORTED, "%s: is a JPEG of more than %d scans, which is not supported",
                d->name, MAX_SCANS);
    longjmp(d->failed, 1);
}

/* Converts Adobe's CMYK, which is stored inverted, to RGB in place. */
static void cmyk_to_rgb(gd_bitmap *image) {
    const size_t count = (size_t)image->width * (size_t)image->height;
    for (size_t i = 0; i < count; i++) {
        const uint8_t *p = image->pixels + 4 * i;
        const unsigned white = p[3];
        uint8_t rgb[3];
        for (int k = 0; k < 3; k++) {
            const unsigned t = (255u - p[k]) * white + 128;
            rgb[k] = (uint8_t)(white - ((t + (t >> 8)) >> 8));
        }
        memcpy(image->pixels + 3 * i, rgb, 3);
    }
    image->channels = 3;
}

static gd_status choose_colours(decoder *d, const gd_bitmap_options *o) {
    struct jpeg_decompress_struct *info = &d->info;
    switch (info->jpeg_color_space) {
    case JCS_GRAYSCALE: info->out_color_space = JCS_GRAYSCALE; return GD_OK;
    case JCS_YCbCr:
        info->out_color_space = o->channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
        return GD_OK;
    case JCS_RGB: info->out_color_space = JCS_RGB; return GD_OK;
    case JCS_CMYK:
    case JCS_YCCK: info->out_color_space = JCS_CMYK; return GD_OK;
    default:
        return gd_fail(GD_E_UNSUPPORTED,
                       "%s: is a JPEG with %d components of an unknown colour space", d->name,
                       info->num_components);
    }
}

/* Chooses the smallest scale that is not below the size of the result. libjpeg-turbo is fast for
 * powers of two only. */
static void choose_scale(struct jpeg_decompress_struct *info, const gd_bitmap_options *o) {
    info->scale_num = info->scale_denom = 1;
    if (o->width <= 0 || o->height <= 0) return;
    for (unsigned by = 8; by > 1; by /= 2)
        if (info->image_width / by >= (unsigned)o->width &&
            info->image_height / by >= (unsigned)o->height) {
            info->scale_denom = by;
            return;
        }
}

static gd_status decode_pixels(decoder *d, gd_bitmap *image, const gd_bitmap_options *o) {
    struct jpeg_decompress_struct *info = &d->info;
    jpeg_create_decompress(info);
    info->client_data = d;
    d->progress.progress_monitor = limit_scans;
    info->progress = &d->progress;
    jpeg_mem_src(info, d->data, d->bytes);
    jpeg_read_header(info, TRUE);
    GD_TRY(choose_colours(d, o));
    choose_scale(info, o);
    /* libjpeg would allocate memory for the full size: gd_bitmap_new() fails here instead */
    if ((uint64_t)info->image_width * info->image_height > GD_BITMAP_MAX_PIXELS)
        return gd_bitmap_new(image, d->name, "JPEG", info->image_width, info->image_height, 1);
    jpeg_start_decompress(info);
    GD_TRY(gd_bitmap_new(image, d->name, "JPEG", info->output_width, info->output_height,
                         info->output_components));
    const size_t row = (size_t)image->width * (size_t)image->channels;
    while (info->output_scanline < info->output_height) {
        JSAMPROW rows[8];
        const unsigned left = info->output_height - info->output_scanline, n = left < 8 ? left : 8;
        for (unsigned i = 0; i < n; i++)
            rows[i] = image->pixels + (info->output_scanline + i) * row;
        jpeg_read_scanlines(info, rows, n);
    }
    jpeg_finish_decompress(info);
    if (info->out_color_space == JCS_CMYK) cmyk_to_rgb(image);
    return GD_OK;
}

gd_status gd_jpeg_decode(gd_bitmap *image, const char *name, const uint8_t *data, size_t bytes,
                         const gd_bitmap_options *o) {
    decoder *d = gd_calloc(1, sizeof *d); /* on the heap, since longjmp may lose local variables */
    if (!d) return gd_fail(GD_E_MEMORY, "%s: no memory to decode it", name);
    d->name = name;
    d->data = data;
    d->bytes = bytes;
    d->info.err = jpeg_std_error(&d->errors);
    d->info.client_data = d;
    d->errors.error_exit = fail_decoder;
    d->errors.emit_message = handle_warning;
    d->errors.output_message = ignore_output;
    if (setjmp(d->failed) == 0) d->status = decode_pixels(d, image, o);
    const gd_status status = d->status;
    jpeg_destroy_decompress(&d->info);
    gd_free(d);
    return status;
}

/* --- encoding --------------------------------------------------------------------------------- */

enum { QUALITY = 95 };

typedef struct encoder {
    struct jpeg_compress_struct info;
    struct jpeg_error_mgr errors;
    jmp_buf failed;
    unsigned char *out; /* from malloc, by libjpeg */
    unsigned long bytes;
    char text[JMSG_LENGTH_MAX];
} encoder;

static void fail_encoder(j_common_ptr common) {
    encoder *e = common->client_data;
    common->err->format_message(common, e->text);
    longjmp(e->failed, 1);
}

static void encode_pixels(encoder *e, int width, int height, int channels, const uint8_t *pixels) {
    struct jpeg_compress_struct *info = &e->info;
    jpeg_create_compress(info);
    info->client_data = e;
    jpeg_mem_dest(info, &e->out, &e->bytes);
    info->image_width = (JDIMENSION)width;
    info->image_height = (JDIMENSION)height;
    info->input_components = channels;
    info->in_color_space = channels == 3 ? JCS_RGB : JCS_GRAYSCALE;
    jpeg_set_defaults(info);
    jpeg_set_quality(info, QUALITY, TRUE);
    jpeg_start_compress(info, TRUE);
    while (info->next_scanline < info->image_height) {
        JSAMPROW row = (JSAMPROW)pixels + (size_t)info->next_scanline * (size_t)(width * channels);
        jpeg_write_scanlines(info, &row, 1);
    }
    jpeg_finish_compress(info);
}

gd_status gd_bitmap_encode_jpeg(const char *name, int width, int height, int channels,
                                const uint8_t *pixels, uint8_t **data, size_t *bytes) {
    *data = NULL;
    if (channels != 1 && channels != 3)
        return gd_fail(GD_E_ARGUMENT, "%s: a JPEG has 1 or 3 channels, not %d", name, channels);
    encoder *e = gd_calloc(1, sizeof *e);
    if (!e) return gd_fail(GD_E_MEMORY, "%s: no memory to encode it", name);
    e->info.err = jpeg_std_error(&e->errors);
    e->info.client_data = e;
    e->errors.error_exit = fail_encoder;
    e->errors.output_message = ignore_output;
    gd_status status = GD_OK;
    if (setjmp(e->failed) == 0) encode_pixels(e, width, height, channels, pixels);
    else status = gd_fail(GD_E_ARGUMENT, "%s: cannot be a JPEG: %s", name, e->text);
    if (status == GD_OK && (*data = gd_malloc(e->bytes))) memcpy(*data, e->out, *bytes = e->bytes);
    if (status == GD_OK && !*data)
        status = gd_fail(GD_E_MEMORY, "%s: no memory to encode it", name);
    jpeg_destroy_compress(&e->info);
    free(e->out);
    gd_free(e);
    return status;
}

#else

gd_status gd_bitmap_encode_jpeg(const char *name, int width, int height, int channels,
                                const uint8_t *pixels, uint8_t **data, size_t *bytes) {
    (void)width, (void)height, (void)channels, (void)pixels, (void)bytes;
    *data = NULL;
    return gd_fail(
        GD_E_UNSUPPORTED,
        "%s: cannot be a JPEG, because this library was built without libjpeg: install "
        "libjpeg-dev (Debian, Ubuntu) or libjpeg-turbo-devel (Fedora) and build it again",
        name);
}

gd_status gd_jpeg_decode(gd_bitmap *image, const char *name, const uint8_t *data, size_t bytes,
                         const gd_bitmap_options *o) {
    (void)image, (void)data, (void)bytes, (void)o;
    return gd_fail(
        GD_E_UNSUPPORTED,
        "%s: is a JPEG, and this library was built without libjpeg: install libjpeg-dev (Debian, "
        "Ubuntu) or libjpeg-turbo-devel (Fedora) and build it again",
        name);
}

#endif
