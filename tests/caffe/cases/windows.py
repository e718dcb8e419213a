"""windows.py - layers with weights and windows."""
from case import Case, E, generator, layer


@generator("InnerProduct", 40)
def inner_product(r):
    rank = r.integer(1, 5)
    shape = r.shape(rank)
    axis = r.integer(0, rank - 1)
    p = {"num_output": r.integer(1, 6)}
    if r.maybe(0.8):
        p["axis"] = axis - rank if r.maybe(0.3) else axis
    elif rank < 2:
        p["axis"] = 0
    if r.maybe(0.4):
        p["transpose"] = r.maybe()
    if r.maybe(0.4):
        p["bias_term"] = r.maybe()
    return Case(layer("InnerProduct", ["x"], ["y"], inner_product_param=p), {"x": shape})
