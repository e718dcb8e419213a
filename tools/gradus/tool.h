/* tool.h - what the commands of the tool share. */
#ifndef GRADUS_TOOL_H
#define GRADUS_TOOL_H

#include <stdio.h>

#include "args.h"
#include "gradus/gradus.h"

extern const command train_command, eval_command, predict_command, demo_command, summary_command,
    ops_command, list_command, info_command;

/* --- common options (main.c) ------------------------------------------------------------------ */

typedef struct settings {
    const char *device;
    int64_t seed, threads;
    bool json, quiet;
} settings;
extern settings common;
extern const char *program; /* as it was called: "gradus", "build/bin/gradus" */

/* Says the recorded failure on stderr (as JSON on stdout with --json), and returns FAILED. */
int failed(void);

/* Text that is wrapped at `width` columns; later lines are indented by `indent`. Ends the line. */
void print_wrapped(const char *text, int indent, int width);

/* --- JSON (json.c) ---------------------------------------------------------------------------- */

/* Writes values one after the other; commas and quotes are its business. */
void json_begin(const char *key); /* { ; key NULL: not in an object */
void json_end(void);
void json_begin_list(const char *key); /* [ */
void json_end_list(void);
void json_text(const char *key, const char *value); /* NULL: null */
void json_number(const char *key, double value);    /* null where it is not finite */
void json_integer(const char *key, int64_t value);
void json_bool(const char *key, bool value);
void json_line(void); /* the end of a document */

/* --- data (data.c) ---------------------------------------------------------------------------- */

/* "KIND:PLACE", "KIND:PLACE,option=value", "KIND" */
typedef struct data {
    gd_dataset *train, *test; /* test NULL: there is none */
    gd_tensors sample;        /* of train: its shapes */
    bool classes;             /* the target is a class */
    int64_t n_classes;        /* 0: not known */
} data;

/* Opens data for training: with a test part of its own, with `validation` (or NULL), or with `split` of
 * its samples kept back. `transform` is applied to both, `augment` before it to training samples. */
gd_status open_data(const char *spec, const char *validation, double split, const char *augment,
                    const char *transform, uint64_t seed, data *out);
/* One dataset: its test part, where it has one. */
gd_dataset *open_test_data(const char *spec, const char *transform);
/* Applies "normalize mean=0.1 std=0.3, flip" to the samples. */
gd_dataset *apply_transforms(gd_dataset *dataset, const char *text);

/* --- models (model.c) ------------------------------------------------------------------------- */

/* What a saved model says of itself in its file's metadata. */
typedef struct about {
    char model[256], transform[512], loss[128];
    char **classes; /* names; NULL: not known */
    int64_t n_classes;
    int64_t channels, height, width; /* of images; 0: its inputs are none */
    double background;               /* mean of the border of its images; NaN: not known */
} about;

/* A net by its spec ("lenet", "resnet20 classes=10", "FILE.onnx"), for such data (NULL: none). */
gd_module *make_model(const char *spec, const data *d, about *a);
/* Loads FILE.onnx. */
gd_module *load_model(const char *path, about *a);
gd_status save_model(const char *path, gd_module *net, gd_tensors sample, int64_t targets,
                     const about *a);
void describe_data(about *a, const data *d, const char *transform, const char *loss);
void free_about(about *a);
bool ends_with(const char *text, const char *end);

/* --- kernels (kernels.c) ---------------------------------------------------------------------- */

/* Prints how each op runs on a kind of device; NULL: on all that have kernels. */
int list_kernels(const char *kind);

/* --- pictures in a terminal (show.c) ---------------------------------------------------------- */

/* An image (1, H, W) or (H, W) of floats in [0, 1], in block characters, two rows of pixels in one of
 * text; `beside`: lines of text to its right, or NULL. */
void show_images(gd_tensor *const *images, const char *const *captions, int count);
void show_confusion(gd_tensor *matrix, char *const *names);

#endif
