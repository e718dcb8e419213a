/* recurrent.h - an LSTM, GRU or RNN of an ONNX file that is being read: shared by
 * recurrent.c and load/cell.c. */
#ifndef GRADUS_IO_ONNX_RECURRENT_H
#define GRADUS_IO_ONNX_RECURRENT_H

#include "onnx/load/load.h"

enum { GD_ONNX_MOST_GATES = 4 };

typedef struct gd_onnx_recurrent_kind {
    const char *onnx;
    int gates;                    /* 4: LSTM, 3: GRU, 1: RNN */
    int from[GD_ONNX_MOST_GATES]; /* ONNX's gate k is ours number from[k] */
    int n_functions;
    const char *functions[3]; /* of the gates, unless the node says otherwise */
} gd_onnx_recurrent_kind;

/* A function of a gate, with its numbers where it has some. */
typedef struct gd_onnx_activation {
    gd_tensor *(*apply)(gd_tensor *x, double alpha, double beta);
    double alpha, beta;
} gd_onnx_activation;

typedef struct gd_onnx_layer {
    const gd_onnx_recurrent_kind *kind;
    /* as in ONNX, layout 0; NULL: absent. x (T, N, I), w (D, G*H, I), r (D, G*H, H), b (D, 2*G*H),
     * lengths (N), h0 and c0 (D, N, H), p (D, 3*H) */
    gd_tensor *x, *w, *r, *b, *lengths, *h0, *c0, *p;
    int64_t hidden, directions;
    bool backward;   /* its only direction */
    bool plain;      /* our op knows it */
    gd_word cell[2]; /* then: of each direction */
    gd_onnx_activation functions[2][3];
    double clip; /* what functions are given lies between -clip and clip; INFINITY: anywhere */
    bool input_forget, linear_before_reset;
} gd_onnx_layer;

/* The functions of the gates, with their numbers. *usual: they are those of the kind (or Relu, for
 * an RNN: cell says so). */
gd_status gd_onnx_read_activations(const gd_pb *node, gd_onnx_layer *layer, bool *usual);

/* Direction d by its formula, as a scan: y (T, N, H), h and c (1, N, H). */
gd_status gd_onnx_scan_direction(const gd_onnx_layer *layer, int64_t d, gd_tensor **y,
                                 gd_tensor **h, gd_tensor **c);

#endif
