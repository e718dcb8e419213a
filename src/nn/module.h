/* module.h - the internals of modules, and walks over trees of modules. */
#ifndef GRADUS_NN_MODULE_H
#define GRADUS_NN_MODULE_H

#include <stdatomic.h>

#include "core/error.h"
#include "core/map.h"
#include "core/name_map.h"
#include "core/tensor.h"
#include "gradus/module.h"
#include "dispatch/factory.h"

typedef enum gd_entry_kind { GD_A_PARAMETER, GD_A_BUFFER, GD_A_CHILD } gd_entry_kind;

/* A part of a module. Its name has no dots, except for a layer of a gd_nn_net. */
typedef struct gd_entry {
    gd_entry_kind kind;
    const char *name;  /* interned */
    gd_object *object; /* a tensor or a module, retained; NULL: absent (a bias) */
    ptrdiff_t field;   /* offset of the pointer to it in the module's struct; -1: none */
    bool own;          /* of a layer: its functions read the part by its number */
} gd_entry;

/* The layers of a gd_nn_net (net.h); a hook (module_call.c). */
typedef struct gd_net_rows gd_net_rows;
typedef struct gd_hooked {
    gd_module_hook fn;
    void *user;
    int64_t number;
    bool before, builds_ops;
} gd_hooked;

typedef struct gd_layer_rules gd_layer_rules;
typedef struct gd_module_names gd_module_names; /* module_names.c */
void gd_module_names_free(gd_module_names *names);

/* A layer has a record (layer.h), a user-defined module a function and a struct of the program, a
 * container a function of the library. */
struct gd_module {
    gd_object object;
    const char *type; /* interned */

    /* a layer */
    const gd_factory *factory;
    void *options;   /* owned */
    const gd_op *op; /* that of the record, or another one (gd_layer_set_op); NULL: none */
    void *op_options;
    bool built; /* it has its parameters */

    /* a user-defined module, or a container; a layer or container whose function a program
     * overrides has both */
    gd_forward forward;
    void *self;
    size_t self_size;
    void (*destroy)(void *self);
    gd_status (*clone)(gd_module *copy, void *to, const void *from);
    /* a container: its forward function */
    gd_tensors (*contained)(gd_module *module, gd_tensors in);
    gd_net_rows *net;  /* of a gd_nn_net */
    gd_object *source; /* immutable data that clones share: a graph; retained */
    gd_object
        *saved_shapes; /* of the inputs with which its layers were written (caffe/save/save.h);
                              * retained; a clone has none */

    gd_entry *entries; /* in the order in which they were added */
    int count, room, n_children;
    gd_name_map numbers; /* of the entries, by their names */
    gd_map children;     /* from a child to the number of an entry that has, or had, it */
    gd_hooked *hooks;
    int n_hooks, hooks_room;
    int64_t hook_number;

    int training;           /* 1 or 0; traces record it */
    bool frozen;            /* parameters that are added later require no gradient */
    int revision;           /* changes with entries and hooks; traces depend on it */
    gd_dtype dtype;         /* of float parameters that are added later; GD_DTYPE_NONE: their own */
    gd_device *device;      /* of parameters that are added later; NULL: the default device */
    gd_module_names *names; /* of the tensors in the tree; NULL: nobody has asked for them */
    gd_object *attached;    /* by gd_compile (train/training.h), retained; a clone has none */
    atomic_bool fits;       /* a gd_fit of this module runs */
    struct gd_module_link *link; /* retained; NULL: there is none yet */
};

/* A reference to a module that does not hold it: its `module` is NULL when the module is freed. */
typedef struct gd_module_link {
    gd_object object;
    gd_module *module;
} gd_module_link;
/* Retained; NULL: no memory. */
gd_module_link *gd_module_link_to(gd_module *module);
void gd_module_link_release(gd_module_link *link); /* accepts NULL */

/* After a change that gd_module_changes counts. */
void gd_module_changed(void);

/* An empty module in the current scope; NULL: no memory, the failure is recorded. `type` is
 * interned. */
gd_module *gd_module_bare(const char *type);

/* For library code: these do not record a failure. */
gd_status gd_module_put(gd_module *module, gd_entry_kind kind, const char *name, void *object,
                        void *field);
/* A child whose name may be any text. */
gd_status gd_module_put_layer(gd_module *module, const char *name, gd_module *layer);
gd_entry *gd_module_entry(const gd_module *module, const char *name);
void gd_module_remove_last(gd_module *module);
/* The parts from number `first` on are those of a layer, which reads them by their numbers from 0: they
 * are moved before what a program has added meanwhile. */
void gd_module_own_parts(gd_module *module, int first);
/* An entry that has this child; NULL: none. Notes which entry gets a child, for the search. */
const gd_entry *gd_module_child_entry(const gd_module *module, const gd_module *child);
bool gd_module_note_child(gd_module *module, const void *child, int number); /* false: no memory */

/* Whether `module` is `inside` or a part of it. Callers pass depth 0. */
bool gd_module_contains(const gd_module *inside, const gd_module *module, int depth);

extern const struct gd_state_rules gd_module_state;

/* Adds a tensor as a parameter: a float leaf that requires a gradient. */
gd_status gd_module_put_parameter(gd_module *module, const char *name, gd_tensor *tensor,
                                  void *field);

/* --- calls ------------------------------------------------------------------------------------ */

/* A running call, for paths in messages and for gd_module_is_training(NULL). */
typedef struct gd_module_frame {
    gd_module *module;
    struct gd_module_frame *before;
    int64_t n_in; /* inputs of the call of a program's function */
} gd_module_frame;

/* The path of the innermost call from the outermost one, with the type: "layer1.0 (conv2d)". */
char *gd_module_call_path(char *text, size_t size);

/* The same relative to the calling module, "conv1 (conv2d)". */
char *gd_module_call_name(char *text, size_t size);

/* Calls a module; the list of outputs belongs to the current scope. */
gd_tensors gd_module_run(gd_module *module, gd_tensors inputs);

/* --- walking ---------------------------------------------------------------------------------- */

enum { GD_MAX_PATH = 1024, GD_MAX_DEPTH = 64, GD_MAX_NAME = 500 };

/* A walk over all modules and tensors of a tree, parents first, in order. Shared ones are visited
 * once (`again` false), or for each of their names. */
typedef struct gd_tree_walk {
    gd_status (*module)(struct gd_tree_walk *walk, gd_module *module); /* NULL: not called */
    gd_status (*tensor)(struct gd_tree_walk *walk, gd_module *holder,
                        gd_entry *e); /* not for absent ones */
    bool again;
    void *user;
    char path[GD_MAX_PATH]; /* of the visited part */
    gd_module *holder;
    void *seen; /* internal */
    int depth;
} gd_tree_walk;
gd_status gd_module_walk(gd_module *module, gd_tree_walk *walk);

/* Whether a name matches a pattern, in which * matches any text. NULL matches all. */
bool gd_name_matches(const char *name, const char *pattern);

/* The parameters that exist now, without a failure for layers whose sizes are not known yet. */
gd_tensors gd_module_parameters_so_far(gd_module *module);
gd_tensors gd_module_buffers_so_far(gd_module *module);

/* Fails if layers whose parameters may match the pattern have none yet. */
gd_status gd_module_check_built(gd_module *module, const char *function, const char *match);

/* Writes the paths of layers without parameters, "1 (linear), 3 (linear)", and returns how many
 * there are. Only those with parameters that the options can select; NULL: all. */
int gd_module_unbuilt(gd_module *module, const gd_parameters_options *options, char *text,
                      size_t size);

#endif
