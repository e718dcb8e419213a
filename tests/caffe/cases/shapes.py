"""shapes.py - layers that move, select, sum or normalize elements."""
import numpy as np

from case import Case, E, blob, generator, layer


def signed(r, axis, rank):
    """The axis, sometimes counted from the end."""
    return axis - rank if r.maybe(0.3) else axis


@generator("Softmax", 40)
def softmax(r):
    rank = r.integer(1, 4)
    shape, axis = r.shape(rank), r.integer(0, rank - 1)
    p = None if axis == 1 and r.maybe() else {"axis": signed(r, axis, rank)}
    return Case(layer("Softmax", ["x"], ["y"], softmax_param=p), {"x": shape})


@generator("Concat", 50)
def concat(r):
    rank, n = r.integer(1, 5), r.integer(1, 4)
    shape, axis = r.shape(rank), r.integer(0, rank - 1)
    shapes = [shape[:axis] + (r.integer(1, 4),) + shape[axis + 1:] for _ in range(n)]
    names = ["x%d" % i for i in range(n)]
    p = {"concat_dim": axis} if r.maybe(0.3) else {"axis": signed(r, axis, rank)}
    if axis == 1 and r.maybe(0.3):
        p = None
    return Case(layer("Concat", names, ["y"], concat_param=p), dict(zip(names, shapes)))


@generator("Slice", 60)
def cut(r):
    rank, n = r.integer(1, 4), r.integer(1, 4)
    if r.maybe(0.15):
        n = 9
    axis, p, shape = r.integer(0, rank - 1), {}, list(r.shape(rank, most=4))
    if r.maybe() and n > 1:
        sizes = [r.integer(1, 3) for _ in range(n)]
        p["slice_point"] = [int(v) for v in np.cumsum(sizes)[:-1]]
        shape[axis] = sum(sizes)
    else:
        shape[axis] = n * r.integer(1, 3)
    p["slice_dim" if r.maybe(0.3) else "axis"] = axis
    if "axis" in p:
        p["axis"] = signed(r, axis, rank)
    return Case(layer("Slice", ["x"], ["y%d" % i for i in range(n)], slice_param=p), {"x": tuple(shape)})


@generator("Slice", 6)
def cut_refused(r):
    p, tops = r.choice([({"slice_point": [1, 2]}, ["a", "b"]), ({"slice_point": [3, 2]}, ["a", "b", "c"]),
                        ({}, ["a", "b", "c"]), ({"slice_point": [5, 9]}, ["a", "b", "c"])])
    return Case(layer("Slice", ["x"], tops, slice_param=p), {"x": (2, 5, 3)}, refused=True)


@generator("Split", 15)
def split(r):
    n = r.integer(1, 4)
    return Case(layer("Split", ["x"], ["y%d" % i for i in range(n)]), {"x": r.shape(r.integer(1, 4))})


@generator("Flatten", 40)
def flatten(r):
    rank = r.integer(1, 5)
    first = r.integer(0, rank - 1)
    p = {"axis": signed(r, first, rank), "end_axis": signed(r, r.integer(first, rank - 1), rank)}
    if r.maybe(0.3) and rank > 1:
        p = None
    return Case(layer("Flatten", ["x"], ["y"], flatten_param=p), {"x": r.shape(rank)})


@generator("Reshape", 60)
def reshape(r):
    rank = r.integer(1, 4)
    x = list(r.shape(rank))
    first = r.integer(0, rank)
    count = r.integer(0, rank - first)
    sizes = []
    for size in x[first:first + count]:
        sizes.append(0 if r.maybe() else size)
    if r.maybe() and sizes:
        sizes[r.integer(0, len(sizes) - 1)] = -1
    elif sizes and r.maybe():
        last = sizes.pop() or x[first + len(sizes)]
        sizes += r.choice([[last, 1], [1, last], [-1, 1]])
    elif r.maybe():
        sizes.append(1)
    p = {"shape": {"dim": sizes}, "axis": first - rank - 1 if r.maybe(0.3) else first, "num_axes": count}
    if first + count == rank and r.maybe():
        del p["num_axes"]
    return Case(layer("Reshape", ["x"], ["y"], reshape_param=p), {"x": tuple(x)})


@generator("Reshape", 8)
def reshape_refused(r):
    p = r.choice([{"shape": {"dim": [7, -1]}}, {"shape": {"dim": [-1, -1]}}, {"shape": {"dim": [0, 0, 0, 0]}},
                  {"shape": {"dim": [2]}, "axis": 1, "num_axes": 3}, {"shape": {"dim": [24]}, "axis": 5},
                  {"shape": {"dim": [2, 3]}}, {"shape": {"dim": [-2, 3]}}])
    return Case(layer("Reshape", ["x"], ["y"], reshape_param=p), {"x": (2, 3, 4)}, refused=True)


@generator("Tile", 30)
def tile(r):
    rank = r.integer(1, 4)
    axis = r.integer(0, rank - 1)
    p = {"tiles": r.integer(1, 4), "axis": signed(r, axis, rank)}
    if axis == 1 and r.maybe():
        del p["axis"]
    return Case(layer("Tile", ["x"], ["y"], tile_param=p), {"x": r.shape(rank)})


@generator("Reduction", 60)
def reduction(r):
    rank = r.integer(1, 4)
    operation, p = r.choice(["SUM", "ASUM", "SUMSQ", "MEAN", None]), {}
    if operation:
        p["operation"] = E(operation)
    if r.maybe(0.8):
        p["axis"] = signed(r, r.integer(0, rank - 1), rank)
    if r.maybe():
        p["coeff"] = round(r.uniform(-2, 2), 3)
    shape = r.shape(rank)
    x = r.integers(shape, -1, 1) if r.maybe(0.2) else shape
    return Case(layer("Reduction", ["x"], ["y"], reduction_param=p or None), {"x": x})


@generator("ArgMax", 50)
def arg_max(r):
    rank = r.integer(1, 5)
    shape, p = r.shape(rank), {}
    size = int(np.prod(shape[1:]))
    if r.maybe():
        axis = r.integer(0, rank - 1)
        p["axis"], size = signed(r, axis, rank), shape[axis]
    if r.maybe():
        p["top_k"] = r.integer(1, size)
    if r.maybe():
        p["out_max_val"] = r.maybe()
    x = r.integers(shape, 0, 2) if r.maybe(0.4) else shape
    return Case(layer("ArgMax", ["x"], ["y"], argmax_param=p or None), {"x": x}, backward=False)


@generator("ArgMax", 3)
def arg_max_refused(r):
    return Case(layer("ArgMax", ["x"], ["y"], argmax_param={"top_k": 7, "axis": r.choice([None, 1])}), {"x": (2, 3, 2)},
                refused=True, backward=False)


@generator("BatchReindex", 30)
def batch_reindex(r):
    shape = r.shape(r.integer(1, 4))
    index = r.integers((r.integer(1, 6),), 0, shape[0] - 1)
    return Case(blob("x", shape) + layer("BatchReindex", ["x", "index"], ["y"], loss_weight=1), {"index": index},
                no_input_grad=("index",), force=False)


@generator("MVN", 50)
def mvn(r):
    rank = r.integer(2, 4)
    p = {}
    if r.maybe():
        p["normalize_variance"] = r.maybe()
    if r.maybe():
        p["across_channels"] = r.maybe()
    if r.maybe(0.3):
        p["eps"] = r.choice([0.1, 1e-5, 0.5])
    shape = r.shape(rank, least=2)
    small = int(np.prod(shape[1 if p.get("across_channels") else 2:])) < 3  # the gradient is a difference of equals
    return Case(layer("MVN", ["x"], ["y"], mvn_param=p or None), {"x": shape}, tolerance=1e-4 if small else 2e-5)


@generator("Parameter", 15)
def parameter(r):
    shape = r.shape(r.integer(1, 4))
    return Case(layer("Parameter", [], ["p"], parameter_param={"shape": {"dim": list(shape)}}) +
                layer("Eltwise", ["x", "p"], ["y"]), {"x": shape})


@generator("Silence", 5)
def silence(r):
    return Case(layer("Split", ["x"], ["a", "b"]) + layer("Silence", ["b"], []), {"x": r.shape(3)})


@generator("Filter", 40)
def select(r):
    n, count = r.integer(1, 3), r.integer(1, 6)
    names = ["x%d" % i for i in range(n)]
    selector = r.integers((count,) + (1,) * r.integer(0, 3), -1, 1)
    selector.flat[r.integer(0, count - 1)] = 1  # Caffe dies if nothing is selected
    blobs = "".join(blob(name, (count,) + r.shape(r.integer(0, 3))) for name in names)
    return Case(blobs + layer("Filter", names + ["s"], ["y%d" % i for i in range(n)], loss_weight=[1] * n),
                {"s": selector}, no_input_grad=("s",), force=False)
