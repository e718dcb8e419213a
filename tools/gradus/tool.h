/* tool.h - functions that the commands of the gradus tool share. */
#ifndef GRADUS_TOOLS_GRADUS_TOOL_H
#define GRADUS_TOOLS_GRADUS_TOOL_H

#include <stdio.h>

#include "args.h"
#include "gradus/extend.h"
#include "gradus/gradus.h"

/* Messages for people name no line of this program. */
#undef GD_HERE
#define GD_HERE ((const char *)0)

extern const command train_command, eval_command, predict_command, demo_command, summary_command,
    ops_command, list_command, info_command, time_command, test_command, convert_mnist_command,
    convert_images_command, compute_mean_command, draw_command, upgrade_net_command,
    upgrade_solver_command, extract_command;

/* --- common options (main.c) ------------------------------------------------------------------ */

typedef struct settings {
    const char *device, *gpu;
    int64_t seed, threads;
    bool json, quiet;
} settings;
extern settings common;
extern const char *program; /* argv[0]: "gradus", "build/bin/gradus" */

/* Prints the recorded failure to stderr, with --json also as JSON to stdout. Returns FAILED. */
int failed(void);

/* The same for a failure that the command finds itself. */
int fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Prints a line to stderr, unless --quiet. */
void note(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The bytes of the UTF-8 character that begins here; 0: none does. */
size_t utf8_length(const char *text);
/* Prints a text that may contain bytes of a file: what would control a terminal, or is no character,
 * as \x1b. */
void print_safely(FILE *out, const char *text);
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

/* Data that "KIND:PATH", "KIND:PATH,option=value" or "KIND" names. A path or a value with a comma is
 * written in single quotes: csv:'a,b.csv',target=y. */
typedef struct data {
    gd_dataset *train, *test; /* test is NULL if there is none */
    gd_tensors sample;        /* the first of train, for its shapes */
    bool classes;             /* the target is a class */
    bool text;                /* inputs and targets are sequences of classes */
    int64_t n_classes;        /* 0: unknown */
} data;

typedef struct data_options {
    const char *spec, *validation; /* --data, --validation; validation NULL: see open_data */
    double split;
    const char *augment, *transform; /* of training samples; of all */
    uint64_t seed;
} data_options;

/* Opens data for training. The test data are `validation`, or else the test part of the data, or
 * else the fraction `split` of its samples. Tables of test data are converted as that for training.
 * A failure is printed: an exit code. */
int open_data(const data_options *options, data *out);
/* Opens one dataset: its test part, if it has one. A table is converted by `layout`, if that is not
 * NULL. NULL: *code is the exit code. */
gd_dataset *open_test_data(const char *spec, const char *layout, int *code);
/* Applies "normalize mean=0.1 std=0.3, flip" to the samples. */
gd_dataset *apply_transforms(gd_dataset *dataset, const char *text);
/* How the rows of a table become samples, to be freed with free(); NULL: it is no table. */
char *layout_of(gd_dataset *dataset);
/* Whether samples are sequences of classes, with a class for each position as the target. */
bool is_text(gd_tensors sample);

/* --- what a net is trained for (task.c) ------------------------------------------------------- */

/* Sets loss and metrics for samples; NULL: those that fit the target. Returns the name of the loss
 * for the metadata. */
const char *set_task(gd_compile_options *compile, gd_tensors sample, bool classes, const char *loss,
                     const char *metrics);

/* --- models (model.c, metadata.c) ------------------------------------------------------------- */

/* The metadata that a saved model has in its file. */
typedef struct model_info {
    char model[256], transform[512], loss[128];
    char **classes; /* names; NULL: unknown */
    int64_t n_classes;
    int64_t channels, height, width; /* of images; 0: its inputs are not images */
    double background;               /* mean of the border of training images; NaN: unknown */
    int64_t length;                  /* of a text; 0: its inputs are not texts */
    char *layout;                    /* how rows of a table become inputs; NULL: they are no rows */
} model_info;

/* Reads the metadata of a file. */
void read_model_info(const char *path, model_info *a);
/* Fills in the metadata that depend on the data: classes, transform, loss, size of images, ... */
void describe_data(model_info *a, const data *d, const char *transform, const char *loss);
void free_model_info(model_info *a);
/* Saves .onnx with metadata, or .safetensors with the weights only. The last `targets` tensors of
 * the sample are no inputs. */
gd_status save_model(const char *path, gd_module *net, gd_tensors sample, int64_t targets,
                     const model_info *a);

/* Creates or loads a net: "lenet", "resnet20 classes=10", "FILE.onnx". Options that are not given
 * follow from the data; NULL: none. A net of a file with another number of classes gets a new last
 * layer. NULL: the failure is printed. */
gd_module *make_model(const char *spec, const data *d, model_info *a);
/* Creates the parameters of a net for such a sample, which ends with the targets. In eval mode,
 * because a batch norm cannot compute statistics of one sample of one pixel. */
gd_status build_net(gd_module *net, gd_tensors sample);
/* Loads FILE.onnx. */
gd_module *load_model(const char *path, model_info *a);
/* The name of class i: "cat", or "class 7". */
const char *class_name(const model_info *a, int64_t i, char *text, size_t size);
/* Renumbers the classes of a dataset as in the model. NULL: the model lacks one; printed. */
gd_dataset *match_classes(gd_dataset *dataset, const model_info *a, const char *path);
bool ends_with(const char *text, const char *end);

/* Parses "1,3,224,224" (inspect.c). */
bool read_sizes(const char *text, gd_shape *dims);
/* The usual input of a net of the zoo, or that of a saved model (inspect.c). */
gd_tensor *usual_input(const char *model, const model_info *a);

/* --- Caffe (train_caffe.c) -------------------------------------------------------------------- */

typedef struct caffe_train_options {
    const char *solver, *weights, *snapshot, *checkpoints, *dummy, *stage;
    const char *sigint_effect, *sighup_effect;
    int64_t iterations, level, workers;
    bool resume, bar, eager;
} caffe_train_options;
/* Trains by a solver. */
int train_caffe(const caffe_train_options *o);
/* A receiver of lines that prints none. */
void ignore_line(const char *line, void *user);
/* "a,b" as names with spaces between them; NULL for NULL. */
const char *stage_names(const char *text, char *names, size_t size);

/* --- predictions (predict_*.c) ---------------------------------------------------------------- */

typedef struct predict_options {
    int64_t top;
    const char *invert, *text;
    int64_t length;
    double temperature;
} predict_options;

/* Print the predictions for a file; return an exit code. */
int predict_image(gd_module *net, const model_info *a, const char *path, const predict_options *o,
                  bool several);
int predict_table(gd_module *net, const model_info *a, const char *path, const predict_options *o,
                  bool several);
/* Images with a net of Caffe. */
typedef struct caffe_predict_options {
    const char *model, *weights, *mean, *mean_values, *classes, *output;
    double scale;
    int64_t top;
} caffe_predict_options;
int predict_caffe(const caffe_predict_options *o, int count, const char **images);
/* Continues a text. */
int predict_text(gd_module *net, const model_info *a, const predict_options *o);

/* --- resuming (resume.c) ---------------------------------------------------------------------- */

/* Settings that the result of a run depends on. Checkpoints keep them, and a run is not resumed with
 * others. */
void add_setting(const char *name, const char *value);
void add_setting_number(const char *name, double value);
/* A setting that may change; a line says with what the run continues. */
void add_open_setting(const char *name, const char *value, const char *said);
/* A setting of which a checkpoint has its own value, with which the run continues. */
void add_kept_setting(const char *name, const char *value, const char *kept);
/* The samples themselves: data may have moved, or changed in place. */
void add_data_setting(const data *d);
/* Keeps the settings in the checkpoints. */
gd_callback *settings_callback(void);
/* Whether the run with that callback has had a batch: a run that is resumed may have ended. */
bool has_trained(void);
/* Compares them with those of the newest checkpoint; an exit code. */
int check_settings(const char *folder);

/* --- kernels (kernels.c) ---------------------------------------------------------------------- */

/* Prints how each op runs on a kind of device; NULL: on all kinds that have kernels. */
int list_kernels(const char *kind);
/* Prints all kernels of one op, in the order in which they are tried. */
int list_kernels_of(const gd_op *op, const char *kind);

/* --- images in a terminal (show.c) ------------------------------------------------------------ */

/* Prints images (1, H, W) or (H, W) of floats in [0, 1] side by side in block characters, two rows
 * of pixels in one line, with a caption below each. */
void show_images(gd_tensor *const *images, const char *const *captions, int count);
/* Prints a confusion matrix. Classes without a name have their number. */
void show_confusion(gd_tensor *matrix, char *const *names, int64_t n_names);
/* The elements of a confusion matrix, row-major; to be freed with free(). */
double *confusion_values(gd_tensor *matrix, int *classes);

#endif
