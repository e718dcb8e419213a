"""ssd.py - the layer of SSD that this Caffe has; opencv_cases.py has the others."""
from case import Case, generator, layer


@generator("Permute", 40)
def permute(r):
    rank = r.integer(1, 5)
    order = list(range(rank))
    r.shuffle(order)
    return Case(layer("Permute", ["x"], ["y"], permute_param={"order": order[:r.integer(0, rank)]}), {"x": r.shape(rank)})
