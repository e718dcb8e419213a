"""onnx_make.py [FOLDER] [PART] - ONNX files with nodes that PyTorch does not export, and their results in ONNX Runtime.

    python tests/golden/onnx_make.py                      # all files, into tests/golden/onnx
    python tests/golden/onnx_make.py /tmp/files gru       # files with gru in their name

Needs a Python with onnx, onnxruntime and numpy; the tests do not need it. Each file NAME.onnx has one operator, and
the nodes that compute its sizes. NAME.pb has the inputs i0, i1, ... and the outputs o0, o1, .... Where ONNX Runtime
has no kernel, the results come from the reference implementation of the onnx package.
tests/unit/onnx/test_onnx_others.c loads and runs the files.
"""

import os
import sys
import zlib

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from onnx_sample import save_sample

FOLDER, PART = "", ""
TYPES = {"float32": TensorProto.FLOAT, "float64": TensorProto.DOUBLE, "int64": TensorProto.INT64, "int32": TensorProto.INT32,
         "bool": TensorProto.BOOL, "uint8": TensorProto.UINT8, "float16": TensorProto.FLOAT16}


def numbers(rng, spec):
    return np.asarray(spec) if isinstance(spec, (np.ndarray, np.generic)) else rng.standard_normal(spec).astype(np.float32)


def save_graph(name, nodes, inputs, outputs=1, constants=None, sizes=None, opset=21, reference=False):
    """Saves a graph of `nodes` with inputs i0, ... (arrays, or shapes of random arrays) and outputs o0, ....

    sizes: the shape of each input in the file; unknown sizes are names. constants: arrays or shapes by name.
    """
    if PART not in name:
        return
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    data = {f"i{k}": numbers(rng, x) for k, x in enumerate(inputs)}
    tensors = [numpy_helper.from_array(numbers(rng, x), k) for k, x in (constants or {}).items()]
    sizes = sizes or [x.shape for x in data.values()]
    graph = helper.make_graph(
        nodes, name,
        [helper.make_tensor_value_info(k, TYPES[str(x.dtype)], s) for (k, x), s in zip(data.items(), sizes)],
        [helper.make_empty_tensor_value_info(f"o{k}") for k in range(outputs)], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    for k, info in enumerate(onnx.shape_inference.infer_shapes(model).graph.output):
        model.graph.output[k].type.tensor_type.elem_type = info.type.tensor_type.elem_type
    if reference:
        results = ReferenceEvaluator(model).run(None, data)
    else:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        results = onnxruntime.InferenceSession(model.SerializeToString(), options).run(None, data)
    onnx.save(model, os.path.join(FOLDER, name + ".onnx"))
    save_sample(os.path.join(FOLDER, name + ".pb"), data.values(), [np.asarray(r) for r in results])


def save_node(name, op, inputs, outputs=1, constants=None, absent=(), **options):
    """Saves a graph of one node that reads all inputs, then the constants; inputs at positions `absent` are ""."""
    keep = {k: options.pop(k) for k in ("sizes", "opset", "reference") if k in options}
    names = [f"i{k}" for k in range(len(inputs))] + list(constants or {})
    for k in absent:
        names.insert(k, "")
    save_graph(name, [helper.make_node(op, names, [f"o{k}" for k in range(outputs)], name=op, **options)], inputs, outputs,
         constants, **keep)


def list_of(*items):
    return np.array(items, dtype=np.int64)


def recurrent():
    """x (T, N, I), W (D, G*H, I), R (D, G*H, H), B (D, 2*G*H)."""
    t, n, i, h = 4, 2, 3, 2
    for name, gates, d, more in [
            ("gru_reset", 3, 1, {}), ("gru_reset_both", 3, 2, {"direction": "bidirectional"}),
            ("gru_reset_back", 3, 1, {"direction": "reverse"}), ("gru_clip", 3, 1, {"clip": 0.4, "linear_before_reset": 1}),
            ("gru_functions", 3, 1, {"activations": ["HardSigmoid", "Softsign"], "activation_alpha": [0.3], "activation_beta": [0.4]}),
            ("lstm_clip", 4, 1, {"clip": 0.3}), ("lstm_forget", 4, 1, {"input_forget": 1}),
            ("lstm_functions", 4, 1, {"activations": ["Sigmoid", "Softsign", "Relu"]}),
            ("rnn_functions", 1, 2, {"direction": "bidirectional", "activations": ["LeakyRelu", "ScaledTanh"], "activation_alpha": [0.2, 0.7], "activation_beta": [0.5]}),
            ("rnn_clip", 1, 1, {"clip": 0.3})]:
        kind = {3: "GRU", 4: "LSTM", 1: "RNN"}[gates]
        save_node(name, kind, [(t, n, i)], 3 if gates == 4 else 2, {"w": (d, gates * h, i), "r": (d, gates * h, h), "b": (d, 2 * gates * h)}, hidden_size=h, **more)
    lengths = np.array([2, 4], dtype=np.int32)
    for direction in ("forward", "reverse"):
        save_node(f"gru_lengths_{direction}", "GRU", [(t, n, i)], 2, {"w": (1, 3 * h, i), "r": (1, 3 * h, h), "b": (1, 6 * h), "n": lengths, "h0": (1, n, h)},
            hidden_size=h, direction=direction)
    save_node("lstm_peepholes", "LSTM", [(t, n, i)], 3, {"w": (1, 4 * h, i), "r": (1, 4 * h, h), "b": (1, 8 * h), "h0": (1, n, h), "c0": (1, n, h), "p": (1, 3 * h)}, absent=[4], hidden_size=h)
    save_node("lstm_peepholes_both", "LSTM", [(t, n, i)], 3, {"w": (2, 4 * h, i), "r": (2, 4 * h, h), "b": (2, 8 * h), "n": lengths, "p": (2, 3 * h)}, absent=[5, 6],
        hidden_size=h, direction="bidirectional")
    save_node("gru_any", "GRU", [(t, n, i)], 2, {"w": (1, 3 * h, i), "r": (1, 3 * h, h)}, sizes=[("t", "n", i)], hidden_size=h)


def windows():
    pool = dict(kernel_shape=[3, 2], strides=[2, 1])
    save_node("average_uneven", "AveragePool", [(1, 2, 5, 4)], pads=[1, 0, 0, 1], **pool)
    save_node("average_uneven_counted", "AveragePool", [(1, 2, 5, 4)], pads=[1, 0, 0, 1], count_include_pad=1, **pool)
    save_node("average_same_upper", "AveragePool", [(1, 2, 5, 4)], auto_pad="SAME_UPPER", **pool)
    save_node("average_same_lower", "AveragePool", [(1, 2, 5, 4)], auto_pad="SAME_LOWER", **pool)
    save_node("average_valid", "AveragePool", [(1, 2, 5, 4)], auto_pad="VALID", **pool)
    save_node("average_any", "AveragePool", [(1, 2, 5, 4)], pads=[1, 0, 0, 1], sizes=[("n", 2, "h", "w")], **pool)
    save_node("average_1d", "AveragePool", [(1, 2, 6)], pads=[2, 0], kernel_shape=[3])
    save_node("average_3d", "AveragePool", [(1, 1, 3, 4, 3)], pads=[1, 0, 0, 0, 1, 1], kernel_shape=[2, 2, 2])
    up = dict(strides=[2, 2], kernel_shape=[3, 3])
    weight = {"w": (2, 3, 3, 3), "b": (3,)}
    save_node("transpose_uneven", "ConvTranspose", [(1, 2, 3, 4)], constants=weight, pads=[1, 0, 0, 1], **up)
    save_node("transpose_same_upper", "ConvTranspose", [(1, 2, 3, 4)], constants=weight, auto_pad="SAME_UPPER", **up)
    save_node("transpose_same_lower", "ConvTranspose", [(1, 2, 3, 4)], constants=weight, auto_pad="SAME_LOWER", **up)
    save_node("transpose_shape", "ConvTranspose", [(1, 2, 3, 4)], constants=weight, output_shape=[6, 8], **up)
    save_node("transpose_valid", "ConvTranspose", [(1, 2, 3, 4)], constants=weight, auto_pad="VALID", **up)
    save_node("transpose_more", "ConvTranspose", [(1, 2, 3, 4)], constants=weight, pads=[0, 1, 2, 1], output_padding=[1, 0], sizes=[("n", 2, "h", "w")], **up)


def sizes():
    """Lists computed from the sizes of inputs."""
    node = helper.make_node
    half = [node("Shape", ["i0"], ["s"], start=1, end=2), node("Div", ["s", "two"], ["a"]), node("Sub", ["s", "a"], ["b"]), node("Concat", ["a", "b"], ["pieces"], axis=0)]
    two = {"two": list_of(2)}
    save_graph("split_halves", half + [node("Split", ["i0", "pieces"], ["o0", "o1"], axis=1)], [(2, 5)], 2, two, [("n", "t")])
    save_graph("split_known", half + [node("Split", ["i0", "pieces"], ["o0", "o1"], axis=1)], [(2, 5)], 2, two)
    save_graph("split_even", [node("Split", ["i0"], ["o0", "o1", "o2"], axis=1, num_outputs=3)], [(2, 7)], 3, sizes=[("n", "t")])
    save_graph("split_one", [node("Split", ["i0"], ["o0"], axis=1, num_outputs=1)], [(2, 7)], 1, sizes=[("n", "t")])
    for mode in ("constant", "reflect", "edge", "wrap"):
        save_graph(f"pad_{mode}", [node("Shape", ["i0"], ["s"], start=1, end=2), node("Sub", ["most", "s"], ["k"]), node("Concat", ["none", "k"], ["pads"], axis=0),
                             node("Pad", ["i0", "pads", "" if mode != "constant" else "value"], ["o0"], mode=mode)],
             [(2, 5)], 1, {"most": list_of(8), "none": list_of(0, 1, 0), "value": np.float32(0.5)}, [("n", "t")])
    save_graph("pad_axes", [node("Shape", ["i0"], ["s"], start=2, end=3), node("Concat", ["one", "s"], ["pads"], axis=0), node("Pad", ["i0", "pads", "", "axis"], ["o0"])],
         [(2, 2, 3)], 1, {"one": list_of(1), "axis": list_of(-1)}, [("n", "c", "t")])
    for name, more in [("nearest", dict(mode="nearest", nearest_mode="floor", coordinate_transformation_mode="asymmetric")), ("linear", dict(mode="linear")),
                       ("corners", dict(mode="linear", coordinate_transformation_mode="align_corners"))]:
        save_graph(f"resize_{name}", [node("Shape", ["i0"], ["s"], start=2), node("Mul", ["s", "three"], ["m"]), node("Div", ["m", "two"], ["to"]),
                                node("Resize", ["i0", "", "", "to"], ["o0"], axes=[2, 3], **more)],
             [(1, 2, 4, 5)], 1, {"three": list_of(3), "two": list_of(2)}, [("n", 2, "h", "w")])
    save_graph("flatten_any", [node("Flatten", ["i0"], ["o0"], axis=2)], [(2, 3, 2, 2)], 1, sizes=[("a", "b", "c", "d")])
    save_graph("size_any", [node("Size", ["i0"], ["n"]), node("Cast", ["n"], ["f"], to=1), node("ReduceSum", ["i0"], ["s"], keepdims=0), node("Div", ["s", "f"], ["o0"])],
         [(2, 3)], 1, sizes=[("a", "b")])


def resize():
    x = [(1, 2, 4, 5)]
    sizes_of = {"to": list_of(1, 2, 7, 3)}
    for where in ("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric"):
        save_node(f"resize_cubic_{where}", "Resize", x, constants=sizes_of, absent=[1, 2], mode="cubic", coordinate_transformation_mode=where)
    for rounding in ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"):
        save_node(f"resize_{rounding}", "Resize", x, constants=sizes_of, absent=[1, 2], mode="nearest", nearest_mode=rounding)
    save_node("resize_outside", "Resize", x, constants=sizes_of, absent=[1, 2], mode="cubic", exclude_outside=1, cubic_coeff_a=-0.5)
    save_node("resize_smooth", "Resize", x, constants={"to": list_of(1, 2, 2, 3)}, absent=[1, 2], mode="linear", antialias=1, exclude_outside=1)
    save_node("resize_factors", "Resize", x, constants={"by": np.array([1, 1, 1.7, 0.6], dtype=np.float32)}, absent=[1], mode="linear")
    save_node("resize_channels", "Resize", x, constants={"to": list_of(1, 3, 4, 2)}, absent=[1, 2], mode="linear", reference=True)
    save_node("resize_matrix", "Resize", [(4, 5)], constants={"to": list_of(3, 7)}, absent=[1, 2], mode="linear")


def indices():
    x, i = (3, 4, 2), np.array([[0, -1], [2, 1]], dtype=np.int64)
    save_node("gather_negative", "Gather", [x, i], axis=1)
    save_node("gather_any", "Gather", [x, i], axis=1, sizes=[("a", "b", "c"), ("m", "n")])
    save_node("gather_scalar", "Gather", [x, np.array(-1, dtype=np.int64)], axis=1)
    save_node("gather_elements_negative", "GatherElements", [(3, 4), np.array([[-1, 0], [1, -4], [2, 3]], dtype=np.int64)], axis=1)
    save_node("gather_nd", "GatherND", [x, np.array([[0, -1], [2, 1], [-3, 3]], dtype=np.int64)])
    save_node("gather_nd_whole", "GatherND", [x, np.array([[[0, -1, 1]], [[2, 1, -2]]], dtype=np.int64)])
    save_node("gather_nd_any", "GatherND", [x, np.array([[0, -1], [2, 1]], dtype=np.int64)], sizes=[("a", "b", "c"), ("m", 2)])
    save_node("gather_nd_batch", "GatherND", [x, np.array([[1], [-1], [0]], dtype=np.int64)], batch_dims=1)
    places = np.array([[0, 1], [2, -1], [0, 1]], dtype=np.int64)
    for how in ("none", "add", "mul", "max", "min"):
        save_node(f"scatter_nd_{how}", "ScatterND", [x, places[:2] if how == "none" else places, (2 if how == "none" else 3, 2)], reduction=how)
        save_node(f"scatter_elements_{how}", "ScatterElements", [(2, 4), np.array([[0, -1, 2], [1, 3, 0 if how == "none" else 1]], dtype=np.int64), (2, 3)], axis=1, reduction=how)
    save_node("scatter_nd_any", "ScatterND", [x, places[:2], (2, 2)], sizes=[("a", "b", "c"), ("m", 2), ("m", "c")])
    save_node("nonzero", "NonZero", [np.array([[1, 0, 2], [0, 0, 3]], dtype=np.float32)])
    save_node("max_pool_indices", "MaxPool", [(2, 3, 4, 5)], 2, kernel_shape=[2, 2], strides=[2, 1], sizes=[("n", "c", "h", "w")])


def images():
    for mode in ("linear", "nearest"):
        for padding in ("zeros", "border", "reflection"):
            for corners in (0, 1):
                save_node(f"grid_{mode}_{padding}_{corners}", "GridSample", [(1, 2, 3, 4), np.linspace(-1.6, 1.55, 12, dtype=np.float32).reshape(1, 2, 3, 2)],
                    mode=mode, padding_mode=padding, align_corners=corners)
    save_node("grid_any", "GridSample", [(2, 2, 3, 4), (2, 2, 3, 2)], sizes=[("n", "c", "h", "w"), ("n", "a", "b", 2)])
    for corners in (0, 1):
        save_node(f"affine_grid_{corners}", "AffineGrid", [(2, 2, 3)], constants={"size": list_of(2, 1, 3, 4)}, align_corners=corners)
    save_node("affine_grid_3d", "AffineGrid", [(1, 3, 4)], constants={"size": list_of(1, 1, 2, 3, 2)})
    save_node("col2im", "Col2Im", [(1, 8, 4)], constants={"image": list_of(4, 4), "block": list_of(2, 2)}, strides=[2, 2])
    save_node("col2im_pads", "Col2Im", [(2, 4, 12)], constants={"image": list_of(3, 4), "block": list_of(2, 2)}, pads=[1, 0, 0, 1], sizes=[("n", 4, 12)])


def sequences():
    node = helper.make_node
    number = lambda k: np.array(k, dtype=np.int64)  # noqa: E731
    save_graph("sequence_split", [node("SplitToSequence", ["i0", "two"], ["s"], axis=1), node("SequenceAt", ["s", "last"], ["o0"]), node("SequenceLength", ["s"], ["o1"]),
                            node("ConcatFromSequence", ["s"], ["o2"], axis=1)], [(2, 5)], 3, {"two": number(2), "last": number(-1)})
    save_graph("sequence_sizes", [node("SplitToSequence", ["i0", "sizes"], ["s"], axis=1), node("SequenceAt", ["s", "one"], ["o0"])],
         [(2, 5)], 1, {"sizes": list_of(2, 3), "one": number(1)}, [("n", 5)])
    save_graph("sequence_rows", [node("SplitToSequence", ["i0"], ["s"], keepdims=0), node("ConcatFromSequence", ["s"], ["o0"], axis=1, new_axis=1)], [(3, 2)])
    save_graph("sequence_made", [node("SequenceConstruct", ["i0", "i1"], ["a"]), node("SequenceInsert", ["a", "i1", "zero"], ["b"]), node("SequenceErase", ["b", "last"], ["c"]),
                           node("SequenceEmpty", [], ["d"]), node("SequenceInsert", ["d", "i0"], ["e"]), node("SequenceAt", ["e", "zero"], ["f"]),
                           node("ConcatFromSequence", ["c"], ["g"], axis=0), node("Concat", ["g", "f"], ["o0"], axis=0)],
         [(1, 2), (2, 2)], 1, {"zero": number(0), "last": number(-1)})


def small():
    x = [(2, 3, 4)]
    save_node("sum_of_three", "Sum", [(2, 3), (1, 3), (2, 1)])
    save_node("mean_of_three", "Mean", [(2, 3), (1, 3), (2, 1)])
    save_node("max_of_three", "Max", [(2, 3), (1, 3), (2, 1)])
    save_node("min_of_one", "Min", [(2, 3)])
    save_node("hard_sigmoid", "HardSigmoid", x, alpha=0.4, beta=0.3)
    save_node("selu", "Selu", x, alpha=1.2, gamma=0.9)
    save_node("thresholded", "ThresholdedRelu", x, alpha=0.3)
    save_node("shrink", "Shrink", x, lambd=0.4, bias=0.1)
    save_node("shift_left", "BitShift", [np.array([1, 5, 9], dtype=np.uint8), np.array([1, 2, 3], dtype=np.uint8)], direction="LEFT")
    save_node("infinity", "IsInf", [np.array([np.inf, -np.inf, 1], dtype=np.float32)], detect_negative=0)
    save_node("cast_like", "CastLike", [np.array([1.5, -2], dtype=np.float32), np.array([1], dtype=np.int64)])
    save_node("sum_square", "ReduceSumSquare", x, constants={"axes": list_of(1, -1)}, keepdims=0)
    save_node("log_sum", "ReduceLogSum", [np.abs(np.linspace(-1, 2, 6, dtype=np.float32)).reshape(2, 3)], constants={"axes": list_of(1)})
    save_node("hardmax", "Hardmax", x, axis=1)
    save_node("lp_norm", "LpNormalization", x, axis=1, p=1)
    save_node("mean_variance", "MeanVarianceNormalization", [(2, 3, 2, 2)])
    save_node("eye", "EyeLike", [(3, 4)], k=1)
    save_node("depth_dcr", "DepthToSpace", [(1, 8, 2, 3)], blocksize=2)
    save_node("depth_any", "DepthToSpace", [(1, 8, 2, 3)], blocksize=2, mode="CRD", sizes=[("n", 8, "h", "w")])
    save_node("space_any", "SpaceToDepth", [(1, 2, 4, 6)], blocksize=2, sizes=[("n", 2, "h", "w")])
    save_node("clip_computed", "Clip", [x[0], np.float32(0.5)], absent=[1])
    save_node("rms_broadcast", "RMSNormalization", [(2, 3, 4), (4,)], axis=1, opset=23, reference=True)
    save_node("batch_norm_computed", "BatchNormalization", [(2, 3, 2), (3,), (3,), (3,), np.array([0.5, 1, 2], dtype=np.float32)])
    save_node("attention_flat", "Attention", [(1, 3, 8), (1, 4, 4), (1, 4, 4)], q_num_heads=2, kv_num_heads=1, opset=23, reference=True)
    save_node("attention_past", "Attention", [(1, 2, 3, 4), (1, 2, 2, 4), (1, 2, 2, 4), (3, 5)], 3, {"k": (1, 2, 3, 4), "v": (1, 2, 3, 4)}, opset=23, scale=0.3, reference=True)


def main():
    global FOLDER, PART
    FOLDER = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(os.path.abspath(__file__)), "onnx")
    PART = sys.argv[2] if len(sys.argv) > 2 else ""
    os.makedirs(FOLDER, exist_ok=True)
    for part in (recurrent, windows, sizes, resize, indices, images, sequences, small):
        part()


if __name__ == "__main__":
    main()
