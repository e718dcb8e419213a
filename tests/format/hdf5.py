"""Compares the library's HDF5 reader and writer with h5py: makes random files and checks that each
object of them is read with h5py's values, or refused where h5py's type or storage has a name that
the library does not support; then that h5py reads the library's copy. Run by packages.sh.

    hdf5.py [--files 2000] [--seed 1] [--keep FOLDER] [--dump PROGRAM]

The program is tests/format/hdf5_dump.c; GRADUS_HDF5_DUMP names it, too.
"""
import argparse
import collections
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile

import h5py
import numpy as np
from h5py import h5d, h5f, h5p, h5s, h5t

counts = collections.Counter()
NUMBERS = [o + k for o in "<>" for k in ("i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8")]
LETTERS = "abcXYZ 019_./:-é中"
DTYPES = {"bool": np.uint8, "u8": np.uint8, "i8": np.int8, "i32": np.int32, "i64": np.int64,
          "f16": np.float16, "f32": np.float32, "f64": np.float64}


# --- making files -------------------------------------------------------------------------------

def name(r, taken):
    while True:
        text = "".join(r.choice(LETTERS) for _ in range(r.choice([1, 3, 8, 30, r.randint(1, 200)])))
        text = text.replace("/", "").strip(". ") or "n"
        if r.random() < 0.5:
            text = "%s%d" % (text[:5], r.randint(0, 9999))
        if text not in taken:
            return text


def shape(r, most=3000):
    kind = r.random()
    if kind < 0.08:
        return ()
    rank = r.randint(1, 4) if kind < 0.9 else r.randint(5, 32)
    dims = [r.choice([1, 1, 2, 3, 5, 8, 17, 40, 100]) if rank < 5 else r.choice([1, 1, 1, 2]) for _ in range(rank)]
    if r.random() < 0.06:
        dims[r.randrange(rank)] = 0
    while np.prod(dims) > most:
        i = max(range(rank), key=lambda k: dims[k])
        dims[i] = max(1, dims[i] // 2)
    return tuple(dims)


def numbers(r, dtype, dims):
    dtype = np.dtype(dtype)
    g = np.random.default_rng(r.randint(0, 2**31))
    n = int(np.prod(dims))
    if dtype.kind == "b":
        out = g.integers(0, 2, n).astype(bool)
    elif dtype.kind in "iu":
        out = g.integers(0, 256, n * dtype.itemsize, dtype=np.uint8).view(dtype)
        if r.random() < 0.4:  # small numbers, which compress
            out = (g.integers(0, 5, n)).astype(dtype)
    else:
        with np.errstate(over="ignore"):
            out = (g.standard_normal(n) * 10.0 ** g.integers(-3, 4, n)).astype(dtype)
        if n and r.random() < 0.4:
            out[g.integers(0, n)] = r.choice([np.inf, -np.inf, np.nan, -0.0, 6e-8, 65504.0])
        if r.random() < 0.2:
            out[:] = r.choice([0, 1.5])
    return out.reshape(dims)


def text(r):
    return "".join(r.choice(LETTERS) for _ in range(r.choice([0, 1, 5, 20, r.randint(0, 300)])))


def odd_type(r):
    """Types that NumPy does not have: a memory type to read them, and a name."""
    kind = r.randrange(7)
    if kind == 0:  # bfloat16
        t = h5t.IEEE_F32LE.copy()
        t.set_fields(15, 7, 8, 0, 7)
        t.set_precision(16)
        t.set_size(2)
        t.set_ebias(127)
    elif kind == 1:  # 24 bits of 32
        t = (h5t.STD_I32LE if r.random() < 0.5 else h5t.STD_U32BE).copy()
        t.set_precision(24)
        t.set_offset(r.choice([0, 3, 8]))
    elif kind == 2:  # three bytes
        t = (h5t.STD_I32BE if r.random() < 0.5 else h5t.STD_U32LE).copy()
        t.set_precision(24)
        t.set_size(3)
    elif kind == 3:  # 12 bits of 16
        t = (h5t.STD_U16BE if r.random() < 0.5 else h5t.STD_I16LE).copy()
        t.set_precision(12)
        t.set_offset(r.choice([0, 2, 4]))
    elif kind == 4:  # a float of 3 bytes
        t = (h5t.IEEE_F32LE if r.random() < 0.5 else h5t.IEEE_F32BE).copy()
        t.set_fields(23, 15, 8, 0, 15)
        t.set_precision(24)
        t.set_size(3)
    elif kind == 5:  # a float of 1 byte
        t = h5t.IEEE_F16LE.copy()
        t.set_fields(7, 3, 4, 0, 3)
        t.set_precision(8)
        t.set_size(1)
        t.set_ebias(7)
    else:  # 7 bytes
        t = h5t.STD_I64LE.copy()
        t.set_precision(50)
        t.set_size(7)
    return t


def make_odd(r, group, key):
    t = odd_type(r)
    dims = shape(r, 200)
    space = h5s.create_simple(dims) if dims else h5s.create(h5s.SCALAR)
    d = h5d.create(group.id, key.encode(), t, space)
    values = numbers(r, "<f8" if t.get_class() == h5t.FLOAT else "<i4", dims)
    d.write(h5s.ALL, h5s.ALL, np.ascontiguousarray(values), h5t.py_create(values.dtype))


def make_unsupported(r, group, key):
    kind = r.randrange(9)
    if kind == 0:
        group.create_dataset(key, data=np.zeros(3, [("a", "<i4"), ("b", "<f8")]))
    elif kind == 1:
        d = group.create_dataset(key, (3,), h5py.vlen_dtype(np.int32))
        d[0] = [1, 2]
    elif kind == 2:
        d = group.create_dataset(key, (2,), h5py.ref_dtype)
        d[0] = group.ref
    elif kind == 3:
        group.create_dataset(key, (3,), np.dtype("(2,2)<i4"))
    elif kind == 4:
        group.create_dataset(key, data=np.zeros(3, "V5"))
    elif kind == 5:
        group.create_dataset(key, data=np.zeros((8, 8), "<i4"), chunks=(4, 4), compression="lzf")
    elif kind == 6:
        group.create_dataset(key, data=np.arange(64).reshape(8, 8), chunks=(4, 4), scaleoffset=0)
    elif kind == 7:
        group.create_dataset(key, data=np.zeros(3, "<c8"))
    else:
        group[key] = h5py.ExternalLink("other.h5", "/x")


def make_dataset(r, group, key, latest):
    kind = r.random()
    if kind < 0.07:
        return make_unsupported(r, group, key)
    if kind < 0.13:
        return make_odd(r, group, key)
    if kind < 0.15:
        return group.create_dataset(key, data=h5py.Empty(r.choice(["<f4", "S5", h5py.string_dtype()])))
    dims = shape(r)
    if kind < 0.32:
        dims = shape(r, 60)
        n = int(np.prod(dims))
        texts = np.array([text(r) for _ in range(n)] + [""], object)[:n].reshape(dims)
        dtype = r.choice([h5py.string_dtype(), h5py.string_dtype("ascii"), "S%d" % r.randint(1, 40),
                          h5py.string_dtype(length=r.randint(1, 40)), "null", "space"])
        if dtype in ("null", "space"):
            t = h5t.C_S1.copy()
            t.set_size(12)
            t.set_strpad(h5t.STR_NULLTERM if dtype == "null" else h5t.STR_SPACEPAD)
            d = h5d.create(group.id, key.encode(), t, h5s.create_simple(dims) if dims else h5s.create(h5s.SCALAR))
            values = np.array([x.encode("ascii", "replace")[:9] for x in texts.ravel()] + [b""], "S9")[:-1].reshape(dims)
            d.write(h5s.ALL, h5s.ALL, np.ascontiguousarray(values), h5t.py_create(values.dtype))
            return None
        if dtype == h5py.string_dtype("ascii") or isinstance(dtype, str):
            texts = np.array([x.encode("ascii", "replace") for x in texts.ravel()] + [b""], object)[:-1].reshape(dims)
        if isinstance(dtype, str) or h5py.check_string_dtype(dtype).length:
            size = np.dtype(dtype).itemsize
            raw = [x if isinstance(x, bytes) else x.encode()[:size].decode("utf-8", "ignore").encode() for x in texts.ravel()]
            texts = np.array(raw + [b""], np.dtype(dtype))[:-1].reshape(dims)
        options = storage(r, dims, latest, True)
        if "chunks" in options and 0 in dims:
            options = {}
        d = group.create_dataset(key, dims, dtype, **options)
        if n and not (options and r.random() < 0.2):
            d[...] = texts
        return d
    dtype = np.dtype(r.choice(NUMBERS + ["?", "g"]))
    if kind < 0.36:
        dtype = h5py.enum_dtype({"A": 1, "B": 2, "C": 100}, r.choice(["i1", "<i4", ">u2"]))
        values = np.random.default_rng(r.randint(0, 99)).choice([1, 2, 100], dims).astype(dtype)
    else:
        values = numbers(r, dtype, dims)
    if r.random() < 0.08:  # inside the header of the object
        plist = h5p.create(h5p.DATASET_CREATE)
        plist.set_layout(h5d.COMPACT)
        d = h5py.Dataset(h5d.create(group.id, key.encode(), h5t.py_create(dtype, logical=True),
                                    h5s.create_simple(dims) if dims else h5s.create(h5s.SCALAR), plist))
        d[...] = values
        return d
    options = storage(r, dims, latest, False)
    if options and r.random() < 0.3 and dtype.kind != "b" and dtype.char != "g":
        options["fillvalue"] = r.choice([1, 7, 100])
    if r.random() < 0.1:
        t = group.file.require_group("types")
        committed = "t%s%d" % (dtype.str[1:], dtype.str[0] == ">")
        if committed not in t:
            t[committed] = dtype
        dtype = t[committed]
    d = group.create_dataset(key, dims, dtype, **options)
    fill(r, d, values)
    return d


def fill(r, d, values):
    """Writes all, nothing, or a part; perhaps resizes."""
    kind = r.random()
    if d.chunks is None or kind < 0.6 or values.ndim == 0:
        if kind > 0.03:
            d[...] = values
    elif kind < 0.9:
        for _ in range(r.randint(0, 3)):
            part = tuple(slice(a, r.randint(a, n)) for n in values.shape for a in [r.randint(0, n)])
            d[part] = values[part]
    if d.chunks and r.random() < 0.4:
        dims = [n if m is not None and r.random() < 0.5 else r.randint(0, n + 9 if m is None else m)
                for n, m in zip(d.shape, d.maxshape)]
        if np.prod(dims) < 20000:
            d.resize(dims)


def storage(r, dims, latest, plain):
    if not dims or r.random() < 0.35:
        return {}
    options = {"chunks": tuple(r.randint(1, max(1, 2 * n if r.random() < 0.2 else n)) for n in dims)}
    while np.prod([n / c + 1 for n, c in zip(dims, options["chunks"])]) > 1500:
        options["chunks"] = tuple(2 * c for c in options["chunks"])
    kind = r.random()
    if kind < 0.5:
        options["maxshape"] = tuple(r.choice([None, n, n + r.randint(0, 20)]) for n in dims)
    elif kind < 0.7:
        i = r.randrange(len(dims))
        options["maxshape"] = tuple(None if k == i else n for k, n in enumerate(dims))
    else:
        options["maxshape"] = dims
    options["maxshape"] = tuple(m or None for m in options["maxshape"])
    options["chunks"] = tuple(min(c, m) if m else c for c, m in zip(options["chunks"], options["maxshape"]))
    options["chunks"] = [max(c, 1) for c in options["chunks"]]
    while np.prod([float(c) for c in options["chunks"]]) > 50000:
        i = max(range(len(dims)), key=lambda k: options["chunks"][k])
        options["chunks"][i] //= 2
    options["chunks"] = tuple(options["chunks"])
    if r.random() < 0.5:
        options["compression"] = r.choice([0, 1, 4, 9])
        if r.random() < 0.5:
            options["shuffle"] = True
    elif r.random() < 0.2:
        options["shuffle"] = True
    if r.random() < 0.3:
        options["fletcher32"] = True
    if plain:
        options.pop("fletcher32", None)
        if r.random() < 0.5:
            options = {k: v for k, v in options.items() if k in ("chunks", "maxshape")}
    return options


def make_attributes(r, o, big):
    taken = set()
    for _ in range(r.choice([0, 0, 1, 2, 5, 12, r.randint(0, 40)])):
        key = name(r, taken)
        taken.add(key)
        kind = r.random()
        if kind < 0.3:
            o.attrs[key] = text(r) * r.choice([1, 1, 1, 10])
        elif kind < 0.4:
            o.attrs[key] = np.array([text(r).encode("ascii", "replace")[:30] for _ in range(r.randint(1, 9))])
        elif kind < 0.5:
            o.attrs[key] = [text(r) for _ in range(r.randint(1, 9))]
        elif kind < 0.53:
            o.attrs[key] = h5py.Empty(r.choice(["<f4", "S3"]))
        elif kind < 0.56:
            o.attrs[key] = np.zeros(2, [("x", "<i2")])
        elif kind < 0.565 and big:
            o.attrs[key] = numbers(r, "<f4", (r.choice([5000, 12000, 16000, 30000]),))
        else:
            o.attrs[key] = numbers(r, r.choice(NUMBERS + ["?"]), shape(r, 100))
    if r.random() < 0.05:
        o.attrs["long"] = "x" * r.choice([5000, 70000, 300000])


def make_group(r, group, depth, latest, links):
    make_attributes(r, group, latest)
    taken = {"types"}
    for _ in range(r.choice([0, 1, 3, 6, 12]) if depth else r.randint(1, 12)):
        key = name(r, taken)
        taken.add(key)
        kind = r.random()
        if kind < 0.2 and depth < 4:
            make_group(r, group.create_group(key, track_order=r.random() < 0.3), depth + 1, latest, links)
        elif kind < 0.27 and links:
            group[key] = h5py.SoftLink(r.choice(links + ["/missing", "here/not", group.name + "/" + key]))
        elif kind < 0.32 and links:
            o = group.file[r.choice(links)]
            if isinstance(o, h5py.Dataset):  # a group could contain itself
                group[key] = o
        else:
            make_dataset(r, group, key, latest)
            o = group.get(key) if group.get(key, getlink=True, default=None).__class__ is h5py.HardLink else None
            if o is not None:
                links.append(o.name)
                if r.random() < 0.3:
                    make_attributes(r, o, latest)
    if r.random() < 0.01:  # many names
        for i in range(r.choice([40, 400, 1500])):
            group.create_group("many%d" % i) if i % 2 else group.create_dataset("many%d" % i, data=i)


def make_large(f):
    """Chunks that need several levels of each index, and pages of which some were never written."""
    group = f.create_group("large")
    for compression in (None, 1):
        options = {"dtype": "<i4", "compression": compression, "fillvalue": -1}
        for most in (40000, None):
            d = group.create_dataset("line %s %s" % (most, compression), (40000,), chunks=(2,), maxshape=(most,), **options)
            d[:300] = np.arange(300)
            for at in (5000, 9000, 17000, 30001, 39998):
                d[at:at + 2] = [at, at + 1]
            d[20000:26000] = np.arange(6000)
        d = group.create_dataset("square %s" % compression, (200, 200), chunks=(2, 1), maxshape=(None, None), **options)
        d[...] = np.arange(40000).reshape(200, 200)
        d = group.create_dataset("box %s" % compression, (10, 50, 40), chunks=(3, 2, 3), maxshape=(10, None, 47), **options)
        d[:, 5:] = np.arange(18000).reshape(10, 45, 40)
    for i in range(6000):
        group.create_group("x%d" % i)
        if i < 300:
            group.attrs["a%d" % i] = i


def make_file(r, path, large):
    libver = r.choice(["earliest", "earliest", "latest", "latest", ("earliest", "v108"), ("v108", "v108"), ("v110", "v110"),
                       ("v110", "v114"), ("v114", "v114")])
    options = {}
    latest = libver not in ("earliest", ("earliest", "v108"))
    if r.random() < 0.1:
        options["userblock_size"] = r.choice([512, 1024, 4096])
    elif r.random() < 0.15:
        fcpl = h5p.create(h5p.FILE_CREATE)
        fcpl.set_sizes(r.choice([4, 8]), r.choice([4, 8]))
        fapl = h5p.create(h5p.FILE_ACCESS)
        low = {"earliest": h5f.LIBVER_EARLIEST, "v108": h5f.LIBVER_V18, "v110": h5f.LIBVER_V110, "v114": h5f.LIBVER_V114,
               "latest": h5f.LIBVER_LATEST}
        fapl.set_libver_bounds(*[low[x] for x in (libver if isinstance(libver, tuple) else (libver, "latest"))])
        f = h5py.File(h5f.create(path.encode(), h5f.ACC_TRUNC, fcpl, fapl))
        with f:
            make_group(r, f, 0, latest, [])
            if large:
                make_large(f)
        return libver
    elif r.random() < 0.1 and latest and libver != ("v108", "v108"):
        options.update(fs_strategy="page", fs_page_size=4096)
    with h5py.File(path, "w", libver=libver, track_order=r.random() < 0.2, **options) as f:
        make_group(r, f, 0, latest, [])
        if large:
            make_large(f)
    return libver


# --- comparing ----------------------------------------------------------------------------------

def read_values(o):
    """The values of a dataset or attribute as NumPy sees them: numbers, or lists of bytes."""
    if isinstance(o, h5py.Dataset):
        low, space, tid = o.id, o.id.get_space(), o.id.get_type()
    else:
        low, space, tid = o, o.get_space(), o.get_type()
    dims = None if space.get_simple_extent_type() == h5s.NULL else space.get_simple_extent_dims()
    kind = tid.get_class()
    if kind == h5t.STRING:
        if dims is None:
            return "string", dims, []
        n = int(np.prod(dims))
        values = np.zeros(dims, tid.dtype)
        memory = h5t.py_create(values.dtype)
        if n:
            read(low, values, memory)
        return "string", dims, [(x if isinstance(x, bytes) else (x or "").encode()).split(b"\0")[0]
                                if tid.is_variable_str() else bytes(x) for x in values.ravel()]
    if kind in (h5t.INTEGER, h5t.FLOAT, h5t.ENUM):
        if kind == h5t.ENUM:
            base = tid.get_super()
            is_bool = base.get_size() == 1 and tid.get_nmembers() == 2 and tid.get_member_name(0) == b"FALSE"
            dtype = np.dtype("?") if is_bool else base.dtype
            kind = h5t.INTEGER
            memory = tid if is_bool else tid
            values = np.empty(dims or (), "i1" if is_bool else base.dtype)
        else:
            try:
                dtype = tid.dtype
                memory = h5t.py_create(dtype)
                if dtype.itemsize != tid.get_size() or tid.get_precision() != 8 * dtype.itemsize:
                    raise TypeError
            except TypeError:
                signed = kind == h5t.INTEGER and tid.get_sign()
                dtype = np.dtype("<f8" if kind == h5t.FLOAT else "<i8" if signed else "<u8")
                memory = h5t.py_create(dtype)
            if dtype.char == "g":
                memory = h5t.NATIVE_LDOUBLE
            values = np.empty(dims or (), dtype)
        if dims is not None and values.size:
            read(low, values, memory)
        return "numbers", dims, values if dims is not None else None
    return "other", dims, None


def read(low, values, memory):
    if isinstance(low, h5d.DatasetID):
        low.read(h5s.ALL, h5s.ALL, values, memory)
    else:
        low.read(values, mtype=memory)


def converted(values, dtype):
    with np.errstate(all="ignore"):
        if dtype == "bool":
            return (values != 0).astype(np.uint8)
        if dtype == "bf16":
            return values.astype(np.float32)
        if values.dtype.kind in "iub" and dtype in ("i8", "u8", "i32", "i64"):
            return values.astype(values.dtype.newbyteorder("=")).astype(DTYPES[dtype])
        if values.dtype.char == "g":
            values = values.astype(np.float64)
        return values.astype(DTYPES[dtype])


def same(a, b):
    a, b = np.asarray(a).ravel(), np.asarray(b).ravel()
    if a.shape != b.shape:
        return False
    if a.dtype.kind == "f":
        nan = np.isnan(a)
        return bool((nan == np.isnan(b)).all() and (a[~nan].view("u%d" % a.itemsize) == b[~nan].view("u%d" % b.itemsize)).all())
    return bool((a == b).all())


def unhex(word):
    return b"" if word == "-" else bytes.fromhex(word)


def parse(output):
    objects, attributes, rows, refused, links, others = {}, {}, {}, {}, {}, []
    for line in output.splitlines():
        words = line.split(" ")
        if words[0] == "refused":
            refused[unhex(words[1]).decode(), unhex(words[2]).decode()] = (words[3], " ".join(words[4:]))
        elif words[0] == "link":
            links[unhex(words[1]).decode()] = unhex(words[2]).decode()
        elif words[0] in ("group", "dataset", "attribute", "rows"):
            key = unhex(words[1]).decode()
            dims = None if words[4] == "empty" else () if words[4] == "scalar" else tuple(int(x) for x in words[4].split("x"))
            entry = (words[0], words[3], dims, words[5])
            if words[0] == "attribute":
                attributes[key, unhex(words[2]).decode()] = entry
            elif words[0] == "rows":
                rows[key] = entry
            else:
                objects[key] = entry
        else:
            others.append(line)
    return objects, attributes, rows, refused, links, others


class Mismatch(Exception):
    pass


def check_entry(what, entry, o):
    kind, dims, values = read_values(o)
    if entry[2] != dims:
        raise Mismatch("%s: shape %s, h5py %s" % (what, entry[2], dims))
    if kind == "string":
        got = [] if entry[3] == "-" and not values else [unhex(x) for x in entry[3].split(",")]
        if entry[1] != "string" or got != values:
            raise Mismatch("%s: strings %s, h5py %s" % (what, got[:5], values[:5]))
        counts["strings"] += len(values)
    elif kind == "numbers":
        if values is None:
            return None
        expected = converted(values, entry[1])
        raw = np.frombuffer(unhex(entry[3]), np.uint16 if entry[1] == "bf16" else DTYPES[entry[1]])
        if entry[1] == "bf16":
            raw = (raw.astype(np.uint32) << 16).view(np.float32)
        if not same(expected, raw):
            raise Mismatch("%s: values differ (%s of %s)" % (what, entry[1], values.dtype))
        counts["values"] += values.size
        counts["dtype " + entry[1]] += 1
        return values
    else:
        raise Mismatch("%s: read, but it is %s" % (what, kind))
    return None


REFUSED_FILTERS = (h5py.h5z.FILTER_LZF, h5py.h5z.FILTER_SCALEOFFSET, h5py.h5z.FILTER_SZIP, h5py.h5z.FILTER_NBIT)


def may_be_refused(o):
    if isinstance(o, h5py.Dataset):
        plist = o.id.get_create_plist()
        if any(plist.get_filter(i)[0] in REFUSED_FILTERS for i in range(plist.get_nfilters())):
            return True
        tid = o.id.get_type()
    else:
        tid = o.get_type()
    return tid.get_class() not in (h5t.INTEGER, h5t.FLOAT, h5t.ENUM, h5t.STRING)


def check_refusal(what, refusal, o):
    if refusal[0] != "GD_E_UNSUPPORTED" or "not supported" not in refusal[1]:
        raise Mismatch("%s: %s" % (what, refusal))
    if not may_be_refused(o):
        raise Mismatch("%s: refused: %s" % (what, refusal[1]))
    counts["refused"] += 1


def check_attributes(path, o, attributes, refused, seen):
    for i in range(h5py.h5a.get_num_attrs(o.id)):
        a = h5py.h5a.open(o.id, index=i)
        key = (path, a.name.decode())
        what = "%s @%s" % key
        if key in attributes:
            check_entry(what, attributes[key], a)
            counts["attributes"] += 1
        elif key in refused:
            check_refusal(what, refused[key], a)
        else:
            raise Mismatch("%s: missing" % what)
        seen.add(key)


def check_file(path, output):
    objects, attributes, rows, refused, links, others = parse(output)
    if others:
        raise Mismatch(others[0])
    seen, broken = set(), set()
    with h5py.File(path, "r") as f:
        def walk(group, where):
            check_attributes(where, group, attributes, refused, seen)
            for key in group:
                at = where.rstrip("/") + "/" + key
                link = group.get(key, getlink=True)
                if isinstance(link, h5py.ExternalLink):
                    if refused[at, ""][0] != "GD_E_UNSUPPORTED":
                        raise Mismatch("%s: %s" % (at, refused[at, ""]))
                    counts["refused"] += 1
                    continue
                try:
                    o = group[key]
                except (KeyError, OSError, RuntimeError):  # a soft link to nowhere, or in a circle
                    if isinstance(link, h5py.HardLink):
                        counts["objects that h5py cannot open"] += 1
                        broken.add(at)
                        continue
                    if at in links:
                        later.append((at, links[at]))
                        continue
                    if (at, "") not in refused:
                        raise Mismatch("%s: leads nowhere, but was read" % at)
                    counts["links to nowhere"] += 1
                    continue
                if isinstance(link, h5py.SoftLink):
                    if at not in links or f[links[at]] != o:
                        raise Mismatch("%s: a link to %s was not followed" % (at, o.name))
                    counts["soft links"] += 1
                    continue
                if isinstance(o, h5py.Datatype):
                    if refused[at, ""][0] != "GD_E_UNSUPPORTED":
                        raise Mismatch("%s: %s" % (at, refused[at, ""]))
                elif isinstance(o, h5py.Group):
                    if objects[at][0] != "group":
                        raise Mismatch("%s: not a group" % at)
                    counts["groups"] += 1
                    walk(o, at)
                else:
                    check_dataset(at, o)
                    check_attributes(at, o, attributes, refused, seen)

        def check_dataset(at, o):
            if at not in objects:
                if (at, "") not in refused:
                    raise Mismatch("%s: missing" % at)
                check_refusal(at, refused[at, ""], o)
                return
            values = check_entry(at, objects[at], o)
            counts["datasets"] += 1
            if o.chunks:
                counts["chunked datasets"] += 1
            if values is not None and values.ndim and values.shape[0]:
                n = values.shape[0]
                part = converted(values[n // 3:n // 3 + n // 2], "f32")
                if not same(part, np.frombuffer(unhex(rows[at][3]), np.float32)):
                    raise Mismatch("%s: rows as f32 differ" % at)

        later = []
        walk(f, "/")
    for at, target in later:
        if target not in broken:
            raise Mismatch("%s: a link to %s, which h5py cannot follow" % (at, target))
    if {k for k in attributes if k[0] not in broken} - seen:
        raise Mismatch("attributes that h5py does not have: %s" % list(set(attributes) - seen)[:2])
    return broken


def check_copy(path, copy, objects, attributes):
    """What the library wrote is what it had read, with h5py's eyes."""
    with h5py.File(path, "r") as f, h5py.File(copy, "r") as g:
        def numbers_of(o):
            kind, dims, values = read_values(o)
            return kind, dims, values

        for at, entry in objects.items():
            if entry[0] == "group":
                if not isinstance(g[at], h5py.Group):
                    raise Mismatch("copy: %s is no group" % at)
            elif entry[1] in DTYPES and entry[2] is not None:
                kind, dims, values = numbers_of(g[at])
                expected = converted(numbers_of(f[at])[2], entry[1])
                wanted = np.dtype("i1") if entry[1] == "bool" else np.dtype(DTYPES[entry[1]])
                if dims != entry[2] or values.dtype != wanted or not same(expected, values.astype(expected.dtype)):
                    raise Mismatch("copy: %s differs" % at)
                counts["copied datasets"] += 1
        for (at, key), entry in attributes.items():
            o = objects.get(at)
            if entry[2] is None or entry[1] == "bf16" or not o or (o[0] == "dataset" and (o[1] not in DTYPES or o[2] is None)):
                continue
            a = h5py.h5a.open(g[at].id, key.encode())
            b = h5py.h5a.open(f[at].id, key.encode())
            kind, dims, values = read_values(a)
            if kind == "string":
                if values != read_values(b)[2]:
                    raise Mismatch("copy: %s @%s differs" % (at, key))
            elif dims != entry[2] or not same(converted(read_values(b)[2], entry[1]), converted(values, entry[1])):
                raise Mismatch("copy: %s @%s differs" % (at, key))
            counts["copied attributes"] += 1


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--files", type=int, default=2000)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--keep")
    p.add_argument("--dump", default=os.environ.get("GRADUS_HDF5_DUMP"))
    o = p.parse_args()
    folder = tempfile.mkdtemp(prefix="hdf5")
    failures = 0
    try:
        for seed in range(o.seed, o.seed + o.files):
            message = in_child(seed, folder, o)
            counts["files"] += 1
            if message:
                failures += 1
                print(message, flush=True)
                if o.keep:
                    os.makedirs(o.keep, exist_ok=True)
                    shutil.copy(os.path.join(folder, "a.h5"), os.path.join(o.keep, "%d.h5" % seed))
                if failures == 20:
                    break
    finally:
        shutil.rmtree(folder)
    print(", ".join("%s %d" % (k, v) for k, v in sorted(counts.items())))
    print("h5py %s, HDF5 %s: %d files, %d failures" % (h5py.__version__, h5py.version.hdf5_version, counts["files"], failures))
    return 1 if failures else 0


def in_child(seed, folder, o):
    """Runs a file in a child process: HDF5 itself crashes on some of its own files."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read_end)
        message = check_seed(seed, folder, o)
        with os.fdopen(write_end, "w") as f:
            json.dump([message, counts], f)
        os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end) as f:
        text = f.read()
    _, status = os.waitpid(child, 0)
    if not text:
        if os.WIFSIGNALED(status):
            counts["files on which h5py crashes"] += 1
            return None
        return "seed %d: the test failed (see above)" % seed
    message, found = json.loads(text)
    counts.update(found)
    return message


def check_seed(seed, folder, o):
    """None, or what is wrong."""
    counts.clear()
    path, copy = os.path.join(folder, "a.h5"), os.path.join(folder, "b.h5")
    libver = make_file(random.Random(seed), path, seed % 200 == 0)
    counts["bytes"] += os.path.getsize(path)
    counts["libver %s" % (libver,)] += 1
    try:
        run = subprocess.run([o.dump, "print", path], capture_output=True, text=True, errors="replace", timeout=120)
        if run.returncode:
            raise Mismatch("print: exit code %d %s %s" % (run.returncode, run.stdout[-300:], run.stderr[-300:]))
        broken = check_file(path, run.stdout)
        objects, attributes = parse(run.stdout)[:2]
        large = {k for k, e in attributes.items() if e[1] in DTYPES and len(e[3]) > 2 * 64000
                 and k[0] in objects and (objects[k[0]][0] == "group" or (objects[k[0]][1] in DTYPES and objects[k[0]][2] is not None))}
        run = subprocess.run([o.dump, "copy", path, copy], capture_output=True, text=True, errors="replace", timeout=120)
        if large:  # more than an attribute of the library's files can have
            if run.returncode != 1 or "at most 64000 are allowed" not in run.stdout:
                raise Mismatch("copy: exit code %d %s" % (run.returncode, run.stdout[-300:]))
            counts["copies refused"] += 1
        else:
            if run.returncode:
                raise Mismatch("copy: exit code %d %s %s" % (run.returncode, run.stdout[-300:], run.stderr[-300:]))
            check_copy(path, copy, {k: e for k, e in objects.items() if k not in broken},
                       {k: e for k, e in attributes.items() if k[0] not in broken})
            counts["copies"] += 1
    except (Mismatch, KeyError, subprocess.TimeoutExpired) as e:
        return "seed %d (libver %s): %s: %s" % (seed, libver, type(e).__name__, e)
    return None


if __name__ == "__main__":
    sys.exit(main())
