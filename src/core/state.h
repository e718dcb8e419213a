/* state.h - what an object saves and loads: named tensors and small values.
 *
 * Every class whose objects have state (module, optimizer, schedule, generator, session) has two
 * functions, `give` and `take`. Saving, loading and checkpoints know nothing else of an object.
 *
 *     static gd_status give(gd_object *object, gd_state *state) {
 *         thing *t = (thing *)object;
 *         GD_TRY(gd_state_put_tensor(state, "weight", t->weight));
 *         GD_TRY(gd_state_put_integer(state, "steps", t->steps));
 *         return gd_state_put_object(state, "inner", t->inner);       // "inner.weight", ...
 *     }
 *     static gd_status take(gd_object *object, gd_taking *in) {
 *         thing *t = (thing *)object;
 *         GD_TRY(gd_taking_tensor(in, "weight", t->weight));
 *         GD_TRY(gd_taking_integer(in, "steps", &t->steps));
 *         return gd_taking_object(in, "inner", t->inner);
 *     }
 *     static const gd_state_rules rules = {give, take};
 *     static const gd_class thing_class = {.name = "thing", .destroy = destroy, .state = &rules};
 *
 * `take` only checks and queues. Nothing is written before every part of the load has been checked,
 * so a load that fails changes nothing. A name that is missing or has another shape is no failure
 * of the gd_taking call: it is collected, and the load reports all such names together. A call that
 * fails (no memory, a name taken twice) ends the load.
 *
 * Names are relative to the object; the caller's prefixes are added. An empty name is the prefix
 * itself. A tensor that is put twice is tied: it is written under its first name. A tensor or a
 * value that is taken under several names is loaded if any of them is there.
 */
#ifndef GRADUS_CORE_STATE_H
#define GRADUS_CORE_STATE_H

#include "core/map.h"
#include "core/names.h"
#include "core/tensor.h"
#include "gradus/state.h"

typedef struct gd_taking gd_taking;

typedef struct gd_state_rules {
    gd_status (*give)(gd_object *object, gd_state *state);
    gd_status (*take)(gd_object *object, gd_taking *in);
} gd_state_rules;

/* Called once, when the load or save that it was registered for ends: `loaded` is true after a load
 * that succeeded, when all tensors and values are in place. It cannot fail. The latest is called
 * first. Use it to release a lock, to adopt tensors that `take` created, or to free them. */
typedef void (*gd_state_done)(void *user, bool loaded);

/* --- giving ----------------------------------------------------------------------------------- */

gd_status gd_state_put_tensor(gd_state *state, const char *name, gd_tensor *tensor);
gd_status gd_state_put_number(gd_state *state, const char *name, double value);
gd_status gd_state_put_integer(gd_state *state, const char *name, int64_t value);
gd_status gd_state_put_unsigned(gd_state *state, const char *name, uint64_t value);
gd_status gd_state_put_text(gd_state *state, const char *name, const char *value);
gd_status gd_state_put_object(gd_state *state, const char *name, void *object); /* NULL: nothing */

/* The name for something that belongs to a tensor of another object, as an optimizer's moments
 * belong to parameters: "fc1.weight.exp_avg" where a module of the same save holds the parameter,
 * whatever the order of the parts, else "INDEX.exp_avg". It lives as long as the state. NULL: no
 * memory. */
const char *gd_state_name_for(gd_state *state, const gd_tensor *of, int64_t index,
                              const char *suffix);

/* Without memory to register it, `done` is called at once, and the call fails. */
gd_status gd_state_when_done(gd_state *state, gd_state_done done, void *user);

/* --- taking ----------------------------------------------------------------------------------- */

/* The tensor's own memory is written; handle and storage stay. Shapes must be equal; floats are
 * converted to the tensor's dtype. */
gd_status gd_taking_tensor(gd_taking *in, const char *name, gd_tensor *tensor);

/* The values are written at the end, if they are there. gd_taking_text replaces *value, which is
 * NULL or from gd_malloc. */
gd_status gd_taking_number(gd_taking *in, const char *name, double *value);
gd_status gd_taking_integer(gd_taking *in, const char *name, int64_t *value);
gd_status gd_taking_unsigned(gd_taking *in, const char *name, uint64_t *value);
gd_status gd_taking_text(gd_taking *in, const char *name, char **value);
gd_status gd_taking_object(gd_taking *in, const char *name, void *object); /* NULL: nothing */

/* The same name as gd_state_name_for, or the form of it ("net.fc1.weight.exp_avg", "0.exp_avg")
 * that is there. */
const char *gd_taking_name_for(gd_taking *in, const gd_tensor *of, int64_t index,
                               const char *suffix);

gd_status gd_taking_when_done(gd_taking *in, gd_state_done done, void *user);

/* Questions, answered at once. They leave a name unused: take what you want afterwards. */
bool gd_taking_has(gd_taking *in, const char *name); /* a tensor or a value */
/* Shape and dtype of a tensor; false: there is none, or it has a dtype or rank that is not ours. */
bool gd_taking_shape(gd_taking *in, const char *name, gd_shape *shape, gd_dtype *dtype);
bool gd_taking_peek_number(gd_taking *in, const char *name, double *value);
bool gd_taking_peek_integer(gd_taking *in, const char *name, int64_t *value);
const char *gd_taking_peek_text(gd_taking *in, const char *name); /* NULL: not there */

/* --- whole saves and loads (src/io) ----------------------------------------------------------- */

typedef struct gd_state_tensor {
    char *name;
    size_t part;       /* length of the part's prefix in the name, dot included */
    gd_tensor *tensor; /* held */
    int tied;          /* the entry with the same tensor that was put first; -1: none */
    int same_storage;  /* the entry before with the same storage; -1: none */
    bool ambiguous;    /* another part has the same name */
} gd_state_tensor;

typedef struct gd_state_value_entry {
    char *name, *text;
} gd_state_value_entry;

/* A stack of prefixes, texts that live as long as the rest, and what to call at the end. */
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
    gd_names by_name, values_by_name, by_local; /* numbers of entries, from 1 */
    gd_map by_storage;                          /* the latest entry of each storage */
    gd_state_path path;
    const gd_state *naming; /* of all parts, for gd_state_name_for; NULL: this one */
};

/* The state of several parts; no scope owns it. *out is NULL after a failure. gd_state_end_save
 * calls what was registered with gd_state_when_done, and releases the state. */
gd_status gd_state_collect(gd_state_parts parts, gd_state **out);
void gd_state_end_save(gd_state *state);

/* What a load reads from: a file, or another state. Names are final (prefix cut, renamed). */
typedef struct gd_source_tensor {
    const char *name, *dtype_name;
    gd_dtype dtype; /* GD_DTYPE_NONE: not one of ours */
    int rank;
    const int64_t *dims;
    const void *data;  /* row-major, little-endian, perhaps not aligned; or: */
    gd_tensor *tensor; /* a tensor */
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
    const char *parts; /* names of the parts it was saved from, a line each; NULL: not known */
} gd_source;

/* Loads all parts or, after a failure, nothing. With a report, what does not fit is left as it is
 * and told there instead of being a failure. */
gd_status gd_taking_load(const gd_source *source, gd_state_parts parts, gd_load_report *report);

#endif
