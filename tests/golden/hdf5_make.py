"""Writes tests/golden/hdf5/{earliest,latest}.h5.gz with h5py: files of the oldest and the newest kind,
with the same contents. test_hdf5.c knows the values, which are formulas.

    python tests/golden/hdf5_make.py
"""
import gzip
import os
import tempfile

import h5py
import numpy as np
from h5py import h5d, h5p, h5s, h5t


def values(dtype, *dims):
    return (np.arange(np.prod(dims)) * 7 % 23 - 4 * (np.dtype(dtype).kind != "u")).astype(dtype).reshape(dims)


def add_all(f, newest):
    f.attrs["config"] = '{"class_name": "Sequential"}' * 40
    f.attrs["names"] = np.array([b"conv1", b"", b"fc7"])
    f.attrs["utf8"] = ["grün", "", "水"]
    f.attrs["numbers"] = values(">i2", 2, 3)
    f.attrs["flag"] = True
    f.attrs["empty"] = h5py.Empty("<f4")
    f.attrs["pair"] = np.zeros(1, [("x", "<i2")])
    f.attrs["part0"] = np.array([b"a", b"bb"])
    f.attrs["part1"] = np.array([b"ccc"])
    g = f.create_group("data/conv1")
    g.attrs["kind"] = "Convolution"
    g["0"] = values("<f4", 2, 3)
    g["0"].attrs["scale"] = 0.5
    g["1"] = values(">f8", 2)
    g["soft"] = h5py.SoftLink("/data/conv1/0")
    g["near"] = h5py.SoftLink("../x")
    g["circle"] = h5py.SoftLink("circle")
    f["same"] = g["0"]
    f.create_group("far")["x"] = h5py.ExternalLink("other.h5", "/x")  # no symbol table can have it
    t = f.create_group("types")
    for dtype in ("i1", "u1", "<i2", ">u2", ">i4", "<u4", "<i8", ">u8", "<f2", ">f2", ">f4", "<f8"):
        t[dtype[-2:] + ("be" if dtype[0] == ">" else "")] = values(dtype, 5)
    t["bool"] = np.array([True, False, True])
    t["enum"] = np.array([1, 2], h5py.enum_dtype({"A": 1, "B": 2}, ">u2"))
    t["scalar"] = np.float32(2.5)
    t["none"] = h5py.Empty("<f8")
    t["rows0"] = values("<i4", 0, 3)
    low = h5t.IEEE_F32LE.copy()
    low.set_fields(15, 7, 8, 0, 7)
    low.set_precision(16)
    low.set_size(2)
    h5d.create(t.id, b"bf16", low, h5s.create_simple((4,))).write(
        h5s.ALL, h5s.ALL, np.array([1.5, -2, 0, 3e38], "<f4"))
    t["fixed"] = np.array([b"one", b"three", b""])
    low = h5t.C_S1.copy()
    low.set_size(7)
    low.set_strpad(h5t.STR_SPACEPAD)
    h5d.create(t.id, b"spaces", low, h5s.create_simple((2,))).write(
        h5s.ALL, h5s.ALL, np.array([b" one", b"seven b"]), h5t.py_create(np.dtype("S7")))
    t.create_dataset("variable", data=["eins", "", "drei ü"], dtype=h5py.string_dtype())
    t["compound"] = np.zeros(2, [("a", "<i4"), ("b", "<f8")])
    plist = h5p.create(h5p.DATASET_CREATE)
    plist.set_layout(h5d.COMPACT)
    h5d.create(t.id, b"compact", h5t.STD_I32LE, h5s.create_simple((6,)), plist).write(h5s.ALL, h5s.ALL, values("<i4", 6))
    c = f.create_group("chunks")
    c.create_dataset("all", data=values(">i2", 7, 5), chunks=(3, 2), compression=9, shuffle=True, fletcher32=True)
    c.create_dataset("single", data=values("<f4", 4, 5), chunks=(4, 5), compression=1)
    c.create_dataset("grow", data=values("<i4", 7, 5), chunks=(2, 2), maxshape=(7, None))
    c.create_dataset("grow2", data=values("<f4", 7, 5), chunks=(3, 2), maxshape=(None, None), compression=1)
    c.create_dataset("first", data=values("u1", 40), chunks=(1,), maxshape=(None,))
    d = c.create_dataset("part", (6, 6), "<i2", chunks=(2, 4), maxshape=(9, 9), fillvalue=9)
    d[3:5, 1:3] = values("<i2", 2, 2)
    plist = h5p.create(h5p.DATASET_CREATE)
    plist.set_chunk((2, 3))
    plist.set_alloc_time(h5d.ALLOC_TIME_EARLY)
    h5d.create(c.id, b"early", h5t.STD_I32LE, h5s.create_simple((3, 5)), plist).write(h5s.ALL, h5s.ALL, values("<i4", 3, 5))
    c.create_dataset("lzf", data=values("<i4", 8), chunks=(4,), compression="lzf")
    many = f.create_group("many")
    for i in range(60):
        many.create_group("group number %d" % i)
        many.attrs["attribute %d" % i] = i
    if newest:
        many.attrs["large"] = values("<f4", 17000)  # outside of the heap's blocks
        many.attrs["large2"] = values(">f4", 17001)


def main():
    here = os.path.join(os.path.dirname(os.path.abspath(__file__)), "hdf5")
    for libver in ("earliest", "latest"):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "a.h5")
            with h5py.File(path, "w", libver=libver) as f:
                add_all(f, libver == "latest")
            with open(path, "rb") as f, open(os.path.join(here, libver + ".h5.gz"), "wb") as out:
                out.write(gzip.compress(f.read(), 9, mtime=0))
            print(libver, os.path.getsize(path), os.path.getsize(os.path.join(here, libver + ".h5.gz")))


if __name__ == "__main__":
    main()
