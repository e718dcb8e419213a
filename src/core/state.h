/* state.h - the state of objects, which is saved and loaded: named tensors and small values.
 *
 * Every class whose objects have state (module, optimizer, schedule, generator, session) has two
 * functions, `save` and `load`. Saving, loading and checkpoints use only
 * these.
 *
 *     static gd_status save(gd_object *object, gd_state *state) {
 *         thing *t = (thing *)object;
 *         GD_TRY(gd_state_put_tensor(state, "weight", t->weight));
 *         GD_TRY(gd_state_put_integer(state, "steps", t->steps));
 *         return gd_state_put_object(state, "inner", t->inner);       // "inner.weight", ...
 *     }
 *     static gd_status load(gd_object *object, gd_loading *in) {
 *         thing *t = (thing *)object;
 *         GD_TRY(gd_loading_tensor(in, "weight", t->weight));
 *         GD_TRY(gd_loading_integer(in, "steps", &t->steps));
 *         return gd_loading_object(in, "inner", t->inner);
 *     }
 *     static const gd_state_rules rules = {save, load};
 *     static const gd_class thing_class = {.name = "thing", .destroy = destroy, .state = &rules};
 *
 * `load` only checks and queues. Nothing is written before all parts of the load have been checked,
 * so a load that fails changes nothing. For a name that is missing or has another shape the
 * gd_loading call succeeds; the load collects such names and reports them together. A call that
 * fails (out of memory, a name taken twice) ends the load.
 *
 * Names are relative to the object; the prefixes of its parents are added. An empty name is the
 * prefix itself. A tensor that is put twice is tied: it is written under its first name. A tensor
 * or a value that is taken under several names is loaded if the source has any of them.
 */
#ifndef GRADUS_CORE_STATE_H
#define GRADUS_CORE_STATE_H

#include "core/map.h"
#include "core/name_map.h"
#include "core/tensor.h"
#include "gradus/state.h"

typedef struct gd_loading gd_loading;

typedef struct gd_state_rules {
    gd_status (*save)(gd_object *object, gd_state *state);
    gd_status (*load)(gd_object *object, gd_loading *in);
} gd_state_rules;

/* A callback for the end of a load or save. `loaded` is true after a successful load, when all
 * tensors and values are written. The latest registered callback is called first. Use it to release
 * a lock, to adopt tensors that `load` has created, or to free them. */
typedef void (*gd_state_done)(void *user, bool loaded);

/* --- saving: calls for `save` ------------------------------------------------------------------
 * */

gd_status gd_state_put_tensor(gd_state *state, const char *name, gd_tensor *tensor);
gd_status gd_state_put_float(gd_state *state, const char *name, double value);
gd_status gd_state_put_integer(gd_state *state, const char *name, int64_t value);
gd_status gd_state_put_unsigned(gd_state *state, const char *name, uint64_t value);
gd_status gd_state_put_text(gd_state *state, const char *name, const char *value);
gd_status gd_state_put_object(gd_state *state, const char *name, void *object); /* NULL: nothing */

/* A name for data that belongs to a tensor of another object, as the moments of an optimizer belong
 * to parameters: "fc1.weight.exp_avg" if a module of the same save holds the parameter, in any
 * order of the parts, otherwise "OWN.exp_avg", or "INDEX.exp_avg" if `own` is NULL. It lives as long
 * as the state. NULL if out of memory. */
const char *gd_state_name_for(gd_state *state, const gd_tensor *of, const char *own, int64_t index,
                              const char *suffix);

/* Registers a callback. If out of memory, calls it immediately and fails. */
gd_status gd_state_when_done(gd_state *state, gd_state_done done, void *user);

/* --- loading: calls for `load` -----------------------------------------------------------------
 * */

/* Writes the memory of the tensor; handle and storage stay. Shapes must be equal; floats are
 * converted to the tensor's dtype. */
gd_status gd_loading_tensor(gd_loading *in, const char *name, gd_tensor *tensor);

/* These write the values at the end of the load, if the source has them. gd_loading_text replaces
 * *value, which is NULL or from gd_malloc. */
gd_status gd_loading_float(gd_loading *in, const char *name, double *value);
gd_status gd_loading_integer(gd_loading *in, const char *name, int64_t *value);
gd_status gd_loading_unsigned(gd_loading *in, const char *name, uint64_t *value);
gd_status gd_loading_text(gd_loading *in, const char *name, char **value);
gd_status gd_loading_object(gd_loading *in, const char *name, void *object); /* NULL: nothing */

/* The name of gd_state_name_for, or another form of it ("net.fc1.weight.exp_avg", "0.exp_avg") that
 * the source has. */
const char *gd_loading_name_for(gd_loading *in, const gd_tensor *of, const char *own, int64_t index,
                                const char *suffix);

gd_status gd_loading_when_done(gd_loading *in, gd_state_done done, void *user);

/* Queries of the source. They do not mark a name as used. */
bool gd_loading_has(gd_loading *in, const char *name); /* a tensor or a value */
/* Shape and dtype of a tensor; false if there is none, or its dtype or rank is not supported. */
bool gd_loading_shape(gd_loading *in, const char *name, gd_shape *shape, gd_dtype *dtype);
bool gd_loading_peek_float(gd_loading *in, const char *name, double *value);
bool gd_loading_peek_integer(gd_loading *in, const char *name, int64_t *value);
const char *gd_loading_peek_text(gd_loading *in, const char *name); /* NULL: no such value */

/* --- for src/io: saves and loads of several parts -----------------------------------------------
 * */

typedef struct gd_state_tensor {
    char *name;
    size_t part;       /* length of the part's prefix in the name, including the dot */
    gd_tensor *tensor; /* with a reference */
    int tied;          /* the first entry with the same tensor; -1: none */
    int same_place;    /* the previous entry at the same place of a storage; -1: none */
    bool ambiguous;    /* another part has the same name without the prefix */
} gd_state_tensor;

typedef struct gd_state_value_entry {
    char *name, *text;
} gd_state_value_entry;

/* A stack of prefixes, texts that live as long as the path, and callbacks for the end. */
typedef struct gd_state_path {
    char *prefix; /* "net.layer1."; NULL: none yet */
    size_t length, room, part;
    char **texts;
    int n_texts, texts_room;
    struct gd_state_end {
        gd_state_done done;
        void *user;
    } * ends;
    int n_ends, ends_room;
} gd_state_path;

struct gd_state {
    gd_object object;
    gd_state_tensor *tensors;
    int n_tensors, tensors_room;
    gd_state_value_entry *values;
    int n_values, values_room;
    gd_name_map by_name, values_by_name,
        by_local;    /* entry numbers, from 1; by_local: without part */
    gd_map by_place; /* the latest entry of each place (gd_state_place) */
    gd_state_path path;
    const gd_state *naming; /* the names of all parts, for gd_state_name_for; NULL: this state */
};

/* Collects the state of several parts; no scope owns it. *out is NULL after a failure.
 * gd_state_end_save calls the callbacks of gd_state_when_done and releases the state. */
gd_status gd_state_collect(gd_state_parts parts, gd_state **out);
void gd_state_end_save(gd_state *state);

/* The source of a load: a file, or another state. .prefix and .rename are already applied to names.
 * */
typedef struct gd_source_tensor {
    const char *name, *dtype_name;
    gd_dtype dtype; /* GD_DTYPE_NONE: not supported */
    int rank;       /* -1: unknown, and not supported */
    const int64_t *dims;
    const void *file; /* row-major, little-endian elements from `begin` on; NULL: use `tensor` */
    uint64_t begin;
    gd_tensor *tensor;
    bool used;
} gd_source_tensor;

typedef struct gd_source_value {
    const char *name, *text;
    bool used;
} gd_source_value;

typedef struct gd_source {
    const char *title; /* for messages: the file */
    gd_source_tensor *tensors;
    size_t n_tensors;
    gd_source_value *values;
    size_t n_values;
    const char *parts;   /* names of the parts that were saved, one per line; NULL: unknown */
    uint64_t most_bytes; /* of all tensors together, if they become new tensors; 0: any number */
    /* Reads from the file of a tensor; unused if all have a `tensor`. */
    gd_status (*read)(const void *file, uint64_t begin, void *to, size_t bytes);
} gd_source;

/* Loads all parts; a failure changes nothing, unless it is one of the file or the device while
 * tensors are written, which the message then says. With a report, tensors and values that do not
 * fit are listed in the report and left unchanged, instead of failing. */
gd_status gd_loading_load(const gd_source *source, gd_state_parts parts, gd_load_report *report);

#endif
