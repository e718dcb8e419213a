"""losses.py - losses, and Accuracy. Caffe 1.0 refuses their second top for probabilities."""
import numpy as np

from case import Case, E, blob, generator, layer

MODES = ["FULL", "VALID", "BATCH_SIZE", "NONE"]


def loss_param(r, labels, ignore=True, normalize=True):
    """A LossParameter for these labels, some of which it may ignore."""
    p = {}
    if r.maybe(0.7):
        p["normalization"] = E(r.choice(MODES))
    elif normalize and r.maybe():
        p["normalize"] = r.maybe()
    if ignore and r.maybe():
        p["ignore_label"] = int(labels.flat[r.integer(0, labels.size - 1)]) if r.maybe(0.8) else 99
    return p or None


def classified(r, axis=1):
    """Scores and labels: the shape, the axis of the classes, labels."""
    rank = r.integer(max(axis + 1, 2), 4)
    shape = r.shape(rank)
    count = shape[:axis] + shape[axis + 1:]
    labels = r.integers(count, 0, shape[axis] - 1)
    if r.maybe() and rank > 2 and axis == 1:
        labels = labels.reshape((shape[0], 1) + shape[2:])
    return shape, labels


@generator("SoftmaxWithLoss", 100)
def softmax_loss(r):
    axis = r.choice([1, 1, 1, 2])
    shape, labels = classified(r, axis)
    p = loss_param(r, labels)
    if p and "ignore_label" in p and r.maybe(0.3):
        labels.flat[0] = p["ignore_label"] = r.choice([-1, 255])
    s = {"axis": axis if r.maybe() else axis - len(shape)} if axis != 1 or r.maybe(0.3) else None
    return Case(layer("SoftmaxWithLoss", ["x", "label"], ["loss"], loss_param=p, softmax_param=s), {"x": shape, "label": labels},
                no_input_grad=("label",))


@generator("SoftmaxWithLoss", 6)
def softmax_loss_ignored(r):
    labels = np.full((3,), 7, np.float32)
    return Case(layer("SoftmaxWithLoss", ["x", "label"], ["loss"], loss_param={"ignore_label": 7,
                                                                           "normalization": E(r.choice(MODES))}),
                {"x": (3, 4), "label": labels}, no_input_grad=("label",))


@generator("SoftmaxWithLoss", 4)
def softmax_loss_refused(r):
    return Case(layer("SoftmaxWithLoss", ["x", "label"], ["loss"]), {"x": (3, 4), "label": r.choice([(4,), (3, 4), (2,)])},
                refused=True)


@generator("MultinomialLogisticLoss", 40)
def multinomial(r):
    shape = r.shape(r.integer(2, 4))
    labels = r.integers((shape[0],), 0, int(np.prod(shape[1:])) - 1)
    p = r.array(shape, 0.01, 1)
    if r.maybe(0.3):
        p[0] = 0
    return Case(layer("MultinomialLogisticLoss", ["p", "label"], ["loss"]), {"p": p, "label": labels},
                no_input_grad=("label",))


@generator("HingeLoss", 60)
def hinge(r):
    shape = r.shape(r.integer(2, 4))
    labels = r.integers((shape[0],), 0, int(np.prod(shape[1:])) - 1)
    p = {"norm": E(r.choice(["L1", "L2"]))} if r.maybe(0.8) else None
    x = r.integers(shape, -2, 2) if r.maybe(0.3) else shape
    return Case(layer("HingeLoss", ["x", "label"], ["loss"], hinge_loss_param=p), {"x": x, "label": labels},
                no_input_grad=("label",))


@generator("EuclideanLoss", 40)
def euclidean(r):
    shape = r.shape(r.integer(1, 3))
    other = shape + (1,) if r.maybe(0.2) else shape
    return Case(layer("EuclideanLoss", ["x", "t"], ["loss"]), {"x": shape, "t": other})


@generator("EuclideanLoss", 3)
def euclidean_refused(r):
    return Case(layer("EuclideanLoss", ["x", "t"], ["loss"]), {"x": (3, 4), "t": r.choice([(3, 5), (4, 3), (3,)])},
                refused=True)


@generator("SigmoidCrossEntropyLoss", 60)
def sigmoid_loss(r):
    shape = r.shape(r.integer(1, 4))
    labels = r.integers(shape, 0, 1)
    p = loss_param(r, labels)
    target = labels if p and "ignore_label" in p else r.choice([labels, r.array(shape, 0, 1)])
    return Case(layer("SigmoidCrossEntropyLoss", ["x", "t"], ["loss"], loss_param=p), {"x": shape, "t": target},
                no_input_grad=("t",))


@generator("ContrastiveLoss", 50)
def contrastive(r):
    n, c = r.integer(1, 5), r.integer(1, 5)
    shape = (n, c) + (1,) * r.choice([0, 2])
    p = {}
    if r.maybe():
        p["margin"] = round(r.uniform(0.5, 4), 3)
    if r.maybe():
        p["legacy_version"] = r.maybe()
    a = r.array(shape, -1, 1)
    b = a.copy() if r.maybe(0.15) else r.array(shape, -1, 1)
    labels = r.integers((n,) + (1,) * r.choice([0, 1, 3]), 0, 1)
    return Case(layer("ContrastiveLoss", ["a", "b", "s"], ["loss"], contrastive_loss_param=p or None),
                {"a": a, "b": b, "s": labels}, no_input_grad=("s",))


@generator("InfogainLoss", 60)
def infogain(r):
    axis = r.choice([1, 1, 2])
    shape, labels = classified(r, axis)
    k = shape[axis]
    s = {"axis": axis} if axis != 1 or r.maybe(0.3) else None
    return Case(blob("x", shape) + layer("InfogainLoss", ["x", "label", "h"], ["loss"], infogain_loss_param=s,
                                         loss_param=loss_param(r, labels, normalize=False)),
                {"label": labels, "h": r.array((1, 1, k, k), 0, 1)}, no_input_grad=("label", "h"), force=False, scale=2.0)


@generator("Accuracy", 80)
def accuracy(r):
    axis = r.choice([0, 1, 1, 1, 2])
    shape, labels = classified(r, axis)
    p = {}
    if axis != 1 or r.maybe(0.3):
        p["axis"] = axis if r.maybe() else axis - len(shape)
    if r.maybe():
        p["top_k"] = r.integer(1, shape[axis])
    if r.maybe(0.4):
        p["ignore_label"] = int(labels.flat[0])
    x = r.integers(shape, 0, 2) if r.maybe(0.3) else shape
    tops = ["accuracy", "classes"] if r.maybe(0.4) else ["accuracy"]
    return Case(layer("Accuracy", ["x", "label"], tops, accuracy_param=p or None), {"x": x, "label": labels},
                backward=False)


@generator("Accuracy", 4)
def accuracy_refused(r):
    p, labels = r.choice([({"top_k": 9}, (3,)), ({}, (4,)), ({"axis": 2}, (3,))])
    return Case(layer("Accuracy", ["x", "label"], ["accuracy"], accuracy_param=p), {"x": (3, 4), "label": labels},
                backward=False, refused=True)


@generator("Filter", 30)
def loss_of_selected(r):
    n, kind = r.integer(2, 6), r.choice(["SoftmaxWithLoss", "HingeLoss", "InfogainLoss", "Accuracy"])
    selector = r.integers((n,), 0, 1)
    selector[r.integer(0, n - 1)] = 1
    inputs = {"label": r.integers((n,), 0, 3), "s": selector}
    bottoms, p = ["y", "labels"], None
    if kind == "InfogainLoss":
        bottoms, inputs["h"] = bottoms + ["h"], r.array((1, 1, 4, 4), 0, 1)
    if kind in ("SoftmaxWithLoss", "InfogainLoss"):
        p = loss_param(r, inputs["label"], normalize=False)
    layers = blob("x", (n, 5)) + layer("Filter", ["x", "s"], ["rows"]) + layer("Filter", ["label", "s"], ["labels"])
    layers += layer("InnerProduct", ["rows"], ["y"], inner_product_param={"num_output": 4})
    return Case(layers + layer(kind, bottoms, ["out"], loss_param=p), inputs, no_input_grad=("label", "s", "h"),
                force=False, backward=kind != "Accuracy")
