"""Tensors as Python objects: creation, indexing, operators, conversion, identity, copies, pickles, threads."""

import array
import copy
import gc
import itertools
import math
import operator
import pickle
import random
import threading
import unittest
import weakref

import gradus as gd
from gradus import _core

try:
    import numpy as np
except ImportError:
    np = None

DTYPES = (gd.bool, gd.uint8, gd.int8, gd.int32, gd.int64, gd.float16, gd.bfloat16, gd.float32, gd.float64)
INTS = (gd.uint8, gd.int8, gd.int32, gd.int64)
FLOATS = (gd.float16, gd.bfloat16, gd.float32, gd.float64)


class Model:
    """An array as nested lists, for indexing: sizes and the flat positions of a tensor of the first n numbers."""

    def __init__(self, shape, at=None):
        self.shape = tuple(shape)
        self.at = list(range(math.prod(shape))) if at is None else at

    def __getitem__(self, key):
        key = key if isinstance(key, tuple) else (key,)
        used = sum(k is not None and k is not Ellipsis for k in key)
        if Ellipsis not in key:
            key += (Ellipsis,)
        i = key.index(Ellipsis)
        key = key[:i] + (slice(None),) * (len(self.shape) - used) + key[i + 1:]
        axes, sizes, axis = [], [], 0
        for k in key:
            if k is None:
                sizes.append(1)
                continue
            if isinstance(k, slice):
                picked = range(*k.indices(self.shape[axis]))
                sizes.append(len(picked))
            else:
                picked = (range(self.shape[axis])[k],)
            axes.append(picked)
            axis += 1
        steps = [math.prod(self.shape[i + 1:]) for i in range(len(self.shape))]
        flat = [self.at[sum(n * s for n, s in zip(where, steps))] for where in itertools.product(*axes)]
        return Model(sizes, flat)


def counted(shape, dtype=gd.int64):
    return gd.arange(math.prod(shape), dtype=dtype).reshape(shape)


def flat(t):
    return t.reshape(-1).tolist()


class Creation(unittest.TestCase):
    def check(self, t, shape, dtype, values):
        self.assertIsInstance(t, gd.Tensor)
        self.assertEqual((t.shape, t.dtype, t.tolist()), (shape, dtype, values))

    def test_numbers_have_rank_0_and_the_default_dtype_of_their_kind(self):
        self.check(gd.tensor(True), (), gd.bool, True)
        self.check(gd.tensor(-3), (), gd.int64, -3)
        self.check(gd.tensor(0.5), (), gd.float32, 0.5)
        self.check(gd.tensor(0.1, dtype=gd.float64), (), gd.float64, 0.1)
        self.check(gd.asarray(7), (), gd.int64, 7)

    def test_nested_sequences_have_the_shape_of_their_nesting(self):
        self.check(gd.tensor([[1, 2, 3], [4, 5, 6]]), (2, 3), gd.int64, [[1, 2, 3], [4, 5, 6]])
        self.check(gd.tensor(([1.5], (2,))), (2, 1), gd.float32, [[1.5], [2.0]])
        self.check(gd.tensor([True, False]), (2,), gd.bool, [True, False])
        self.check(gd.tensor([]), (0,), gd.float32, [])
        self.check(gd.tensor([[], []]), (2, 0), gd.float32, [[], []])
        self.check(gd.tensor(range(4)), (4,), gd.int64, [0, 1, 2, 3])
        self.check(gd.tensor([True, 2]), (2,), gd.int64, [1, 2])
        self.check(gd.tensor([1, 2.5, True]), (3,), gd.float32, [1.0, 2.5, 1.0])

    def test_large_integers_keep_all_their_digits(self):
        values = [2**63 - 1, -(2**63), 2**53 + 1]
        self.check(gd.tensor(values), (3,), gd.int64, values)
        self.assertEqual(gd.tensor(2**62 + 1).item(), 2**62 + 1)
        with self.assertRaises(OverflowError):
            gd.tensor([2**63])
        with self.assertRaises(OverflowError):
            gd.tensor(2**63)

    def test_sequences_may_hold_tensors(self):
        row = gd.tensor([1.0, 2.0])
        self.check(gd.tensor([row, row * 2]), (2, 2), gd.float32, [[1.0, 2.0], [2.0, 4.0]])
        self.check(gd.tensor([[gd.tensor(1), gd.tensor(2)]]), (1, 2), gd.int64, [[1, 2]])
        with self.assertRaises(ValueError):
            gd.tensor([row, gd.tensor([1.0])])

    def test_buffers_have_the_dtype_of_their_format(self):
        for code, dtype in (("b", gd.int8), ("B", gd.uint8), ("i", gd.int32), ("q", gd.int64), ("f", gd.float32),
                            ("d", gd.float64)):
            self.check(gd.tensor(array.array(code, [1, 2, 3])), (3,), dtype, [1, 2, 3])
        self.check(gd.tensor(b"abc"), (3,), gd.uint8, [97, 98, 99])
        self.check(gd.tensor(bytearray(b"\0\xff")), (2,), gd.uint8, [0, 255])
        view = memoryview(array.array("i", range(6))).cast("B").cast("i", (2, 3))
        self.check(gd.tensor(view), (2, 3), gd.int32, [[0, 1, 2], [3, 4, 5]])
        self.check(gd.tensor(memoryview(b"abcdef")[::-2]), (3,), gd.uint8, [102, 100, 98])

    def test_tensor_copies_and_asarray_shares(self):
        numbers = array.array("f", [1, 2])
        copied, shared = gd.tensor(numbers), gd.asarray(numbers)
        numbers[0] = 9
        self.assertEqual((copied.tolist(), shared.tolist()), ([1, 2], [9, 2]))
        shared[1] = 7
        self.assertEqual(numbers[1], 7)
        self.assertIs(gd.asarray(shared), shared)
        self.assertIsNot(gd.tensor(shared), shared)

    def test_every_dtype_can_be_asked_for(self):
        for dtype in DTYPES:
            self.check(gd.tensor([0, 1], dtype=dtype), (2,), dtype, [0, 1])
            self.assertEqual(gd.zeros(2, 3, dtype=dtype).dtype, dtype)

    def test_what_is_no_array_is_a_type_error(self):
        for bad in ("text", None, object(), {1: 2}, {1, 2}, [1, None], [["a"]], 1j):
            with self.subTest(repr(bad)), self.assertRaises(TypeError):
                gd.tensor(bad)

    def test_ragged_sequences_are_a_value_error_with_both_lengths(self):
        for bad in ([[1, 2], [3]], [[1], 2], [1, [2]], [[], 1], [[[1]], [[1, 2]]]):
            with self.subTest(repr(bad)), self.assertRaises(ValueError):
                gd.tensor(bad)
        with self.assertRaisesRegex(ValueError, "at depth 1 one has 1 entries, others have 2"):
            gd.tensor([[1, 2], [3]])

    def test_a_list_that_holds_itself_is_an_error(self):
        endless = []
        endless.append(endless)
        with self.assertRaises(ValueError):
            gd.tensor(endless)

    def test_a_sequence_that_raises_or_lies_is_an_error_or_a_tensor(self):
        class Raises:
            def __len__(self):
                return 2

            def __getitem__(self, i):
                raise KeyError(i)

        class Lies:
            def __len__(self):
                return 5

            def __getitem__(self, i):
                if i >= 2:
                    raise IndexError
                return i

        class NoCapsule:
            def __dlpack_device__(self):
                return 1, "zero"

            def __dlpack__(self, **_):
                return 5

        for convert in (gd.tensor, gd.asarray, gd.relu, gd.ones(2).__add__):
            with self.assertRaises(TypeError):
                convert(NoCapsule())
        with self.assertRaises(KeyError):
            gd.tensor(Raises())
        self.assertEqual(gd.tensor(Lies()).tolist(), [0, 1])


class Indexing(unittest.TestCase):
    def random_key(self, rng, shape):
        def part(size):
            if rng.random() < 0.35 and size:
                return rng.randint(-size, size - 1)
            ends = [None if rng.random() < 0.3 else rng.randint(-size - 2, size + 2) for _ in range(2)]
            return slice(*ends, rng.choice([None, 1, 2, 3, -1, -2, -3, -7]))

        first = rng.randint(0, len(shape))
        key = [part(size) for size in shape[:first]]
        if rng.random() < 0.4:
            last = rng.randint(first, len(shape))
            key += [Ellipsis] + [part(size) for size in shape[last:]]
        if rng.random() < 0.3:
            key.insert(rng.randint(0, len(key)), None)
        return key[0] if len(key) == 1 and rng.random() < 0.5 else tuple(key)

    def each_case(self, count):
        rng = random.Random(26)
        for _ in range(count):
            shape = tuple(rng.randint(0, 4) for _ in range(rng.randint(0, 4)))
            yield rng, shape, self.random_key(rng, shape)

    def test_numbers_slices_ellipsis_and_none_select_what_lists_select(self):
        for _, shape, key in self.each_case(1500):
            expected = Model(shape)[key]
            got = counted(shape)[key]
            self.assertEqual((got.shape, flat(got)), (expected.shape, expected.at), (shape, key))

    def test_assignment_writes_exactly_the_elements_that_the_key_selects(self):
        for rng, shape, key in self.each_case(1500):
            selected = Model(shape)[key]
            t, expected = counted(shape, gd.float32), [float(i) for i in range(math.prod(shape))]
            if rng.random() < 0.3:
                value, values = -1, [-1.0] * len(selected.at)
            else:
                values = [-1.0 - i for i in range(len(selected.at))]
                value = gd.tensor(values, dtype=gd.float32).reshape(selected.shape)
            t[key] = value
            for i, v in zip(selected.at, values):
                expected[i] = v
            self.assertEqual(flat(t), expected, (shape, key))

    def test_an_assigned_value_broadcasts_and_takes_the_dtype(self):
        t = gd.zeros(2, 3)
        t[:, ::-1] = [1, 2, 3]
        self.assertEqual(t.tolist(), [[3, 2, 1]] * 2)
        t[0] = 2.5
        t[1] = gd.tensor([7], dtype=gd.int64)
        self.assertEqual(t.tolist(), [[2.5] * 3, [7] * 3])
        n = gd.zeros(2, dtype=gd.int32)
        n[0] = 3
        self.assertEqual((n.tolist(), n.dtype), ([3, 0], gd.int32))
        with self.assertRaises(ValueError):
            t[0] = [1, 2]

    def test_an_assignment_from_the_same_memory_reads_before_it_writes(self):
        t = gd.arange(5)
        t[1:] = t[:-1]
        self.assertEqual(t.tolist(), [0, 0, 1, 2, 3])
        t = gd.arange(5)
        t[::-1] = t
        self.assertEqual(t.tolist(), [4, 3, 2, 1, 0])
        t = gd.arange(6).reshape(2, 3)
        t[...] = t.T.reshape(2, 3)
        self.assertEqual(t.tolist(), [[0, 3, 1], [4, 2, 5]])

    def test_selections_are_views_where_numpys_are(self):
        t = counted((3, 4))
        t[1][2] = -1
        t[:, 3] += 100
        self.assertEqual(t.tolist(), [[0, 1, 2, 103], [4, 5, -1, 107], [8, 9, 10, 111]])

    def test_masks_and_lists_of_indices_select_as_in_numpy(self):
        t = counted((3, 4))
        self.assertEqual(t[[2, 0]].tolist(), [[8, 9, 10, 11], [0, 1, 2, 3]])
        self.assertEqual(t[[0, -1], [1, 2]].tolist(), [1, 10])
        self.assertEqual(t[:, [3, 0]].tolist(), [[3, 0], [7, 4], [11, 8]])
        self.assertEqual(t[t > 8].tolist(), [9, 10, 11])
        self.assertEqual(t[gd.tensor([True, False, True])].tolist(), [[0, 1, 2, 3], [8, 9, 10, 11]])
        self.assertEqual(t[gd.tensor(1)].tolist(), [4, 5, 6, 7])
        self.assertEqual(t[[]].shape, (0, 4))
        t[t > 8] = 0
        self.assertEqual(t[2].tolist(), [8, 0, 0, 0])
        t[[0, 1], [0, 0]] = gd.tensor([-1, -2])
        self.assertEqual(t[:, 0].tolist(), [-1, -2, 8])

    def test_a_bool_adds_an_axis_as_in_numpy(self):
        t = gd.tensor([1, 2])
        self.assertEqual(t[True].tolist(), [[1, 2]])
        self.assertEqual(t[False].shape, (0, 2))

    @unittest.skipUnless(np, "NumPy is not installed")
    def test_random_keys_with_arrays_select_what_numpy_selects(self):
        rng = random.Random(27)
        for _ in range(600):
            shape = tuple(rng.randint(1, 4) for _ in range(rng.randint(1, 4)))
            key, axis, broadcast = [], 0, (rng.randint(1, 3),)
            while axis < len(shape):
                size, kind = shape[axis], rng.random()
                if kind < 0.3:
                    ints = np.array([rng.randint(-size, size - 1) for _ in range(broadcast[0])])
                    key.append(ints if rng.random() < 0.5 else ints.tolist())
                elif kind < 0.45 and not any(isinstance(k, np.ndarray) and k.dtype == bool for k in key):
                    mask = np.zeros(size, bool)
                    mask[0] = True
                    key.append(mask)
                else:
                    key.append(slice(None, None, rng.choice([None, 2, -1])))
                axis += 1
                if rng.random() < 0.2:
                    break
            key = tuple(key)
            x = np.arange(math.prod(shape)).reshape(shape)
            mine = tuple(gd.asarray(k) if isinstance(k, np.ndarray) else k for k in key)
            expected, got = x[key], gd.tensor(x)[mine]
            self.assertEqual((got.shape, got.tolist()), (expected.shape, expected.tolist()), (shape, key))

    @unittest.skipUnless(np, "NumPy is not installed")
    def test_random_keys_with_arrays_assign_what_numpy_assigns(self):
        rng = random.Random(28)
        for _ in range(400):
            shape = tuple(rng.randint(1, 4) for _ in range(rng.randint(1, 3)))
            key = []
            for size in shape[:rng.randint(1, len(shape))]:
                picked = rng.sample(range(-size, 0), 1)  # no element twice: the order would count
                key.append(rng.choice([slice(None), slice(None, None, -1), slice(None, None, 2), np.array(picked)]))
            key = tuple(key)
            x = np.arange(math.prod(shape), dtype=np.float32).reshape(shape)
            t = gd.tensor(x)
            value = -1 - np.arange(math.prod(x[key].shape), dtype=np.float32).reshape(x[key].shape)
            if rng.random() < 0.3:
                value = -1.0
            x[key] = value
            t[tuple(gd.asarray(k) if isinstance(k, np.ndarray) else k for k in key)] = value
            self.assertEqual(t.tolist(), x.tolist(), (shape, key))

    def test_wrong_indices_are_index_errors(self):
        t = counted((2, 3))
        for key in (2, -3, (0, 3), (0, 0, 0), "a", 1.0, (Ellipsis, Ellipsis), [5], (0, "a")):
            with self.subTest(repr(key)):
                with self.assertRaises(IndexError):
                    t[key]
                with self.assertRaises(IndexError):
                    t[key] = 0
        with self.assertRaisesRegex(IndexError, "2"):
            t[2]
        with self.assertRaises(ValueError):
            t[::0]
        with self.assertRaises(TypeError):
            del t[0]

    def test_an_index_that_raises_passes_its_exception_on(self):
        class Bad:
            def __index__(self):
                raise KeyError("mine")

        with self.assertRaisesRegex(KeyError, "mine"):
            gd.arange(3)[Bad()]
        with self.assertRaisesRegex(KeyError, "mine"):
            gd.arange(3)[Bad():]

    def test_gradients_flow_through_indices_and_assignments(self):
        x = gd.ones(4, requires_grad=True)
        y = x * 2
        y[1:3] = 0
        (y[::-1] * gd.tensor([1.0, 2, 3, 4])).sum().backward()
        self.assertEqual(x.grad.tolist(), [8, 0, 0, 2])
        with self.assertRaises(RuntimeError):
            x[0] = 1  # a leaf that requires a gradient


class Operators(unittest.TestCase):
    ARITHMETIC = (operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod,
                  operator.pow)
    BITS = (operator.and_, operator.or_, operator.xor, operator.lshift, operator.rshift)
    COMPARE = (operator.lt, operator.le, operator.eq, operator.ne, operator.ge, operator.gt)

    def test_operators_compute_what_python_computes_for_each_element(self):
        a, b = [-7.5, -2.0, 0.5, 3.0, 9.0], [2.0, 3.0, -2.0, 2.0, 0.5]
        x, y = gd.tensor(a, dtype=gd.float64), gd.tensor(b, dtype=gd.float64)
        for op in self.ARITHMETIC + self.COMPARE:
            left, right = (a, b) if op is not operator.pow else ([abs(n) for n in a], b)
            u = abs(x) if op is operator.pow else x
            for p, q, values in ((u, y, zip(left, right)), (u, 2.0, ((n, 2.0) for n in left)),
                                 (3.0, y, ((3.0, n) for n in right)), (u, 2, ((n, 2) for n in left))):
                got, expected = op(p, q).tolist(), [op(m, n) for m, n in values]
                for m, n in zip(got, expected):
                    self.assertAlmostEqual(m, n, delta=1e-12 * abs(n), msg=str((op, got, expected)))

    def test_integers_are_floored_and_bits_are_exact(self):
        a, b = [-7, -2, 5, 12, 9], [2, 3, 2, 5, 1]
        x, y = gd.tensor(a), gd.tensor(b)
        for op in (operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod) + self.BITS + self.COMPARE:
            self.assertEqual(op(x, y).tolist(), [op(m, n) for m, n in zip(a, b)], op)
            self.assertEqual(op(x, 3).tolist(), [op(m, 3) for m in a], op)
            self.assertEqual(op(60, y).tolist(), [op(60, n) for n in b], op)
        self.assertEqual([t.tolist() for t in divmod(x, y)], [list(t) for t in zip(*map(divmod, a, b))])
        self.assertEqual((-x).tolist(), [-n for n in a])
        self.assertEqual((~x).tolist(), [~n for n in a])
        self.assertEqual(abs(x).tolist(), [abs(n) for n in a])
        self.assertEqual((+x).tolist(), a)

    def test_bools_have_logic_and_no_minus(self):
        t, f = gd.tensor([True, True]), gd.tensor([True, False])
        self.assertEqual(((t & f).tolist(), (t | f).tolist(), (t ^ f).tolist(), (~f).tolist()),
                         ([True, False], [True, True], [False, True], [False, True]))
        self.assertEqual((f & True).tolist(), [True, False])

    def test_matmul_works_from_both_sides(self):
        a = counted((2, 3), gd.float32)
        self.assertEqual((a @ a.T).tolist(), [[5, 14], [14, 50]])
        self.assertEqual((a @ [1.0, 0.0, 0.0]).tolist(), [0, 3])
        with self.assertRaises(TypeError):
            a @ 2
        with self.assertRaisesRegex(ValueError, "matmul"):
            a @ a

    def test_in_place_operators_keep_the_object_and_its_memory(self):
        for op, expected in ((operator.iadd, 9.0), (operator.isub, 3.0), (operator.imul, 18.0),
                             (operator.itruediv, 2.0), (operator.ipow, 216.0)):
            x = gd.tensor([6.0])
            y, address = x, x.data_ptr()
            y = op(y, 3.0)
            self.assertIs(y, x)
            self.assertEqual((x.tolist(), x.data_ptr()), ([expected], address))
        n = gd.tensor([6])
        n += gd.tensor([1])
        self.assertEqual(n.tolist(), [7])
        with self.assertRaises(TypeError):
            n += 0.5  # would change the dtype

    def test_sequences_and_arrays_are_operands_on_either_side(self):
        x = gd.tensor([1.0, 2.0])
        self.assertEqual((x + [1, 2]).tolist(), [2, 4])
        self.assertEqual(((3, 4) - x).tolist(), [2, 2])
        self.assertEqual((x * array.array("f", [2, 3])).tolist(), [2, 6])
        if np:
            for y in (np.array([1.0, 2.0], np.float32) + x, x + np.array([1.0, 2.0], np.float32)):
                self.assertIsInstance(y, gd.Tensor)
                self.assertEqual(y.tolist(), [2, 4])
            self.assertIsInstance(np.float64(2) * x, gd.Tensor)

    def test_other_objects_get_their_turn(self):
        class Other:
            def __radd__(self, x):
                return "radd"

            def __eq__(self, x):
                return "eq"

            __hash__ = None

        x = gd.tensor([1.0])
        self.assertEqual(x + Other(), "radd")
        self.assertEqual(x == Other(), "eq")
        for op in self.ARITHMETIC + self.BITS + (operator.matmul, operator.lt):
            for bad in (None, "text", object(), {}):
                with self.subTest(op=op, bad=repr(bad)[:10]), self.assertRaises(TypeError):
                    op(x, bad)
        self.assertIs(x == None, False)  # noqa: E711
        self.assertIs(x != None, True)  # noqa: E711
        with self.assertRaises(TypeError):
            pow(x, x, 3)

    def test_results_of_numbers_alone_have_the_tensors_dtype(self):
        for dtype in FLOATS:
            self.assertEqual(((gd.ones(1, dtype=dtype) + 1).dtype, (2.5 * gd.ones(1, dtype=dtype)).dtype), (dtype, dtype))
        for dtype in INTS:
            self.assertEqual((gd.ones(1, dtype=dtype) + 1).dtype, dtype)
            self.assertEqual((gd.ones(1, dtype=dtype) + True).dtype, dtype)
            self.assertTrue((gd.ones(1, dtype=dtype) + 0.5).dtype.is_floating_point)

    def test_promotion_is_the_standards_table_also_for_rank_0(self):
        order = {gd.bool: 0, gd.uint8: 1, gd.int8: 1, gd.int32: 3, gd.int64: 4}
        for a, b in itertools.product(DTYPES, DTYPES):
            if a == b:
                expected = a
            elif gd.float16 in (a, b) and gd.bfloat16 in (a, b):
                expected = gd.float32
            elif a.is_floating_point and b.is_floating_point:
                expected = max(a, b, key=lambda d: gd.finfo(d).bits)
            elif a.is_floating_point or b.is_floating_point:
                expected = a if a.is_floating_point else b
            elif {a, b} == {gd.uint8, gd.int8}:
                continue  # int16 in the standard, which is not there
            else:
                expected = max(a, b, key=order.get)
            for shapes in (((2,), (2,)), ((), (2,)), ((2,), ()), ((), ())):
                x, y = gd.ones(shapes[0], dtype=a), gd.ones(shapes[1], dtype=b)
                self.assertEqual((x * y).dtype, expected, (a, b, shapes))
            self.assertEqual(gd.result_type(a, b), expected)

    def test_comparisons_are_bool_tensors(self):
        x = gd.tensor([1, 2, 3])
        self.assertEqual((x == 2).dtype, gd.bool)
        self.assertEqual((x != gd.tensor([1, 0, 3])).tolist(), [False, True, False])
        self.assertEqual((1 < x).tolist(), [False, True, True])


class AsNumbers(unittest.TestCase):
    def test_a_tensor_of_one_element_is_a_number(self):
        for t in (gd.tensor(3), gd.tensor([3]), gd.tensor([[3.0]])):
            self.assertEqual((float(t), int(t), bool(t), t.item()), (3.0, 3, True, 3))
        self.assertIs(type(gd.tensor(3).item()), int)
        self.assertIs(type(gd.tensor(3.0).item()), float)
        self.assertIs(gd.tensor(True).item(), True)
        self.assertEqual(complex(gd.tensor(2.0)), 2 + 0j)
        self.assertEqual(math.sqrt(gd.tensor(9.0)), 3.0)
        self.assertFalse(gd.tensor(0))
        self.assertEqual(int(gd.tensor(2.9)), 2)
        with self.assertRaises(ValueError):
            int(gd.tensor(math.nan))
        with self.assertRaises(OverflowError):
            int(gd.tensor(math.inf))

    def test_more_elements_are_no_number(self):
        for t in (gd.ones(2), gd.ones(0)):
            for number in (float, int, bool, complex, operator.methodcaller("item")):
                with self.subTest(number=number, n=t.numel()), self.assertRaises((ValueError, TypeError, RuntimeError)) as failure:
                    number(t)
                self.assertIn("one element", str(failure.exception))

    def test_integers_are_indices_and_floats_are_not(self):
        n = gd.tensor(2)
        self.assertEqual(([10, 20, 30][n], list(range(n)), "ab" * n, operator.index(n)), (30, [0, 1], "abab", 2))
        self.assertEqual(gd.arange(5)[:n].tolist(), [0, 1])
        for bad in (gd.tensor(2.0), gd.tensor([1, 2])):
            with self.assertRaises((TypeError, ValueError)):
                operator.index(bad)

    def test_len_and_iteration_go_along_the_first_axis(self):
        t = counted((3, 2))
        self.assertEqual((len(t), [row.tolist() for row in t]), (3, [[0, 1], [2, 3], [4, 5]]))
        a, b, c = gd.tensor([1.0, 2.0, 3.0])
        self.assertEqual((a.item(), b.item(), c.item()), (1, 2, 3))
        self.assertEqual((len(gd.zeros(0, 3)), list(gd.zeros(0, 3))), (0, []))
        for f in (len, iter, list):
            with self.assertRaises(TypeError):
                f(gd.tensor(1))
        self.assertIn(4, t)
        self.assertNotIn(7, t)
        self.assertEqual([row.tolist() for row in reversed(t)], [[4, 5], [2, 3], [0, 1]])

    def test_tolist_is_exact_for_every_dtype_and_layout(self):
        for dtype in DTYPES:
            t = gd.tensor([[0, 1], [1, 0]], dtype=dtype)
            self.assertEqual(t.tolist(), [[0, 1], [1, 0]])
            self.assertIs(type(t.tolist()[0][0]), bool if dtype == gd.bool else float if dtype in FLOATS else int)
        t = counted((2, 3, 4))
        self.assertEqual(flat(t.permute(2, 0, 1)), [int(i) for c in range(4) for i in range(c, 24, 4)])
        self.assertEqual(gd.tensor(5).tolist(), 5)
        self.assertEqual(gd.ones(2).expand(3, 2).tolist(), [[1, 1]] * 3)


class Text(unittest.TestCase):
    def test_repr_is_python_that_makes_the_tensor(self):
        scope = {"tensor": gd.tensor} | {str(d): d for d in DTYPES}
        for t in (gd.tensor([[1, 2.5], [3, 4]]), gd.tensor([1.5]), gd.tensor(7), gd.tensor([True, False]), gd.zeros(2, 3, 2),
                  gd.tensor([10, -2], dtype=gd.int32), gd.ones(3, requires_grad=True), gd.tensor([1e10, 1e-10]),
                  gd.tensor([[[1]]], dtype=gd.uint8), gd.tensor([], dtype=gd.float32), gd.arange(200),
                  gd.tensor([0.5, 100.25], dtype=gd.float16)):
            text = repr(t)
            again = eval(text, scope)
            self.assertEqual((again.shape, again.dtype, again.requires_grad), (t.shape, t.dtype, t.requires_grad), text)
            self.assertTrue(bool(gd.all(gd.abs(again * 1.0 - t * 1.0) <= 1e-4 * gd.abs(t * 1.0))), text)

    def test_repr_has_a_comma_between_elements_and_none_at_the_end(self):
        self.assertEqual(repr(gd.tensor([1.0, 2.5])), "tensor([1. , 2.5])")
        self.assertEqual(repr(gd.tensor([[1, 20], [3, 4]])), "tensor([[ 1, 20],\n        [ 3,  4]])")
        self.assertEqual(repr(gd.tensor(2.0, dtype=gd.float64)), "tensor(2.0, dtype=float64)")
        self.assertIn("...", repr(gd.zeros(5000)))
        self.assertNotIn(", ]", repr(gd.tensor([[1.0, 2.5], [3.0, 4.0]])))

    def test_str_and_format(self):
        self.assertEqual(str(gd.tensor([1, 2])), "[1 2]")
        self.assertEqual(f"{gd.tensor(1.234):.1f}", "1.2")
        self.assertEqual(f"{gd.tensor([1, 2])}", "[1 2]")
        self.assertIn("<td>", gd.ones(2, 2)._repr_html_())


class Identity(unittest.TestCase):
    def test_hash_and_sets_go_by_identity(self):
        a, b = gd.ones(2), gd.ones(2)
        self.assertNotEqual(hash(a), hash(b))
        self.assertEqual(len({a, b, a}), 2)
        self.assertEqual({a: 1}[a], 1)

    def test_the_gradient_is_one_object_until_it_is_replaced(self):
        x = gd.ones(2, requires_grad=True)
        self.assertIsNone(x.grad)
        (x * 3).sum().backward()
        g = x.grad
        self.assertIs(x.grad, g)
        self.assertEqual(g.tolist(), [3, 3])
        x.grad = None
        self.assertIsNone(x.grad)
        mine = gd.tensor([5.0, 6.0])
        x.grad = mine
        self.assertEqual(x.grad.tolist(), [5, 6])
        self.assertIs(x.grad, x.grad)
        for bad in (1.0, "a"):
            with self.assertRaises(TypeError):
                x.grad = bad
        with self.assertRaises(ValueError):
            x.grad = gd.ones(3)

    def test_gradients_accumulate_and_match_a_formula(self):
        x = gd.tensor([2.0, -3.0], requires_grad=True)
        for _ in range(2):
            (x * x * x).sum().backward()
        self.assertEqual(x.grad.tolist(), [24, 54])
        y = (x * x).sum()
        (g,) = gd.grad([y], [x])
        self.assertEqual(g.tolist(), [4, -6])

    def test_weak_references_end_with_the_object(self):
        t = gd.ones(2)
        ended = []
        w = weakref.ref(t, lambda _: ended.append(1))
        self.assertIs(w(), t)
        del t
        gc.collect()
        self.assertIsNone(w())
        self.assertEqual(ended, [1])

    def test_a_subclass_is_a_tensor(self):
        class Mine(gd.Tensor):
            pass

        t = Mine([1.0, 2.0])
        self.assertIsInstance(t, gd.Tensor)
        self.assertEqual((t + 1).tolist(), [2, 3])
        t.name = "free attributes"
        self.assertEqual(t.name, "free attributes")
        self.assertIs(weakref.ref(t)(), t)

    def test_objects_are_released(self):
        gc.collect()
        before = _core._live_objects()
        for _ in range(50):
            x = gd.ones(10, requires_grad=True)
            y = (x[2:5] * 2 + [1, 2, 3]).sum()
            y.backward()
            x.grad, list(x), repr(x), x.tolist()
            with self.assertRaises(ValueError):
                x @ gd.ones(3)
            with self.assertRaises(IndexError):
                x[100]
        del x, y
        gc.collect()
        self.assertEqual(_core._live_objects(), before)


class Copies(unittest.TestCase):
    def test_pickles_keep_values_dtype_shape_and_requires_grad(self):
        for dtype in DTYPES:
            t = gd.tensor([[1, 0, 1]], dtype=dtype)
            for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
                again = pickle.loads(pickle.dumps(t, protocol))
                self.assertEqual((again.tolist(), again.dtype, again.shape), (t.tolist(), dtype, (1, 3)))
        x = pickle.loads(pickle.dumps(gd.ones(2, requires_grad=True)))
        self.assertTrue(x.requires_grad and x.is_leaf)
        view = pickle.loads(pickle.dumps(counted((3, 4)).T[::2]))
        self.assertEqual(view.tolist(), [[0, 4, 8], [2, 6, 10]])
        self.assertEqual(pickle.loads(pickle.dumps(gd.zeros(0, 2))).shape, (0, 2))
        for value in (gd.float16, gd.device("cpu")):
            self.assertEqual(pickle.loads(pickle.dumps(value)), value)

    def test_results_of_the_tape_are_not_pickled(self):
        y = gd.ones(2, requires_grad=True) * 2
        for f in (pickle.dumps, copy.deepcopy):
            with self.assertRaisesRegex(RuntimeError, "detach"):
                f(y)

    def test_deepcopy_copies_and_keeps_what_is_shared(self):
        x = gd.ones(2, requires_grad=True)
        x.sum().backward()
        a, b = copy.deepcopy([x, x])
        self.assertIs(a, b)
        self.assertIsNot(a, x)
        self.assertEqual((a.grad.tolist(), a.requires_grad), ([1, 1], True))
        a.detach()[0] = 5
        self.assertEqual(x.tolist(), [1, 1])


class Errors(unittest.TestCase):
    def test_exceptions_are_also_pythons_own_and_gradus_error(self):
        x = gd.ones(2, 3)
        for call, own, python in (
                (lambda: x @ x, gd.ShapeError, ValueError), (lambda: x[5], gd.IndexError, IndexError),
                (lambda: x & x, gd.DtypeError, TypeError), (lambda: gd.device("nowhere"), gd.DeviceError, RuntimeError),
                (lambda: x.sum().backward(), gd.StateError, RuntimeError),
                (lambda: gd.ones(2, 3).sum(axis=7), gd.IndexError, IndexError)):
            with self.subTest(own=own.__name__):
                with self.assertRaises(python) as failure:
                    call()
                self.assertIsInstance(failure.exception, gd.Error)
                self.assertIsInstance(failure.exception, own)
                self.assertTrue(str(failure.exception))

    def test_messages_name_the_op_and_the_shapes(self):
        with self.assertRaisesRegex(ValueError, r"matmul\(a f32\[2,3\], b f32\[2,3\]\)"):
            gd.ones(2, 3) @ gd.ones(2, 3)
        with self.assertRaisesRegex(ValueError, r"\[2,3\].*\[4\]"):
            gd.ones(2, 3) + gd.ones(4)

    def test_arguments_of_the_wrong_kind_are_type_errors(self):
        x = gd.ones(2)
        for call in (lambda: gd.relu(), lambda: gd.relu(x, x, x, x, x), lambda: gd.relu(x, wrong=1), lambda: gd.sum("a"),
                     lambda: x.sum(axis="a"), lambda: gd.zeros("a"), lambda: gd.zeros(2, dtype="nonsense"),
                     lambda: x.reshape("a"), lambda: gd.Tensor(), lambda: x.to(3.5)):
            with self.assertRaises((TypeError, ValueError)):
                call()

    def test_a_failure_leaves_no_failure_behind(self):
        for _ in range(3):
            with self.assertRaises(ValueError):
                gd.ones(2) + gd.ones(3)
            self.assertEqual((gd.ones(2) + gd.ones(2)).tolist(), [2, 2])


class Threads(unittest.TestCase):
    def test_threads_compute_what_one_thread_computes(self):
        def work(seed):
            rng = random.Random(seed)
            total = 0.0
            for _ in range(60):
                n = rng.randint(1, 50)
                x = gd.arange(n, dtype=gd.float64).reshape(1, n)
                w = gd.ones(n, 3, dtype=gd.float64, requires_grad=True)
                y = (x @ w)[:, ::-1].sum()
                y.backward()
                total += y.item() + float(w.grad.sum())
                try:
                    x @ x.reshape(n)[:0]
                except ValueError:
                    total += 1
            return total

        expected = [work(seed) for seed in range(8)]
        got = [None] * 8

        def run(i):
            got[i] = work(i)

        threads = [threading.Thread(target=run, args=(i,)) for i in range(8)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(got, expected)

    def test_threads_may_share_a_tensor_and_its_views(self):
        x, wrong = gd.arange(1000, dtype=gd.float32), []

        def run():
            for i in range(200):
                if float(x[i:].sum()) != sum(range(i, 1000)) or x.shape != (1000,):
                    wrong.append(i)

        threads = [threading.Thread(target=run) for _ in range(6)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(wrong, [])

    def test_modes_belong_to_their_thread(self):
        x = gd.ones(1, requires_grad=True)
        seen = []
        with gd.no_grad():
            thread = threading.Thread(target=lambda: seen.append((x * 2).requires_grad))
            thread.start()
            thread.join()
            seen.append((x * 2).requires_grad)
        self.assertEqual(seen, [True, False])


if __name__ == "__main__":
    unittest.main()
