/* board.c - logs for TensorBoard from a loop of the program; see gradus/tensorboard.h. */
#include "gradus/tensorboard.h"

#include <string.h>

#include "core/alloc.h"
#include "core/freed.h"
#include "core/object.h"
#include "core/thread.h"
#include "gradus/autograd.h"
#include "io/image_pixels.h"
#include "train/checkpoint_files.h"
#include "train/tensorboard.h"

struct gd_board {
    gd_object object;
    gd_event_file *file;
};

static void destroy_board(gd_object *object) {
    gd_board *b = (gd_board *)object;
    gd_event_file_close(b->file);
    gd_object_free(object);
    gd_object_count(-1);
}
static const gd_class board_class = {.name = "board", .destroy = destroy_board};
GD_KNOWN_CLASS(board_class)

static gd_status make_board(const char *folder, gd_board **made) {
    if (!folder || !*folder)
        return gd_fail(GD_E_ARGUMENT, "the folder's name is %s", folder ? "empty" : "NULL");
    GD_TRY(gd_scope_reserve(1));
    gd_board *b = *made = gd_calloc(1, sizeof *b);
    if (!b) return gd_no_memory(NULL, "for a board");
    gd_object_init(&b->object, &board_class);
    gd_object_count(1);
    GD_TRY(gd_checkpoint_make_folder(folder));
    return gd_event_file_create(&b->file, folder);
}

gd_board *gd_board_new_at(const char *site, const char *folder) {
    gd_board *b = NULL;
    const gd_status status = make_board(folder, &b);
    if (status == GD_OK) {
        gd_scope_adopt(&b->object);
        return b;
    }
    gd_error_prefix("gd_board_new: ");
    if (b) gd_object_release(&b->object);
    gd_report(site, status);
    return NULL;
}

/* --- events ----------------------------------------------------------------------------------- */

/* Adds the value of an event: a number, an image, ... *data is freed after it has been written. */
typedef gd_status (*add_fn)(gd_pb_doc *event, const char *tag, const void *what, void **data);

/* Nothing is written after a failure of the program. */
static gd_status write_value(const char *site, const char *function, gd_board *b, const char *tag,
                             int64_t step, add_fn add, const void *what) {
    if (gd_failed()) return gd_error_status();
    GD_CALLED_FROM(site);
    gd_status status = !b     ? gd_fail(GD_E_ARGUMENT, "the board is NULL")
                       : !tag ? gd_fail(GD_E_ARGUMENT, "the tag is NULL")
                              : GD_OK;
    gd_pb_doc *event = status == GD_OK ? gd_event_new(step) : NULL;
    if (status == GD_OK && !event) status = GD_E_MEMORY;
    void *data = NULL;
    if (status == GD_OK) status = add(event, tag, what, &data);
    if (status == GD_OK) status = gd_event_file_write(b->file, event);
    else gd_pb_free(event);
    gd_free(data);
    if (status != GD_OK) gd_error_prefix("%s: ", function);
    return gd_report(site, status);
}

static gd_status add_scalar(gd_pb_doc *event, const char *tag, const void *what, void **data) {
    (void)data;
    gd_pb_put_float(gd_event_add_value(event, tag), "simple_value", *(const double *)what);
    return GD_OK;
}

gd_status gd_board_scalar_at(const char *site, gd_board *b, const char *tag, double value,
                             int64_t step) {
    GD_LIVE_AT(site, b);
    return write_value(site, "gd_board_scalar", b, tag, step, add_scalar, &value);
}

static gd_status add_image(gd_pb_doc *event, const char *tag, const void *what, void **data) {
    gd_bitmap image;
    uint8_t *file;
    size_t bytes;
    GD_TRY(gd_image_pixels(tag, what, &image));
    const gd_status status = gd_bitmap_encode_png(tag, image.width, image.height, image.channels,
                                                  image.pixels, &file, &bytes);
    if (status == GD_OK) {
        gd_pb *value = gd_pb_put_message(gd_event_add_value(event, tag), "image");
        gd_pb_put_int(value, "height", image.height);
        gd_pb_put_int(value, "width", image.width);
        gd_pb_put_int(value, "colorspace", image.channels); /* TensorBoard's numbers are these */
        gd_pb_put_bytes(value, "encoded_image_string", file, bytes);
    }
    *data = file;
    gd_bitmap_free(&image);
    return status;
}

gd_status gd_board_image_at(const char *site, gd_board *b, const char *tag, const gd_tensor *image,
                            int64_t step) {
    GD_LIVE_AT(site, b);
    return write_value(site, "gd_board_image", b, tag, step, add_image, image);
}

enum { DT_STRING = 7 };

static gd_status add_text(gd_pb_doc *event, const char *tag, const void *what, void **data) {
    (void)data;
    if (!what) return gd_fail(GD_E_ARGUMENT, "the text is NULL");
    gd_pb *value = gd_event_add_value(event, tag);
    gd_pb *tensor = gd_pb_put_message(value, "tensor");
    gd_pb_put_int(tensor, "dtype", DT_STRING);
    gd_pb *dim = gd_pb_put_message(gd_pb_put_message(tensor, "tensor_shape"), "dim");
    gd_pb_put_int(dim, "size", 1);
    gd_pb_put_string(tensor, "string_val", what);
    gd_pb *plugin = gd_pb_put_message(gd_pb_put_message(value, "metadata"), "plugin_data");
    gd_pb_put_string(plugin, "plugin_name", "text");
    return GD_OK;
}

gd_status gd_board_text_at(const char *site, gd_board *b, const char *tag, const char *text,
                           int64_t step) {
    GD_LIVE_AT(site, b);
    return write_value(site, "gd_board_text", b, tag, step, add_text, text);
}

static gd_status add_histogram(gd_pb_doc *event, const char *tag, const void *what, void **data) {
    (void)data;
    gd_tensor *t = (gd_tensor *)what;
    if (!t || t->kind != GD_VALUE)
        return gd_fail(t ? GD_E_STATE : GD_E_ARGUMENT, "%s: the tensor %s", tag,
                       t ? "has no value" : "is NULL");
    GD_NO_GRAD;
    gd_scope *scope = gd_scope_open();
    const gd_status status = gd_tensorboard_histogram(event, tag, t);
    gd_scope_close(&scope);
    return status;
}

gd_status gd_board_histogram_at(const char *site, gd_board *b, const char *tag, gd_tensor *tensor,
                                int64_t step) {
    GD_LIVE_AT(site, b);
    return write_value(site, "gd_board_histogram", b, tag, step, add_histogram, tensor);
}
