/* recurrent.h - an LSTM, GRU or RNN node that is being loaded: shared by recurrent.c and
 * recurrent_cell.c. */
#ifndef GRADUS_ONNX_LOAD_OPERATORS_RECURRENT_H
#define GRADUS_ONNX_LOAD_OPERATORS_RECURRENT_H

#include "onnx/load/operators/operators.h"
#include "onnx/recurrent.h"

/* An activation function; NAN where it has no alpha or beta. */
typedef struct gd_onnx_activation {
    gd_tensor *(*apply)(gd_tensor *x, double alpha, double beta);
    double alpha, beta;
} gd_onnx_activation;

typedef struct gd_onnx_recurrent_node {
    const gd_onnx_recurrent_kind *kind;
    /* The inputs in layout 0; NULL: absent. x (T, N, I), w (D, G*H, I), r (D, G*H, H),
     * b (D, 2*G*H), lengths (N), h0 and c0 (D, N, H), p (D, 3*H) */
    gd_tensor *x, *w, *r, *b, *lengths, *h0, *c0, *p;
    int64_t hidden, directions;
    bool backward;   /* the only direction is "reverse" */
    bool is_op;      /* the op `recurrent` computes it; else a scan of the formula */
    gd_word cell[2]; /* the option `cell` of each direction, if is_op */
    gd_onnx_activation activations[2][3];
    double clip; /* inputs of activations are clamped to -clip .. clip; INFINITY: no clamp */
    bool input_forget, linear_before_reset;
} gd_onnx_recurrent_node;

/* Reads the activations. *standard: the op `recurrent` supports them (the defaults, or Relu in an
 * RNN). */
gd_status gd_onnx_read_activations(const gd_pb *node, gd_onnx_recurrent_node *recurrent,
                                   bool *standard);

/* Direction d as a scan of the formula: y (T, N, H), h and c (1, N, H). */
gd_status gd_onnx_scan_direction(const gd_onnx_recurrent_node *recurrent, int64_t d, gd_tensor **y,
                                 gd_tensor **h, gd_tensor **c);

#endif
