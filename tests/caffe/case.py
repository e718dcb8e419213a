"""case.py - what generators of cases use (cases/*.py): nets as text, shapes, data.

    from case import Case, E, generator, layer

    @generator("Scale", 40)                  # 40 random cases of this type
    def scale(r):
        shape = r.shape(4)
        return Case(layer("Scale", ["x"], ["y"], scale_param={"axis": r.integer(0, 3)}), {"x": shape})

An input is a shape, whose values are drawn from [-2, 2), or an array. Values are a function of a seed and
the element's number, so that the C tests of recorded cases make the same ones.
"""
import random

import numpy as np

GENERATORS = []  # (type, count, function, family)


class E(str):
    """The name of an enum's value: E("MAX")."""


def generator(type_name, count=40):
    def add(function):
        GENERATORS.append((type_name, count, function, function.__module__.split(".")[-1]))
        return function

    return add


def draw(shape, seed, scale=2.0):
    """f32 numbers in [-scale, scale)."""
    count = int(np.prod(shape, dtype=np.int64))
    with np.errstate(over="ignore"):
        h = np.arange(count, dtype=np.uint32) * np.uint32(0x9E3779B9) + np.uint32(seed * 0x85EBCA6B % 2 ** 32)
        h ^= h >> np.uint32(16)
        h *= np.uint32(0x85EBCA6B)
        h ^= h >> np.uint32(13)
        h *= np.uint32(0xC2B2AE35)
        h ^= h >> np.uint32(16)
    values = ((h >> np.uint32(8)).astype(np.float64) / 2 ** 23 - 1) * scale
    return values.astype(np.float32).reshape(shape)


class Random(random.Random):
    """The choices of one case."""

    def integer(self, least, most):
        return self.randint(least, most)

    def maybe(self, likely=0.5):
        return self.random() < likely

    def shape(self, rank, least=1, most=5):
        return tuple(self.randint(least, most) for _ in range(rank))

    def array(self, shape, low=-2.0, high=2.0):
        """An array of f32 that is stored with the case, for inputs that must have certain values."""
        values = [self.uniform(low, high) for _ in range(int(np.prod(shape, dtype=np.int64)))]
        return np.round(np.array(values, np.float64), 4).astype(np.float32).reshape(shape)

    def integers(self, shape, least, most):
        values = [self.randint(least, most) for _ in range(int(np.prod(shape, dtype=np.int64)))]
        return np.array(values, np.float32).reshape(shape)


def value_text(value):
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, E):
        return str(value)
    if isinstance(value, str):
        return '"%s"' % value
    return repr(value)


def fields_text(fields, indent):
    text = ""
    for name, value in fields.items():
        for item in value if isinstance(value, (list, tuple)) else [value]:
            if item is None:
                continue
            if isinstance(item, dict):
                text += "%s%s {\n%s%s}\n" % (indent, name, fields_text(item, indent + "  "), indent)
            else:
                text += "%s%s: %s\n" % (indent, name, value_text(item))
    return text


def layer(type_name, bottoms, tops, name=None, **fields):
    """The text of a layer; fields that are None are left out. Its name is that of its first top."""
    head = {"name": name or (tops[0] if tops else type_name.lower()), "type": type_name, "bottom": bottoms, "top": tops}
    head.update(fields)
    return "layer {\n%s}\n" % fields_text(head, "  ")


def blob(name, shape):
    """A blob as a bottom. Its gradient is one of a parameter, for layers that Caffe cannot force backward."""
    return layer("Parameter", [], [name], parameter_param={"shape": {"dim": list(shape)}})


class Case:
    """A net with inputs.
    inputs        name -> shape, or an array
    phase         "TRAIN" or "TEST"
    blobs         (layer, number) -> an array, or a function of the shape; others are drawn, times `scale`
    no_grad       names of outputs without a gradient
    no_input_grad names of inputs whose gradient is not compared
    backward      False: only the outputs are compared
    refused       True: Caffe and the library must both refuse it
    force         False: no gradients of the inputs (force_backward), for layers that refuse to have them
    reference     function(given, gradient) in place of Caffe, for what the package does not compute: it returns
                  the results by their names (tests/harness/caffe_run.h). given["in:x"] are the inputs and `blobs`,
                  which must all be there; gradient("y", shape) is the gradient of an output.
    tolerance     of outputs and gradients, relative to 1 + the largest number of the tensor
    """

    def __init__(self, layers, inputs, phase="TEST", blobs=None, no_grad=(), no_input_grad=(), backward=True,
                 refused=False, tolerance=1e-5, scale=1.0, force=True, reference=None):
        self.layers, self.inputs, self.phase, self.blobs = layers, inputs, phase, blobs or {}
        self.no_grad, self.no_input_grad, self.backward = no_grad, no_input_grad, backward
        self.refused, self.tolerance, self.scale, self.force = refused, tolerance, scale, force
        self.reference = reference

    def text(self):
        head = 'name: "case"\n%s' % ("force_backward: true\n" if self.force else "")
        for name, value in self.inputs.items():
            shape = value.shape if hasattr(value, "shape") else value
            head += 'input: "%s"\ninput_shape { %s }\n' % (name, " ".join("dim: %d" % d for d in shape))
        return head + self.layers
