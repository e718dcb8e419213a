/* caffe.h - nets, solvers and weights in the files of Caffe.
 *
 *     gd_module *net = gd_caffe_net("deploy.prototxt", .weights = "plates.caffemodel");
 *     gd_tensor *prob = gd_module_forward(net, image);
 *     gd_caffe_save("copy.caffemodel", net);
 *
 * A net from text is a module like any other: it runs eagerly, in a jit and on any device, prints, is
 * trained by gd_fit, and is saved as ONNX. Its inputs are the fields `input` of the text, then the tops of
 * its data layers, in order; its outputs are the tops that no layer reads, in alphabetical order. Layers
 * have the names of the text and the semantics of Caffe; docs/caffe.md lists them with their differences.
 *
 * Nets of Caffe's older versions are upgraded while they are read. A message about a file begins with the
 * place in it: "net.prototxt:41:5: layer 'conv2' (Convolution): ...".
 */
#ifndef GRADUS_CAFFE_H
#define GRADUS_CAFFE_H

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC system_header /* as in options.h */
#endif

#include "gradus/module.h"
#include "gradus/train.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gd_caffe_net_options {
    gd_options_are_given_by_name by_name_ GD_DEFAULT_({});
    /* Files of weights, .caffemodel or .caffemodel.h5, with commas between them (gd_caffe_load);
     * NULL: parameters start as the fillers of the text say. */
    const char *weights GD_DEFAULT_(nullptr);
    /* Names of blobs, with spaces between them, that are the outputs: the net has only the layers that
     * these need. NULL: the outputs of the text. */
    const char *outputs GD_DEFAULT_(nullptr);
    bool train GD_DEFAULT_(false); /* the layers of the phase TRAIN; false: those of TEST */
    int level GD_DEFAULT_(0);      /* and of this level */
    const char *stages GD_DEFAULT_(nullptr); /* and of these stages, with spaces between them */
    /* Shapes of tops of data layers whose data need not be there: "data=3,227,227 label=1000", a
     * sample without the batch, or a number of classes. */
    const char *dummy GD_DEFAULT_(nullptr);
} GD_GIVEN_BY_NAME_ gd_caffe_net_options;
#define GD_CAFFE_NET_OPTIONS_(...)                                                             \
    GD_OPTIONS_(gd_caffe_net_options,                                                          \
                (.weights = NULL, .outputs = NULL, .train = false, .level = 0, .stages = NULL, \
                 .dummy = NULL),                                                               \
                __VA_ARGS__)

/* The net of a prototxt (or of a .caffemodel, which has a net, too), in the current scope. With .train the
 * module is in train mode, otherwise in eval mode. NULL: the failure is recorded. */
#define gd_caffe_net(path, ...) \
    GD_WITH_OPTIONS_(gd_caffe_net_at(GD_HERE, path, GD_CAFFE_NET_OPTIONS_(__VA_ARGS__)))
GD_API gd_module *gd_caffe_net_at(const char *site, const char *path,
                                  const gd_caffe_net_options *options);

/* What the text says about input or output number `index` of a net: its name, and its shape with the batch
 * of the text. False: there is none, or the module is not of gd_caffe_net. Clones have them, too. */
typedef struct gd_caffe_blob {
    const char *name;
    gd_shape shape;
} gd_caffe_blob;
GD_API bool gd_caffe_input(const gd_module *net, int index, gd_caffe_blob *blob);
GD_API bool gd_caffe_output(const gd_module *net, int index, gd_caffe_blob *blob);

/* A blob in a file of its own, as a mean image: f32, with the shape of the file, (1, C, H, W). */
#define gd_caffe_read_blob(path) gd_caffe_read_blob_at(GD_HERE, path)
GD_API gd_tensor *gd_caffe_read_blob_at(const char *site, const char *path);
#define gd_caffe_write_blob(path, tensor) gd_caffe_write_blob_at(GD_HERE, path, tensor)
GD_API gd_status gd_caffe_write_blob_at(const char *site, const char *path, gd_tensor *tensor);

/* Copies the weights of files, with commas between their paths, to the layers of the same names, as Caffe
 * does: layers that a file lacks keep their values, layers that only the file has are left out. A shape
 * that differs is a failure, after which nothing has changed; to train such a layer anew, give it another
 * name. `net` is a module of gd_caffe_net, or a gd_nn_net with such names. */
#define gd_caffe_load(paths, net) gd_caffe_load_at(GD_HERE, paths, net)
GD_API gd_status gd_caffe_load_at(const char *site, const char *paths, gd_module *net);

/* Writes the layers and weights of a net as a .caffemodel, or as .caffemodel.h5 if the path ends in .h5. An
 * existing file is replaced when the new one is complete. */
#define gd_caffe_save(path, net) gd_caffe_save_at(GD_HERE, path, net)
GD_API gd_status gd_caffe_save_at(const char *site, const char *path, gd_module *net);

/* Writes a module as a prototxt that Caffe, OpenCV and gd_caffe_net read: a net of gd_caffe_net, also with
 * replaced layers, or a module of the library's layers and ops that Caffe has; the examples give the shapes
 * of its inputs. The net is that of eval mode. From then on gd_caffe_save writes the blobs of its layers:
 *
 *     gd_caffe_save_net("net.prototxt", net, gd_zeros(gd_dims(1, 3, 224, 224)));
 *     gd_caffe_save("net.caffemodel", net);
 *
 * Without examples a net of gd_caffe_net has the shapes of its text. What Caffe has no layer for is
 * GD_E_UNSUPPORTED, with a message that names it. */
#define gd_caffe_save_net(path, net, ...) \
    gd_caffe_save_net_at(GD_HERE, path, net, gd_list(__VA_ARGS__))
GD_API gd_status gd_caffe_save_net_at(const char *site, const char *path, gd_module *net,
                                      gd_tensors inputs);

/* Arrays for a data layer that reads no files: samples and labels of a MemoryData layer, or a tensor for
 * each top of an Input layer. Each is (n, ...) with n a multiple of the batch of the text. They are held;
 * batches run on across their end. An option .arrays is a list of them that ends with a layer NULL:
 *
 *     gd_caffe_arrays arrays[] = {{"data", gd_list(images, classes)}, {NULL}};
 *     gd_history *h = gd_caffe_train("solver.prototxt", .arrays = arrays);
 */
typedef struct gd_caffe_arrays {
    const char *layer; /* its name, in any of the nets */
    gd_tensors arrays;
} gd_caffe_arrays;

/* --- training --------------------------------------------------------------------------------- */

typedef struct gd_caffe_train_options {
    gd_options_are_given_by_name by_name_ GD_DEFAULT_({});
    /* "cuda:0"; NULL: what solver_mode and device_id say, if there is such a device, else the default */
    const char *device GD_DEFAULT_(nullptr);
    /* Files of weights that the training starts from, with commas between them (gd_caffe_load); or a
     * .solverstate that it continues from. NULL: fillers, and `weights` of the solver */
    const char *weights GD_DEFAULT_(nullptr);
    const char *snapshot GD_DEFAULT_(nullptr);
    /* A folder for the library's own checkpoints, as often as snapshots (else every ten minutes). With
     * .resume the training continues from the newest one, if there is one, with the same bits as one
     * that was never interrupted. (Caffe's snapshots lack the place in the data and random numbers.) */
    const char *checkpoints GD_DEFAULT_(nullptr);
    bool resume GD_DEFAULT_(false);
    int64_t iterations GD_DEFAULT_(0); /* at most so many in this call; 0: up to max_iter */
    /* The level of the net to train, in place of that of train_state (0: that one), and further stages
     * of it, with spaces between them */
    int level GD_DEFAULT_(0);
    const char *stages GD_DEFAULT_(nullptr);
    /* Random data in place of data layers: "data=3,227,227 label=1000" */
    const char *dummy GD_DEFAULT_(nullptr);
    const gd_caffe_arrays *arrays GD_DEFAULT_(nullptr); /* data of the program; NULL: none */
    int workers GD_DEFAULT_(0);                         /* threads that load batches */
    /* Gets the lines of the log, each with glog's prefix, as Caffe's parsers read them. NULL: they go to
     * the library's log (gd_set_log) */
    void (*line)(const char *line, void *user) GD_DEFAULT_(nullptr);
    void *line_user GD_DEFAULT_(nullptr);
    gd_progress progress GD_DEFAULT_(GD_PROGRESS_NONE); /* of gd_fit, beside the lines */
    const gd_progress_receiver *progress_receiver GD_DEFAULT_(nullptr);
    bool interrupt GD_DEFAULT_(true); /* Ctrl-C ends the run after the iteration, with a snapshot */
    bool jit GD_DEFAULT_(true);       /* false: eagerly */
    gd_module **net GD_DEFAULT_(nullptr); /* receives the trained net, in the current scope */
} GD_GIVEN_BY_NAME_ gd_caffe_train_options;
#define GD_CAFFE_TRAIN_OPTIONS_(...)                                                          \
    GD_OPTIONS_(gd_caffe_train_options,                                                       \
                (.device = NULL, .weights = NULL, .snapshot = NULL, .checkpoints = NULL,      \
                 .resume = false, .iterations = 0, .level = 0, .stages = NULL, .dummy = NULL, \
                 .arrays = NULL, .workers = 0, .line = NULL, .line_user = NULL,               \
                 .progress = GD_PROGRESS_NONE, .progress_receiver = NULL, .interrupt = true,  \
                 .jit = true, .net = NULL),                                                   \
                __VA_ARGS__)

/* Trains as a solver.prototxt says, by gd_fit: its nets, data, tests, snapshots and log. Snapshots are those
 * of Caffe, which continues from them, as this does from Caffe's. The history has a row for each
 * test_interval: "loss" is its mean, "iteration" the iterations so far, "test_NAME" the outputs of the first
 * net to test, "test1_NAME" of the second. NULL: it has failed; the snapshots so far are there. */
#define gd_caffe_train(path, ...) \
    GD_WITH_OPTIONS_(gd_caffe_train_at(GD_HERE, path, GD_CAFFE_TRAIN_OPTIONS_(__VA_ARGS__)))
GD_API gd_history *gd_caffe_train_at(const char *site, const char *path,
                                     const gd_caffe_train_options *options);

/* --- testing ---------------------------------------------------------------------------------- */

typedef struct gd_caffe_test_options {
    gd_options_are_given_by_name by_name_ GD_DEFAULT_({});
    const char *weights GD_DEFAULT_(nullptr); /* as in gd_caffe_net */
    int64_t iterations GD_DEFAULT_(50);       /* batches */
    int level GD_DEFAULT_(0);
    const char *stages GD_DEFAULT_(nullptr);
    const char *dummy GD_DEFAULT_(nullptr);
    const gd_caffe_arrays *arrays GD_DEFAULT_(nullptr);              /* as in gd_caffe_train */
    int workers GD_DEFAULT_(0);                                      /* threads that load batches */
    void (*line)(const char *line, void *user) GD_DEFAULT_(nullptr); /* as in gd_caffe_train */
    void *line_user GD_DEFAULT_(nullptr);
} GD_GIVEN_BY_NAME_ gd_caffe_test_options;
#define GD_CAFFE_TEST_OPTIONS_(...)                                                            \
    GD_OPTIONS_(gd_caffe_test_options,                                                         \
                (.weights = NULL, .iterations = 50, .level = 0, .stages = NULL, .dummy = NULL, \
                 .arrays = NULL, .workers = 0, .line = NULL, .line_user = NULL),               \
                __VA_ARGS__)

/* Runs the net of the phase TEST on batches of its data. The history has one row: "loss", and the mean of
 * each output of one element. The lines of the log are those of `caffe test`. */
#define gd_caffe_test(path, ...) \
    GD_WITH_OPTIONS_(gd_caffe_test_at(GD_HERE, path, GD_CAFFE_TEST_OPTIONS_(__VA_ARGS__)))
GD_API gd_history *gd_caffe_test_at(const char *site, const char *path,
                                    const gd_caffe_test_options *options);

/* Each running gd_caffe_train writes a snapshot after its current iteration. Safe in a signal handler. */
GD_API void gd_caffe_request_snapshot(void);

/* --- pictures, features, new files -------------------------------------------------------------- */

typedef struct gd_caffe_draw_net_options {
    gd_options_are_given_by_name by_name_ GD_DEFAULT_({});
    bool train GD_DEFAULT_(false); /* these five as in gd_caffe_net */
    int level GD_DEFAULT_(0);
    const char *stages GD_DEFAULT_(nullptr);
    const char *dummy GD_DEFAULT_(nullptr);
    bool left_to_right GD_DEFAULT_(false);
} GD_GIVEN_BY_NAME_ gd_caffe_draw_net_options;
#define GD_CAFFE_DRAW_NET_OPTIONS_(...)                                                      \
    GD_OPTIONS_(                                                                             \
        gd_caffe_draw_net_options,                                                           \
        (.train = false, .level = 0, .stages = NULL, .dummy = NULL, .left_to_right = false), \
        __VA_ARGS__)

/* Draws the layers of a prototxt as gd_module_draw draws those of a module, with the names, types and
 * fields of the text. `file` ends in .svg or .dot. If the data of the net cannot be read, the picture has no
 * shapes, and the log says so. */
#define gd_caffe_draw_net(path, file, ...) \
    GD_WITH_OPTIONS_(                      \
        gd_caffe_draw_net_at(GD_HERE, path, file, GD_CAFFE_DRAW_NET_OPTIONS_(__VA_ARGS__)))
GD_API gd_status gd_caffe_draw_net_at(const char *site, const char *path, const char *file,
                                      const gd_caffe_draw_net_options *options);

typedef struct gd_caffe_extract_options {
    gd_options_are_given_by_name by_name_ GD_DEFAULT_({});
    const char *weights GD_DEFAULT_(nullptr); /* as in gd_caffe_net */
    int64_t iterations GD_DEFAULT_(1);        /* batches */
    int level GD_DEFAULT_(0);
    const char *stages GD_DEFAULT_(nullptr);
    const char *dummy GD_DEFAULT_(nullptr);
    int workers GD_DEFAULT_(0); /* threads that load batches */
} GD_GIVEN_BY_NAME_ gd_caffe_extract_options;
#define GD_CAFFE_EXTRACT_OPTIONS_(...)                                                        \
    GD_OPTIONS_(gd_caffe_extract_options,                                                     \
                (.weights = NULL, .iterations = 1, .level = 0, .stages = NULL, .dummy = NULL, \
                 .workers = 0),                                                               \
                __VA_ARGS__)

/* Runs the net of the phase TEST on batches of its data, and writes the values of blobs ("fc7 pool5", names
 * with spaces between them) to a .npz file (npy.h): an array for each blob, with all batches one after
 * the other. A blob that is one number has one for each batch. */
#define gd_caffe_extract(path, blobs, file, ...) \
    GD_WITH_OPTIONS_(                            \
        gd_caffe_extract_at(GD_HERE, path, blobs, file, GD_CAFFE_EXTRACT_OPTIONS_(__VA_ARGS__)))
GD_API gd_status gd_caffe_extract_at(const char *site, const char *path, const char *blobs,
                                     const char *file, const gd_caffe_extract_options *options);

typedef struct gd_caffe_upgrade_options {
    gd_options_are_given_by_name by_name_ GD_DEFAULT_({});
    bool solver GD_DEFAULT_(false); /* the file is a solver; false: a net */
} GD_GIVEN_BY_NAME_ gd_caffe_upgrade_options;
#define GD_CAFFE_UPGRADE_OPTIONS_(...) \
    GD_OPTIONS_(gd_caffe_upgrade_options, (.solver = false), __VA_ARGS__)

/* Writes a file of any version of Caffe with today's fields: as text if the new path ends in .prototxt, else
 * binary, a net as .caffemodel, a solver as .binaryproto. */
#define gd_caffe_upgrade(from, to, ...) \
    GD_WITH_OPTIONS_(gd_caffe_upgrade_at(GD_HERE, from, to, GD_CAFFE_UPGRADE_OPTIONS_(__VA_ARGS__)))
GD_API gd_status gd_caffe_upgrade_at(const char *site, const char *from, const char *to,
                                     const gd_caffe_upgrade_options *options);

/* --- databases of images ---------------------------------------------------------------------- */

/* These functions write an LMDB as Caffe's tools do, with the same keys and records (Datum), into a
 * folder that they create. They return the number of records; -1: the failure is recorded, and
 * records that were committed before it stay. They need liblmdb. */

typedef struct gd_caffe_convert_mnist_options {
    gd_options_are_given_by_name by_name_ GD_DEFAULT_({});
    bool test GD_DEFAULT_(false); /* the 10,000 test images; false: the 60,000 for training */
} GD_GIVEN_BY_NAME_ gd_caffe_convert_mnist_options;
#define GD_CAFFE_CONVERT_MNIST_OPTIONS_(...) \
    GD_OPTIONS_(gd_caffe_convert_mnist_options, (.test = false), __VA_ARGS__)

/* From the files of MNIST in a folder, gzipped or not. */
#define gd_caffe_convert_mnist(folder, database, ...)                     \
    GD_WITH_OPTIONS_(gd_caffe_convert_mnist_at(GD_HERE, folder, database, \
                                               GD_CAFFE_CONVERT_MNIST_OPTIONS_(__VA_ARGS__)))
GD_API int64_t gd_caffe_convert_mnist_at(const char *site, const char *folder, const char *database,
                                         const gd_caffe_convert_mnist_options *options);

typedef struct gd_caffe_convert_images_options {
    gd_options_are_given_by_name by_name_ GD_DEFAULT_({});
    const char *root GD_DEFAULT_(nullptr); /* text before each path: "images/"; NULL: none */
    int64_t height GD_DEFAULT_(0);         /* to which images are resized; 0: they are not */
    int64_t width GD_DEFAULT_(0);
    bool gray GD_DEFAULT_(false); /* one channel; false: BGR */
    bool shuffle GD_DEFAULT_(false);
    uint64_t seed GD_DEFAULT_(0);                 /* of the shuffled order */
    bool check_size GD_DEFAULT_(false);           /* fails if images have different sizes */
    bool encoded GD_DEFAULT_(false);              /* stores JPEG or PNG, not pixels */
    const char *encode_type GD_DEFAULT_(nullptr); /* "jpg" or "png"; NULL: that of the file */
} GD_GIVEN_BY_NAME_ gd_caffe_convert_images_options;
#define GD_CAFFE_CONVERT_IMAGES_OPTIONS_(...)                                            \
    GD_OPTIONS_(gd_caffe_convert_images_options,                                         \
                (.root = NULL, .height = 0, .width = 0, .gray = false, .shuffle = false, \
                 .seed = 0, .check_size = false, .encoded = false, .encode_type = NULL), \
                __VA_ARGS__)

/* From images that a text file lists, one in a line: the path, a space, a label that is an integer.
 * Images that cannot be read are left out, with a warning in the log. */
#define gd_caffe_convert_images(list, database, ...)                     \
    GD_WITH_OPTIONS_(gd_caffe_convert_images_at(GD_HERE, list, database, \
                                                GD_CAFFE_CONVERT_IMAGES_OPTIONS_(__VA_ARGS__)))
GD_API int64_t gd_caffe_convert_images_at(const char *site, const char *list, const char *database,
                                          const gd_caffe_convert_images_options *options);

/* The mean of the images of a database, f32 (1, C, H, W): gd_caffe_write_blob writes it as a
 * mean_file. */
#define gd_caffe_mean(database) gd_caffe_mean_at(GD_HERE, database)
GD_API gd_tensor *gd_caffe_mean_at(const char *site, const char *database);

#ifdef __cplusplus
}
#endif
#endif
