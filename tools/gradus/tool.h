/* tool.h - functions that the commands of the gradus tool share. */
#ifndef GRADUS_TOOLS_GRADUS_TOOL_H
#define GRADUS_TOOLS_GRADUS_TOOL_H

#include <stdio.h>

#include "args.h"
#include "gradus/extend.h"
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
extern const char *program; /* argv[0]: "gradus", "build/bin/gradus" */

/* Prints the recorded failure to stderr, with --json also as JSON to stdout. Returns FAILED. */
int failed(void);

/* Prints text wrapped at `width` columns and a newline; later lines are indented by `indent`. */
void print_wrapped(const char *text, int indent, int width);

/* --- JSON (json.c) ---------------------------------------------------------------------------- */

/* Prints a JSON document value by value; adds commas and escapes strings. */
void json_begin(const char *key); /* {; key NULL: it is not the value of a key */
void json_end(void);
void json_begin_list(const char *key); /* [ */
void json_end_list(void);
void json_text(const char *key, const char *value); /* NULL: null */
void json_number(const char *key, double value);    /* null if it is not finite */
void json_integer(const char *key, int64_t value);
void json_bool(const char *key, bool value);
void json_line(void); /* the end of a document */

/* --- data (data.c) ---------------------------------------------------------------------------- */

/* Data that "KIND:PATH", "KIND:PATH,option=value" or "KIND" names. */
typedef struct data {
    gd_dataset *train, *test; /* test is NULL if there is none */
    gd_tensors sample;        /* the first of train, for its shapes */
    bool classes;             /* the target is a class */
    int64_t n_classes;        /* 0: unknown */
} data;

/* Opens data for training. The test data are `validation`, or else the test part of the data, or
 * else the fraction `split` of its samples. `augment` is applied to training samples, then
 * `transform` to all. */
gd_status open_data(const char *spec, const char *validation, double split, const char *augment,
                    const char *transform, uint64_t seed, data *out);
/* Opens one dataset: its test part, if it has one. */
gd_dataset *open_test_data(const char *spec, const char *transform);
/* Applies "normalize mean=0.1 std=0.3, flip" to the samples. */
gd_dataset *apply_transforms(gd_dataset *dataset, const char *text);

/* --- models (model.c) ------------------------------------------------------------------------- */

/* The metadata that a saved model has in its file. */
typedef struct model_info {
    char model[256], transform[512], loss[128];
    char **classes; /* names; NULL: unknown */
    int64_t n_classes;
    int64_t channels, height, width; /* of images; 0: its inputs are not images */
    double background;               /* mean of the border of training images; NaN: unknown */
} model_info;

/* Creates or loads a net: "lenet", "resnet20 classes=10", "FILE.onnx". Options that are not given
 * follow from the data; NULL: none. */
gd_module *make_model(const char *spec, const data *d, model_info *a);
/* Loads FILE.onnx. */
gd_module *load_model(const char *path, model_info *a);
/* Saves .onnx with metadata, or .safetensors with the weights only. The last `targets` tensors of
 * the sample are no inputs. */
gd_status save_model(const char *path, gd_module *net, gd_tensors sample, int64_t targets,
                     const model_info *a);
/* Fills in the metadata that depend on the data: classes, transform, loss, size of images. */
void describe_data(model_info *a, const data *d, const char *transform, const char *loss);
void free_model_info(model_info *a);
bool ends_with(const char *text, const char *end);

/* --- kernels (kernels.c) ---------------------------------------------------------------------- */

/* Prints how each op runs on a kind of device; NULL: on all kinds that have kernels. */
int list_kernels(const char *kind);
/* Prints all kernels of one op, in the order in which they are tried. */
int list_kernels_of(const gd_op *op, const char *kind);

/* --- images in a terminal (show.c) ------------------------------------------------------------ */

/* Prints images (1, H, W) or (H, W) of floats in [0, 1] side by side in block characters, two rows
 * of pixels in one line, with a caption below each. */
void show_images(gd_tensor *const *images, const char *const *captions, int count);
/* Prints a confusion matrix; `names` of the classes may be NULL. */
void show_confusion(gd_tensor *matrix, char *const *names);

#endif
