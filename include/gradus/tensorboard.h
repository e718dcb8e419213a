/* tensorboard.h - writes logs for TensorBoard (tensorboard --logdir FOLDER) from a program's own
 * loop.
 *
 *     gd_board *board = gd_board_new("runs/1");
 *     for (int step = 0; step < 1000; step++) {
 *         GD_SCOPE;
 *         ...
 *         gd_board_scalar(board, "loss/train", gd_item(loss), step);
 *         if (step % 100 == 0)
 *             gd_board_image(board, "samples", gd_make_grid(samples), step);
 *     }
 *     gd_board_text(board, "notes", "The first run with **dropout**.", 0);
 *
 * Values with one tag are one curve, or one row of images; a slash in a tag begins a group. gd_fit
 * has the callback gd_tensorboard, which writes the same files.
 *
 * gd_board_new creates a new file in the folder; TensorBoard shows the files of a folder as one
 * run. Each event is complete in the file when its call returns. A board belongs to the current
 * scope, which closes the file, and is used by one thread at a time.
 */
#ifndef GRADUS_TENSORBOARD_H
#define GRADUS_TENSORBOARD_H

#include "gradus/scope.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Creates an event file in a folder, and the folder if necessary. NULL: the failure is recorded. */
#define gd_board_new(folder) gd_board_new_at(GD_HERE, folder)
GD_API gd_board *gd_board_new_at(const char *site, const char *folder);

/* A number; TensorBoard keeps it as f32. NaN and infinities are allowed. */
#define gd_board_scalar(board, tag, value, step) \
    gd_board_scalar_at(GD_HERE, board, tag, value, step)
GD_API gd_status gd_board_scalar_at(const char *site, gd_board *board, const char *tag,
                                    double value, int64_t step);

/* An image (H, W) or (C, H, W), on any device, with the values that gd_save_png takes: integers from
 * 0 to 255, floats from 0 to 1. gd_make_grid (image.h) makes one image of several. */
#define gd_board_image(board, tag, image, step) gd_board_image_at(GD_HERE, board, tag, image, step)
GD_API gd_status gd_board_image_at(const char *site, gd_board *board, const char *tag,
                                   const gd_tensor *image, int64_t step);

/* A text in UTF-8; TensorBoard shows it as Markdown. */
#define gd_board_text(board, tag, text, step) gd_board_text_at(GD_HERE, board, tag, text, step)
GD_API gd_status gd_board_text_at(const char *site, gd_board *board, const char *tag,
                                  const char *text, int64_t step);

/* The histogram of the finite elements of a tensor; nothing if there are none. */
#define gd_board_histogram(board, tag, tensor, step) \
    gd_board_histogram_at(GD_HERE, board, tag, tensor, step)
GD_API gd_status gd_board_histogram_at(const char *site, gd_board *board, const char *tag,
                                       gd_tensor *tensor, int64_t step);

#ifdef __cplusplus
}
#endif
#endif
