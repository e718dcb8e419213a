/* state.h - saving and loading objects with state: modules, optimizers, schedules, loss scales,
 * sessions, loaders, metrics, the random generator, tensors.
 *
 *     gd_save_state("digits.safetensors", gd_part("net", net), gd_part("adam", adam));
 *     gd_load_state("digits.safetensors", gd_part("net", net), gd_part("adam", adam));
 *
 * Files are safetensors files, as PyTorch and Hugging Face programs read and write them. A tensor
 * is stored as PART.NAME ("net.fc1.weight"); gd_part("", net) has no prefix, so that the file has
 * the names of a PyTorch state dict. A part that is a tensor is stored under the name of the part.
 * Small values (step counts, the generator's seed) are strings in the file's metadata. Tied tensors
 * are written once and can be loaded by any of their names.
 *
 * Loads also read files of other programs, whose first bytes say what they are: those of PyTorch's
 * torch.save and of TorchScript, and NumPy's .npz. Names of nested dictionaries are joined by dots
 * ("model_state.fc1.weight"). Nothing in a file is executed.
 *
 * A load that fails changes nothing, except if the file becomes shorter or unreadable, or a device
 * fails, while tensors are written; the message then says so. Values are copied into the existing tensors: handles stay the
 * same, and floats are converted to the dtype of each tensor. A file may hold more parts than are
 * loaded: gd_load_state(path, gd_part("net", net)) reads only the weights.
 *
 * Saving replaces the old file atomically, after the new one is complete on the disk: a killed
 * process or a full disk leaves the old file. Files may be larger than the free memory: tensors are
 * written and read one by one.
 */
#ifndef GRADUS_STATE_H
#define GRADUS_STATE_H

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC system_header /* as in options.h */
#endif

#include "gradus/options.h"
#include "gradus/scope.h"

#ifdef __cplusplus
extern "C" {
#endif

/* --- parts ------------------------------------------------------------------------------------ */

/* An object and the prefix of its names in a file; "" or NULL: no prefix. */
typedef struct gd_state_part {
    const char *name;
    void *object;
} gd_state_part;

typedef struct gd_state_parts {
    const gd_state_part *at;
    int64_t count;
} gd_state_parts;

/* gd_part("net", net) is one part; gd_parts(gd_part(...), gd_part(...)) is a list, for the calls
 * with options. */
#ifdef __cplusplus
}
inline gd_state_part gd_part(const char *name, void *object) { return gd_state_part{name, object}; }
template <int count> struct gd_parts_of_ {
    gd_state_part at[count];
    operator gd_state_parts() const { return gd_state_parts{at, count}; }
};
template <typename... Parts> inline gd_parts_of_<sizeof...(Parts)> gd_parts(Parts... parts) {
    return gd_parts_of_<sizeof...(Parts)>{{parts...}};
}
extern "C" {
#else
#define gd_part(name, object) \
    (__extension__(gd_state_part){name, GD_FOR_OBJECT_(object, (void *)(object))})
#define gd_parts(...)                                                       \
    (__extension__(gd_state_parts){(const gd_state_part[]){__VA_ARGS__},    \
                                   sizeof((gd_state_part[]){__VA_ARGS__}) / \
                                       sizeof(gd_state_part)})
#endif

/* --- saving ----------------------------------------------------------------------------------- */

typedef struct gd_save_state_options {
    gd_options_are_given_by_name by_name_ GD_DEFAULT_({});
    /* For a path that ends in ".index.json": the most bytes of tensors in one shard; a larger
     * tensor has its own shard. 0: 5 GB, as in Hugging Face. */
    int64_t shard_bytes GD_DEFAULT_(0);
    /* Writes a checksum into the metadata of each file. Loading reads such a file twice and fails
     * if the checksum does not match. Other programs see an ordinary string. */
    bool checksum GD_DEFAULT_(false);
} GD_GIVEN_BY_NAME_ gd_save_state_options;
#define GD_SAVE_STATE_OPTIONS_(...) \
    GD_OPTIONS_(gd_save_state_options, (.shard_bytes = 0, .checksum = false), __VA_ARGS__)

/* A path that ends in ".index.json" is an index of shards, as Hugging Face writes them:
 *
 *     gd_save_state_with("model.safetensors.index.json", gd_parts(gd_part("", net)),
 *                        .shard_bytes = 1 << 30);
 *
 * writes model-00001-of-00003.safetensors and so on, then the index. The shards of an old index are
 * removed once the new index is in place; until then the new shards have other names. Load with the
 * same path. */
#define gd_save_state(path, ...) gd_save_state_at(GD_HERE, path, gd_parts(__VA_ARGS__), NULL)
#define gd_save_state_with(path, parts, ...) \
    GD_WITH_OPTIONS_(gd_save_state_at(GD_HERE, path, parts, GD_SAVE_STATE_OPTIONS_(__VA_ARGS__)))
GD_API gd_status gd_save_state_at(const char *site, const char *path, gd_state_parts parts,
                                  const gd_save_state_options *options);

/* --- loading ---------------------------------------------------------------------------------- */

/* The result of a partial load. */
typedef struct gd_load_report {
    int64_t loaded;     /* tensors and values that were loaded */
    int64_t missing;    /* tensors and values of the objects that are not in the file */
    int64_t unexpected; /* tensors and values of the loaded parts that no object has */
    int64_t unfit;      /* of another shape, or of a dtype that cannot be converted */
    char text[1024];    /* a description with some of the names; "": everything fits */
} gd_load_report;

typedef struct gd_load_state_options {
    gd_options_are_given_by_name by_name_ GD_DEFAULT_({});
    /* Loads what fits and reports the rest here. NULL: everything must fit. */
    gd_load_report *partial GD_DEFAULT_(nullptr);
    /* Loads only names of the file with this prefix ("model."), which is removed. */
    const char *prefix GD_DEFAULT_(nullptr);
    /* Maps a name of the file (without the prefix) to a name of the objects, valid until the next
     * call; NULL skips it. */
    const char *(*rename)(const char *name, void *user)GD_DEFAULT_(nullptr);
    void *user GD_DEFAULT_(nullptr);
    /* The same as text: "encoder.*=*, fc.*=head.*, decoder.*=". The first rule that matches a name
     * (without the prefix) replaces it; * stands for the same text on both sides. A rule without a
     * right side skips the name; names that no rule matches stay. */
    const char *names GD_DEFAULT_(nullptr);
} GD_GIVEN_BY_NAME_ gd_load_state_options;
#define GD_LOAD_STATE_OPTIONS_(...)                                                             \
    GD_OPTIONS_(gd_load_state_options,                                                          \
                (.partial = NULL, .prefix = NULL, .rename = NULL, .user = NULL, .names = NULL), \
                __VA_ARGS__)

#define gd_load_state(path, ...) gd_load_state_at(GD_HERE, path, gd_parts(__VA_ARGS__), NULL)
#define gd_load_state_with(path, parts, ...) \
    GD_WITH_OPTIONS_(gd_load_state_at(GD_HERE, path, parts, GD_LOAD_STATE_OPTIONS_(__VA_ARGS__)))
GD_API gd_status gd_load_state_at(const char *site, const char *path, gd_state_parts parts,
                                  const gd_load_state_options *options);

/* --- without a file --------------------------------------------------------------------------- */

/* The state of an object or of a file, in the current scope. The state of an object holds the
 * object's own tensors, which change with it; the state of a file holds new tensors on the default
 * device. NULL, with the failure recorded, if the object has no state or the file cannot be read.
 * */
#ifdef __cplusplus
#define gd_state_of(object) gd_state_of_at(GD_HERE, object)
#else
#define gd_state_of(object) gd_state_of_at(GD_HERE, GD_FOR_OBJECT_(object, (void *)(object)))
#endif
GD_API gd_state *gd_state_of_at(const char *site, void *object);
/* The state of several objects, with the names of their parts before those of the state; tensors
 * have the names of their parts: a state that the program puts together for gd_set_state. */
GD_API gd_state *gd_state_of_parts_at(const char *site, gd_state_parts parts);
#define gd_state_of_parts(...) gd_state_of_parts_at(GD_HERE, gd_parts(__VA_ARGS__))
#define gd_read_state(...)     gd_read_state_at(GD_HERE, __VA_ARGS__)
GD_API gd_state *gd_read_state_at(const char *site, const char *path);

/* Copies a state into an object, as gd_load_state does. A failure changes nothing. */
#ifdef __cplusplus
#define gd_set_state(object, state) gd_set_state_at(GD_HERE, object, state)
#else
#define gd_set_state(object, state) \
    gd_set_state_at(GD_HERE, GD_FOR_OBJECT_(object, (void *)(object)), state)
#endif
GD_API gd_status gd_set_state_at(const char *site, void *object, const gd_state *state);

/* The tensors, in the order of the object. They live as long as the state; gd_retain keeps one
 * longer. NULL beyond the last, and for an unknown name. */
GD_API int64_t gd_state_count(const gd_state *state);
GD_API const char *gd_state_name(const gd_state *state, int64_t i);
GD_API gd_tensor *gd_state_tensor_at(const gd_state *state, int64_t i);
GD_API gd_tensor *gd_state_find(const gd_state *state, const char *name);

/* The small values, as text. */
GD_API int64_t gd_state_value_count(const gd_state *state);
GD_API const char *gd_state_value_name(const gd_state *state, int64_t i);
GD_API const char *gd_state_value(const gd_state *state, const char *name);

#ifdef __cplusplus
}
#endif
#endif
