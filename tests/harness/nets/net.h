/* net.h - nets that are drawn from a seed, and how their layers draw: sizes, tensors, values.
 *
 * A net is a function that is called many times: eagerly, in traces, and for copies of its tensors
 * on other devices. Each call draws the same layers. The first call builds the net: it creates the
 * tensors that later calls use in the same order, and describes the layers in `text`.
 *
 * Layer i draws from a stream of its own, so a net without some of its layers keeps the others, with
 * other sizes: this is how a failing net is reduced.
 */
#ifndef GRADUS_TESTS_HARNESS_NETS_NET_H
#define GRADUS_TESTS_HARNESS_NETS_NET_H

#include "draw.h"
#include "gradus/gradus.h"

enum { MAX_TENSORS = 160, MAX_VALUES = 64, MAX_LAYERS = 12, MAX_FETCHES = 6, NET_TEXT = 6000 };

typedef enum net_role {
    NET_PARAMETER,
    NET_FROZEN, /* a parameter without a gradient */
    NET_BUFFER, /* running statistics */
    NET_CONSTANT,
    NET_INPUT, /* an input of the step, with other values in each call */
} net_role;

/* The axes of a value: (N, C), (N, C, ...) with up to three more, (N, T, C). */
typedef enum net_form { NET_ROWS, NET_IMAGES, NET_SEQUENCE } net_form;

typedef struct net_value {
    gd_tensor *t;
    net_form form;
    bool trained; /* it depends on a parameter */
} net_value;

/* What reduces a net: options of the step that are left out, as bits. */
enum {
    NO_CLIPPING = 1,
    NO_ACCUMULATION = 2,
    NO_FETCHES = 4,
    NO_SECOND_LOSS = 8,
    NO_FREEZING = 16,
    PLAIN_OPTIMIZER = 32,
    SIMPLE_LOSS = 64,
    ONE_ROW_OF_OPTIONS = 128,
    NO_RECOMPUTATION = 256,
    NO_PENALTY = 512,
    NET_OPTIONS = 10 /* bits */
};

/* A layer that the backward pass computes again (gd_recompute). */
typedef struct net_repeat {
    struct net *net;
    int layer, next, n_values;
    int input; /* its number among the values; -1: it is none of them */
    net_form form;
} net_repeat;

typedef struct net {
    uint64_t seed;
    unsigned without, layers_off; /* bits: options, layers */
    gd_dtype autocast;            /* GD_DTYPE_NONE: off */
    bool exact;                   /* it is off although the net was drawn for it */

    /* tensors, in the order of their use */
    gd_tensor *tensors[MAX_TENSORS];
    net_role roles[MAX_TENSORS];
    int classes[MAX_TENSORS]; /* of an input: the number of classes; 0: it has floats */
    int n_tensors, n_inputs;

    /* one call */
    bool building, in_graph;
    bool evaluates;  /* the step has no gradients */
    bool repeats;    /* layers may run again in the backward pass: they write no buffers */
    int input;       /* of a repeated layer: see net_repeat */
    bool recomputes; /* it has a repeated layer */
    draws d;
    bool adds_affine;     /* the layers have no parameters */
    bool has_kinks;       /* a small difference may change the gradient of an element */
    int next, next_input; /* tensor, input */
    gd_tensors in;
    net_value values[MAX_VALUES]; /* results of layers, for connections that skip some */
    int n_values;
    gd_tensor *fetches[MAX_FETCHES];
    int n_fetches;

    gd_optimizer *optimizer;
    gd_loss_scale *loss_scale;
    net_repeat repeated[MAX_LAYERS];
    net_form repeat_form; /* of the result of the last one */
    char text[NET_TEXT];
    size_t text_end;
} net;

/* Adds to the description of the net while it is built. */
__attribute__((format(printf, 2, 3))) void net_say(net *n, const char *format, ...);
/* An error tensor has no dims; the test reports the failure later. */
int64_t dim_of(gd_tensor *t, int axis);
bool one_in(net *n, int k);
int below(net *n, int k);

/* --- sizes ------------------------------------------------------------------------------------ */

enum { MAX_ELEMENTS = 12000 };

/* Under autocast more of the sizes are multiples of 8, which tensor cores need. */
int64_t draw_size(net *n, int64_t most);
/* The most channels for which a value of `positions` rows stays small. */
int64_t most_channels(int64_t positions);
gd_shape shape_without(gd_tensor *t, int axis);

/* --- tensors ---------------------------------------------------------------------------------- */

/* The next tensor, normally distributed; in the first call a new one. */
gd_tensor *net_tensor(net *n, net_role role, gd_shape shape, double mean, double scale);
bool has_parameter(const net *n);
/* Some parameters are frozen, but never the first one. The stream of this draw is separate, so that
 * NO_FREEZING changes nothing else. */
gd_tensor *parameter(net *n, gd_shape shape, double mean, double scale);
/* A weight whose products with values of variance 1 have variance 1. */
gd_tensor *weight(net *n, gd_shape shape, int64_t inputs);
gd_tensor *bias_or_none(net *n, int64_t size);
gd_tensor *constant(net *n, gd_shape shape, double mean, double scale);
/* An input of floats, or of class numbers if `classes` is not 0. */
gd_tensor *net_input(net *n, gd_shape shape, int classes);

/* --- values ----------------------------------------------------------------------------------- */

net_value value_of(gd_tensor *t, net_form form);
net_value as_rows(gd_tensor *t);
void remember(net *n, net_value v);
/* An earlier value with the shape of x; NULL: none. In the backward pass a repeated layer gets its
 * input with another handle. */
gd_tensor *find_alike(net *n, gd_tensor *x);
int channel_axis(net_value x);
gd_tensor *kinked(net *n, gd_tensor *x);
/* In halves an element near 0 may be rounded to the other side. Of few elements, a single one would
 * change the gradients a lot. */
gd_tensor *relu_of(net *n, gd_tensor *x);

#endif
