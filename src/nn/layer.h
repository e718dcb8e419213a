/* layer.h - layers: modules that have records.
 *
 * A record is a comment above the rules of its layer, functions of the same file that are named
 * after it:
 *
 *   NAME_check    checks the options, in the constructor and again after sizes were inferred.
 *                 Until then the options that `finds` names may be GD_ANY.
 *   NAME_build    adds parameters and buffers, once all options are known
 *   NAME_forward  computes outputs from inputs. Without it the op of the record is called with the
 *                 inputs and then the parameters, in the order in which they were added.
 *
 * Options are a struct, gd_nn_NAME_options: const gd_nn_linear_options *o = m->options.
 *
 * The text of a record can yield several layers, such as conv{1,2,3}d. Their rules are written once
 * and have N in place of the number: convNd_check. They read the options by GD_LAYER_OPTIONS.
 */
#ifndef GRADUS_NN_LAYER_H
#define GRADUS_NN_LAYER_H

#include "gradus/graph.h"
#include "nn/module.h"

struct gd_layer_rules {
    gd_status (*check)(const gd_module *m);
    gd_status (*build)(gd_module *m);
    gd_tensors (*forward)(gd_module *m, gd_tensors in);
};

/* Called by the typed constructors. */
gd_module *gd_layer_make(const char *site, const gd_factory *factory, const void *options);

/* Infers the GD_ANY sizes of a layer from the inputs of a call, and builds it. */
gd_status gd_layer_build_for(gd_module *m, gd_tensors inputs);

/* --- for layers with variants ----------------------------------------------------------------- */

/* N of a record such as conv{1,2,3}d: 2 of conv2d. */
static inline int gd_layer_variant(const gd_module *m) { return m->factory->variant; }

/* The options of any variant as those of the last one: GD_LAYER_OPTIONS(gd_nn_conv3d_options, m).
 * Of a list that has N numbers, the first N entries are set. */
#define GD_LAYER_OPTIONS(type, m)                             \
    ({                                                        \
        type options_;                                        \
        gd_layer_read_options(m, &options_, sizeof options_); \
        options_;                                             \
    })
void gd_layer_read_options(const gd_module *m, void *options, size_t size);

/* --- for checks ------------------------------------------------------------------------------- */

/* "conv2d: out_channels is 0; it must be at least 1" */
gd_status gd_layer_at_least(const gd_module *m, const char *option, int64_t value, int64_t least);
gd_status gd_layer_all_at_least(const gd_module *m, const char *option, int count,
                                const int64_t *values, int64_t least);
/* low <= value < high; with `closed`, value <= high. */
gd_status gd_layer_within(const gd_module *m, const char *option, double value, double low,
                          double high, bool closed);
/* At least 1, or GD_ANY. */
gd_status gd_layer_size(const gd_module *m, const char *option, int64_t value);

/* --- for builds ------------------------------------------------------------------------------- */

/* Adds a parameter: uniform between -bound and bound, normal, or constant. */
gd_status gd_layer_uniform(gd_module *m, const char *name, gd_shape dims, double bound);
gd_status gd_layer_normal(gd_module *m, const char *name, gd_shape dims, double std);
gd_status gd_layer_fill(gd_module *m, const char *name, gd_shape dims, double value);
/* Adds an absent parameter: the op gets NULL for it. */
gd_status gd_layer_absent(gd_module *m, const char *name);
/* Adds a constant buffer. */
gd_status gd_layer_buffer(gd_module *m, const char *name, gd_shape dims, gd_dtype dtype,
                          double value);
/* Adds a child. */
gd_status gd_layer_child(gd_module *m, const char *name, gd_module *child);
/* Selects the op that gd_layer_call_op calls, instead of that of the record. Its options take the
 * values of the options of the layer that have the same names. */
gd_status gd_layer_set_op(gd_module *m, const char *name);
/* Sets an option of this op to its default. */
void gd_layer_reset_op_option(gd_module *m, const char *name);

/* --- for forward ------------------------------------------------------------------------------ */

/* Records a failure of NAME_forward: return gd_layer_fail(gd_fail(...)). */
gd_tensors gd_layer_fail(gd_status status);
/* Input `i`; NULL: absent. */
static inline gd_tensor *gd_layer_input(gd_tensors in, int i) {
    return i < in.count ? in.at[i] : NULL;
}
/* A number in the dtype for arithmetic with x: f64 if x is, otherwise f32. (gd_scalar is f32.) */
gd_tensor *gd_layer_scalar(const gd_tensor *x, double value);
/* The mode; a trace records that it was read. */
bool gd_layer_is_training(gd_module *m);
/* The tensor, or child, that was added as number `index`. */
static inline gd_tensor *gd_layer_tensor_at(const gd_module *m, int index) {
    return (gd_tensor *)m->entries[index].object;
}
static inline gd_module *gd_layer_child_at(const gd_module *m, int index) {
    return (gd_module *)m->entries[index].object;
}
/* Writes a buffer, and returns the write for GD_LAYER_AFTER. A run of a graph executes only what
 * its fetches need, so a forward function has GD_LAYER_AFTER(write) before it computes its
 * outputs. */
gd_tensor *gd_layer_write(gd_tensor *buffer, gd_tensor *value);
gd_block gd_layer_after_begin(gd_tensor *write); /* NULL: no write */
void gd_layer_after_end(gd_block *block);
#define GD_LAYER_AFTER(write) GD_BLOCK_(gd_layer_after_end, gd_layer_after_begin(write))
/* Calls the op with the inputs, then the parameters of the layer. */
gd_tensors gd_layer_call_op(gd_module *m, gd_tensors in);
/* With data_format channels_last: x (N, ..., C) as (N, C, ...), and y (N, C, ...) as (N, ...,
 * C). */
gd_tensor *gd_layer_channels_first(gd_tensor *x, gd_word data_format);
gd_tensor *gd_layer_channels_restored(gd_tensor *y, gd_word data_format);

#endif
