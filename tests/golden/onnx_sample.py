"""onnx_sample.py - the inputs and outputs of a model, for torch_make.py and onnx_make.py.

NAME.pb is a ModelProto without nodes, whose initializers are the tensors i0, i1, ..., o0, o1, .... It is hardly
larger than the data.
"""

from onnx import helper, numpy_helper


def save_sample(path, inputs, outputs):
    tensors = [numpy_helper.from_array(x, f"{letter}{k}") for letter, values in (("i", inputs), ("o", outputs)) for k, x in enumerate(values)]
    model = helper.make_model(helper.make_graph([], "sample", [], [], tensors))
    with open(path, "wb") as out:
        out.write(model.SerializeToString())
