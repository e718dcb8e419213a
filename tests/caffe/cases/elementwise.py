"""elementwise.py - layers that compute each element by a formula."""
import numpy as np

from case import Case, E, generator, layer


def optional(r, **fields):
    """Some of the fields, or None."""
    chosen = {name: value for name, value in fields.items() if r.maybe(0.7)}
    return chosen or None


def with_ties(r, shape):
    """Values of which many are 0 or equal."""
    return r.integers(shape, -2, 2) * np.float32(0.5)


def single(type_name, count=30, ties=True, tolerance=1e-5, backward=True, **draw):
    """A generator of a layer with one bottom. The values of `draw` are functions of r."""

    @generator(type_name, count)
    def case(r):
        shape = r.shape(r.integer(1, 4))
        fields = {}
        for name, message in draw.items():
            fields[name] = optional(r, **{k: v(r) for k, v in message.items()})
        x = with_ties(r, shape) if ties and r.maybe(0.3) else shape
        # In place, Caffe's gradients of BNLL and of negative slopes are those at y instead of x.
        in_place = r.maybe(0.3) and type_name in ("ReLU", "ELU", "TanH", "Sigmoid", "Exp")
        if in_place and (fields.get("relu_param") or {}).get("negative_slope", 0) < 0:
            in_place = False
        layers = layer(type_name, ["x"], ["y"], **fields)
        if in_place:
            layers = layer("Power", ["x"], ["y"], name="first") + layer(type_name, ["y"], ["y"], **fields)
        return Case(layers, {"x": x}, backward=backward, tolerance=tolerance)


def number(low, high):
    return lambda r: round(r.uniform(low, high), 3)


single("ReLU", relu_param={"negative_slope": number(-0.2, 0.9), "engine": lambda r: E("CAFFE")})
single("TanH")
single("Sigmoid")
single("AbsVal")
single("ELU", elu_param={"alpha": number(0.1, 2)})
single("BNLL")
single("Swish", swish_param={"beta": number(-2, 2)})
single("Threshold", backward=False, threshold_param={"threshold": lambda r: r.choice([0.5, -0.5, 0.0, 1.0])})
single("Exp", exp_param={"base": number(0.5, 3), "scale": number(-1, 1), "shift": number(-1, 1)})


@generator("Clip", 20)  # the package does not have it
def clip(r):
    low, high = number(-1, 0.2)(r), number(0.3, 1.5)(r)

    def reference(given, gradient):
        x = given["in:x"]
        inside = (x >= low) & (x <= high)
        return {"top:y": np.clip(x, low, high), "gin:x": np.where(inside, gradient("y", x.shape), 0)}

    return Case(layer("Clip", ["x"], ["y"], clip_param={"min": low, "max": high}), {"x": r.shape(r.integer(1, 4))},
                reference=reference)


@generator("Power", 40)
def power(r):
    shape = r.shape(r.integer(1, 4))
    power = r.choice([0, 1, 2, 3, 0.5, -1, 1.7])
    x, p = shape, {"power": power, "scale": number(-2, 2)(r), "shift": number(-1, 1)(r)}
    if power not in (0, 1, 2, 3):  # of positive numbers
        p["scale"], p["shift"] = number(0.1, 2)(r), r.choice([0.0, number(0, 1)(r)])
        x = r.array(shape, 0.2, 2)
    if r.maybe(0.2):
        p["scale"] = 0.0
        p["shift"] = 0.75
    return Case(layer("Power", ["x"], ["y"], power_param=optional(r, **p) if power in (0, 1, 2, 3) else p), {"x": x})


@generator("Log", 30)
def log(r):
    p = optional(r, base=r.choice([2.0, 10.0, 0.5, -1.0]), scale=number(0.1, 2)(r), shift=number(0, 1)(r))
    return Case(layer("Log", ["x"], ["y"], log_param=p), {"x": r.array(r.shape(r.integer(1, 4)), 0.1, 3)})


@generator("Eltwise", 80)
def eltwise(r):
    shape, n = r.shape(r.integer(1, 4)), r.integer(2, 5)
    names = ["x%d" % i for i in range(n)]
    operation = r.choice(["PROD", "SUM", "MAX", None])
    p = {"operation": E(operation) if operation else None}
    ties = operation == "MAX" and r.maybe()
    if operation in ("SUM", None) and r.maybe() or operation == "MAX" and r.maybe(0.1):
        p["coeff"] = [r.choice([1.0, -1.0, number(-2, 2)(r)]) for _ in names]
    if operation == "PROD" and r.maybe():
        p["stable_prod_grad"] = r.maybe()
    bottoms = names + ["x0"] if r.maybe(0.15) and "coeff" not in p else names
    return Case(layer("Eltwise", bottoms, ["y"], eltwise_param=p),
                {name: with_ties(r, shape) if ties else shape for name in names})


@generator("Eltwise", 6)
def eltwise_refused(r):
    shape = r.shape(3, least=2)
    other, p = shape, {}
    what = r.integer(0, 2)
    if what == 0:
        other = shape[:2] + (shape[2] + 1,)
    elif what == 1:
        p = {"coeff": [1.0, 2.0, 3.0]}
    else:
        p = {"operation": E("PROD"), "coeff": [1.0, 2.0]}
    return Case(layer("Eltwise", ["a", "b"], ["y"], eltwise_param=p), {"a": shape, "b": other}, refused=True)


@generator("Dropout", 10)
def dropout(r):
    p = optional(r, dropout_ratio=number(0.1, 0.9)(r))
    return Case(layer("Dropout", ["x"], ["y"], dropout_param=p), {"x": r.shape(r.integer(1, 4))}, phase="TEST")
