/* load.h - an ONNX file that is being read: shared by onnx_load*.c. */
#ifndef GRADUS_IO_ONNX_LOAD_H
#define GRADUS_IO_ONNX_LOAD_H

#include "core/map.h"
#include "core/names.h"
#include "onnx/onnx.h"
#include "ops/late.h"

/* A value of the file. */
typedef struct gd_onnx_value {
    const char *name;
    gd_tensor *tensor; /* as ops take it: a symbol, or a constant; NULL: a variable not made yet */
    gd_tensor *constant; /* its data, where they are known now */
    bool known;          /* they follow from constants alone, and are few */
    bool sized;          /* they follow from constants and from sizes that only a run tells */
    bool variable, trainable;
    size_t number;     /* in the loader */
    gd_tensor **items; /* of a sequence, which is no tensor; NULL: it is none */
    int64_t n_items;
} gd_onnx_value;

/* A graph of the file that is being read: that of the file, or one of an If, Loop or Scan, whose
 * nodes see the values of the graphs around it as well. */
typedef struct gd_onnx_frame {
    const gd_pb *graph;
    gd_names by_name;
    gd_names made;    /* outputs of all its nodes: those nodes */
    gd_names outputs; /* of the file's graph: these must be found by their names */
    struct gd_onnx_frame *outer;
} gd_onnx_frame;

struct gd_onnx_loader {
    const gd_pb *model;
    gd_onnx_frame *frame;
    int depth;  /* of frames */
    int trials; /* bodies that are being looked at before they are read in earnest */
    char *folder;
    gd_onnx_value **values; /* of all frames */
    size_t count, room;
    gd_names operators; /* by their types: what loads them */
    gd_map evaluated;   /* nodes of values that were worked out: the numbers of those values */
    int first_new;      /* nodes from this one on belong to what is being loaded */
    bool own;           /* the file was saved here */
    bool trainable;     /* initializers of other programs' files */
};

/* A new value of the innermost graph. */
gd_status gd_onnx_add_value(gd_onnx_loader *loader, const char *name, gd_onnx_value **value);
/* What a name means where we are; NULL: nothing yet. */
gd_onnx_value *gd_onnx_look_up(const gd_onnx_loader *loader, const char *name);
/* The tensor that ops take. A variable is made when the first op reads it. */
gd_status gd_onnx_tensor_of(gd_onnx_value *value, gd_tensor **tensor);
/* The value of this name; a failure says why there is none. */
gd_status gd_onnx_find_value(gd_onnx_loader *loader, const char *name, gd_onnx_value **value);
/* The data of a value if they are known now: *out is NULL where they are not. */
gd_status gd_onnx_known(gd_onnx_loader *loader, const char *name, gd_tensor **out);

/* The value of a symbol that follows from constants, and from sizes: `size` stands for each that is
 * not known. */
gd_status gd_onnx_evaluate(gd_onnx_loader *loader, gd_tensor *symbol, int64_t size,
                           gd_tensor **out);
/* The sizes of x as a symbol, some of which are not known. */
gd_status gd_onnx_sizes_of(gd_tensor *x, gd_tensor **sizes);
/* Result i of a node: sizes, or some of them. */
gd_status gd_onnx_set_sized(gd_onnx_loader *loader, const gd_pb *node, size_t i, gd_tensor *tensor);
/* Input i as a list of numbers for gd_onnx_late: a value, or a symbol that follows from sizes; NULL
 * where it is absent. It must not depend on data. */
gd_status gd_onnx_get_list(gd_onnx_loader *loader, const gd_pb *node, size_t i, gd_tensor **list);
/* A call with such lists, as a node that waits for the sizes of a run. */
gd_status gd_onnx_late(gd_onnx_loader *loader, gd_late_options options, gd_tensor *x,
                       gd_tensor *const *lists, int n_lists, gd_tensor **y);

/* Whether a value is known, or follows from sizes: gd_onnx_get_list can give it. */
bool gd_onnx_follows(const gd_onnx_loader *loader, const char *name);

/* A size that is known, or follows from the sizes of a run. */
typedef struct gd_onnx_size {
    int64_t known;   /* GD_UNKNOWN: it is not */
    gd_tensor *late; /* then: a number, i64 */
} gd_onnx_size;
gd_status gd_onnx_size_of(gd_tensor *x, int axis, gd_onnx_size *size);
gd_onnx_size gd_onnx_size_is(int64_t known);
gd_status gd_onnx_size_times(gd_onnx_size a, gd_onnx_size b, gd_onnx_size *product);
/* What is left over is an error where it is known. */
gd_status gd_onnx_size_over(gd_onnx_size a, int64_t by, gd_onnx_size *quotient);
gd_tensor *gd_onnx_size_number(gd_onnx_size size); /* i64, rank 0 */
gd_status gd_onnx_reshape_to(gd_onnx_loader *loader, gd_tensor *x, int rank,
                             const gd_onnx_size *sizes, gd_tensor **y);

/* The input of number `i` of `node`, which must be there. */
#define GD_ONNX_NEED(t, i)                                                        \
    gd_tensor *t;                                                                 \
    do {                                                                          \
        gd_status need_status_;                                                   \
        t = gd_onnx_get_input(l, node, i, &need_status_);                         \
        if (need_status_ != GD_OK) return need_status_;                           \
        if (!t) return gd_fail(GD_E_FORMAT, "its input %d is missing", (int)(i)); \
    } while (0)

/* An axis counted from the first one; a failure where there is no such axis. */
gd_status gd_onnx_fix_axis(int64_t *axis, int rank);

/* Makes the variables that the nodes of an inner graph read: inside it is too late. */
gd_status gd_onnx_make_variables(gd_onnx_loader *loader, const gd_pb *graph);

/* Reads an inner graph for these inputs, into the graph that is being built. `outputs` are as many
 * as it has: gd_pb_count(graph, "output"). */
gd_status gd_onnx_load_inner(gd_onnx_loader *loader, const gd_pb *graph, gd_tensor *const *inputs,
                             size_t n_inputs, gd_onnx_value **outputs);

/* A Resize that our op does not know: numbers (factors, or sizes) for all axes of x, NAN for those
 * that keep theirs. */
gd_status gd_onnx_resize_axes(const gd_pb *node, gd_tensor *x, bool scaled, const double *numbers,
                              gd_tensor **y);

/* If, Loop and Scan (load/control.c). */
gd_status gd_onnx_load_if(gd_onnx_loader *loader, const gd_pb *node);
gd_status gd_onnx_load_loop(gd_onnx_loader *loader, const gd_pb *node);
gd_status gd_onnx_load_scan(gd_onnx_loader *loader, const gd_pb *node);

#endif
