/* recurrent.h - the order of gates in LSTM, GRU and RNN, shared by loading and saving.
 *
 * An ONNX node is one layer in one or two directions (D); the op `recurrent` is one direction.
 * ONNX's weights are W (D, G*H, I), R (D, G*H, H) and both biases in one tensor B (D, 2*G*H), with
 * the G gates in another order:
 *
 *            ours (PyTorch's)              ONNX
 *     lstm   input forget cell output      input output forget cell
 *     gru    reset update new              update reset new
 */
#ifndef GRADUS_ONNX_RECURRENT_H
#define GRADUS_ONNX_RECURRENT_H

enum { GD_ONNX_MAX_GATES = 4 };

typedef struct gd_onnx_recurrent_kind {
    const char *onnx;
    int gates;                   /* 4 in an LSTM, 3 in a GRU, 1 in an RNN */
    int from[GD_ONNX_MAX_GATES]; /* ONNX's gate k is our gate from[k] */
    int n_activations;
    const char *activations[3]; /* ONNX's defaults */
} gd_onnx_recurrent_kind;

enum { GD_ONNX_LSTM, GD_ONNX_GRU, GD_ONNX_RNN };
extern const gd_onnx_recurrent_kind gd_onnx_recurrent_kinds[3];

#endif
