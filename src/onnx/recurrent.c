/* recurrent.c - the order of gates in LSTM, GRU and RNN; see recurrent.h. */
#include "onnx/recurrent.h"

const gd_onnx_recurrent_kind gd_onnx_recurrent_kinds[3] = {
    [GD_ONNX_LSTM] = {"LSTM", 4, {0, 3, 1, 2}, 3, {"Sigmoid", "Tanh", "Tanh"}},
    [GD_ONNX_GRU] = {"GRU", 3, {1, 0, 2}, 2, {"Sigmoid", "Tanh"}},
    [GD_ONNX_RNN] = {"RNN", 1, {0}, 1, {"Tanh"}}};
