"""Memory that tensors share with other libraries: buffers, NumPy's protocols, DLPack."""

import array
import ctypes
import gc
import subprocess
import sys
import threading
import unittest
import weakref
import zlib

import gradus as gd

try:
    import numpy as np
except ImportError:
    np = None
try:
    import ml_dtypes
except ImportError:
    ml_dtypes = None
try:
    import torch
except ImportError:
    torch = None
try:
    import jax
except ImportError:
    jax = None

needs_numpy = unittest.skipUnless(np, "NumPy is not installed")
needs_torch = unittest.skipUnless(torch, "PyTorch is not installed")
needs_jax = unittest.skipUnless(jax, "JAX is not installed")

DTYPES = {"bool": "?", "uint8": "B", "int8": "b", "int32": "i", "int64": "l", "float16": "e", "float32": "f",
          "float64": "d"}


def address(a):
    return a.__array_interface__["data"][0]


class FromBuffers(unittest.TestCase):
    def test_objects_of_the_standard_library_share_their_memory(self):
        a = array.array("d", [1, 2, 3])
        x = gd.as_tensor(a)
        self.assertEqual((x.dtype, x.tolist()), ("float64", [1, 2, 3]))
        a[1] = 20
        self.assertEqual(x.tolist(), [1, 20, 3])
        with self.assertRaises(BufferError):  # while it is exported
            a.append(4)
        del x
        a.append(4)
        m = memoryview(bytearray(range(6))).cast("B", (2, 3))
        self.assertEqual(gd.as_tensor(m).tolist(), [[0, 1, 2], [3, 4, 5]])
        c = (ctypes.c_long * 2)(5, 6)
        self.assertEqual((gd.as_tensor(c).dtype, gd.as_tensor(c).tolist()), ("int64", [5, 6]))

    def test_read_only_memory_is_shared_and_never_written(self):
        x = gd.as_tensor(b"abc")
        self.assertEqual(x.tolist(), [97, 98, 99])
        self.assertEqual((x + 1).tolist(), [98, 99, 100])
        with self.assertRaisesRegex(RuntimeError, "read-only"):
            x.add_(1)
        with self.assertRaisesRegex(RuntimeError, "read-only"):
            x[0] = 1
        self.assertTrue(memoryview(x).readonly)
        self.assertEqual(gd.tensor(b"abc").add_(1).tolist(), [98, 99, 100])

    @needs_numpy
    def test_every_dtype_shares_memory(self):
        for name in DTYPES:
            for shape in [(), (3,), (2, 3), (2, 0, 4), (2,) * 8]:
                a = np.ones(shape, name)
                x = gd.as_tensor(a)
                self.assertEqual((x.dtype, tuple(x.shape)), (name, shape))
                if a.size:
                    self.assertEqual(x.data_ptr(), address(a))
                self.assertTrue((np.asarray(memoryview(x)) == a).all())

    @needs_numpy
    def test_views_share_memory_where_strides_allow_it(self):
        a = np.arange(24, dtype="f4").reshape(2, 3, 4)
        for view in [a.T, a[:, ::2], a[1], a[..., 1:3], np.broadcast_to(a[0], (5, 3, 4))]:
            x = gd.as_tensor(view)
            self.assertEqual(x.data_ptr(), address(view))
            self.assertEqual(x.tolist(), view.tolist())

    @needs_numpy
    def test_what_cannot_be_shared_is_copied(self):
        a = np.arange(24, dtype="f8").reshape(4, 6)
        bytes_ = np.frombuffer(b"x" + a.tobytes(), "u1")[1:]
        record = np.zeros(3, [("value", "f4"), ("flag", "i1")])  # 5 bytes
        record["value"] = [1, 2, 3]
        for view in [a[::-1], a[:, ::-2], a.astype(">f8"), a.astype(">i4")[:, ::-1],
                     bytes_.view("f8").reshape(4, 6), record["value"]]:
            x = gd.as_tensor(view)
            self.assertEqual(x.tolist(), view.tolist())
            x.add_(0)  # it is our memory

    @needs_numpy
    def test_dtypes_that_do_not_exist_say_what_to_do(self):
        for name, part in [("int16", "int16; convert the array to int32"), ("uint16", "uint16.*int32"),
                           ("uint32", "uint32.*int64"), ("uint64", "uint64.*int64"),
                           ("complex64", "complex64.*real"), ("complex128", "complex128"),
                           ("longdouble", "float64 first"), ("S3", "format"), ("M8[s]", "datetime64"),
                           ("U2", "format|str"), ("O", "object|format")]:
            with self.assertRaisesRegex(gd.DtypeError, part):
                gd.tensor(np.zeros(2, name))
        with self.assertRaises(gd.DtypeError):
            gd.tensor(np.zeros(2, [("a", "f4"), ("b", "f4")]))
        with self.assertRaisesRegex(gd.ShapeError, "9 dimensions"):
            gd.tensor(np.zeros((1,) * 9))

    @needs_numpy
    def test_the_owner_lives_as_long_as_the_tensor(self):
        class Array(np.ndarray):
            pass

        a = np.zeros(3, "f4").view(Array)
        gone = weakref.ref(a)
        x = gd.as_tensor(a)
        view = x[1:]
        del a, x
        gc.collect()
        self.assertIsNotNone(gone())
        view.add_(1)
        del view
        gc.collect()
        self.assertIsNone(gone())

    @unittest.skipUnless(np and ml_dtypes, "ml_dtypes is not installed")
    def test_bfloat16_of_ml_dtypes(self):
        a = np.array([[1.5, -2], [3, 4]], ml_dtypes.bfloat16)
        x = gd.as_tensor(a)
        self.assertEqual((x.dtype, x.tolist()), ("bfloat16", [[1.5, -2], [3, 4]]))
        self.assertEqual(x.data_ptr(), address(a))
        self.assertEqual(gd.as_tensor(a.T).tolist(), [[1.5, 3], [-2, 4]])
        b = x.numpy()
        self.assertEqual((b.dtype, address(b)), (a.dtype, address(a)))

    @needs_numpy
    def test_objects_with_array_protocols(self):
        class Interface:
            def __init__(self, a):
                self.a, self.__array_interface__ = a, a.__array_interface__

        class Method:
            def __array__(self, dtype=None, copy=None):
                return np.arange(3.0)

        a = np.arange(4, dtype="i4")
        self.assertEqual(gd.as_tensor(Method()).tolist(), [0, 1, 2])
        self.assertEqual(gd.as_tensor(Interface(a)).data_ptr(), address(a))
        with self.assertRaisesRegex(TypeError, "object"):
            gd.as_tensor(object())
        self.assertEqual(gd.as_tensor(np.float32(3)).dtype, "float32")


class ToBuffers(unittest.TestCase):
    def test_a_memoryview_has_the_tensors_memory(self):
        for name, format in DTYPES.items():
            x = gd.ones((2, 3), dtype=name)
            m = memoryview(x)
            self.assertEqual((m.format, m.shape, m.readonly, m.ndim), (format, (2, 3), False, 2))
            if format != "e":  # memoryview reads it from Python 3.12 on
                self.assertEqual(m.tolist(), x.tolist())
        m = memoryview(gd.ones(()))
        self.assertEqual((m.shape, m.tolist()), ((), 1.0))
        x = gd.zeros(3)
        memoryview(x)[1] = 5
        self.assertEqual(x.tolist(), [0, 5, 0])

    def test_strides_are_those_of_the_tensor(self):
        x = gd.arange(6, dtype="float32").reshape((2, 3)).T
        self.assertEqual(memoryview(x).strides, (4, 12))
        self.assertEqual(memoryview(x).tolist(), x.tolist())
        with self.assertRaisesRegex(BufferError, "contiguous"):
            zlib.crc32(x)
        self.assertEqual(zlib.crc32(x.contiguous()), zlib.crc32(memoryview(x).tobytes()))

    def test_a_receiver_gets_the_layout_that_it_asks_for(self):
        get, release = ctypes.pythonapi.PyObject_GetBuffer, ctypes.pythonapi.PyBuffer_Release
        get.argtypes = [ctypes.py_object, ctypes.c_void_p, ctypes.c_int]
        release.argtypes = [ctypes.c_void_p]
        view = (ctypes.c_void_p * 10)()
        rows = gd.ones((2, 3))
        SIMPLE, WRITABLE, FORMAT, ND, STRIDES, C, F, ANY = 0, 1, 4, 8, 0x18, 0x38, 0x58, 0x98
        for x, fits in [(rows, {SIMPLE, WRITABLE, ND, STRIDES, C, ANY}), (rows.T, {STRIDES, F, ANY}),
                        (rows[:, ::2], {STRIDES})]:
            for flags in [SIMPLE, WRITABLE, ND, STRIDES, C, F, ANY]:
                for format in [0, FORMAT]:
                    with self.subTest(flags=flags, fits=fits):
                        if flags not in fits:
                            with self.assertRaisesRegex(BufferError, "contiguous"):
                                get(x, view, flags | format)
                            continue
                        self.assertEqual(get(x, view, flags | format), 0)
                        self.assertEqual((view[5] is not None), bool(format))
                        self.assertEqual((view[6] is not None), bool(flags & ND))
                        self.assertEqual((view[7] is not None), flags & STRIDES == STRIDES)
                        release(view)
        with self.assertRaisesRegex(BufferError, "only reading"):
            get(gd.as_tensor(b"abc"), view, WRITABLE)

    def test_the_memory_lives_as_long_as_the_buffer(self):
        x = gd.full((1000,), 7.0)
        m = memoryview(x)
        del x
        gc.collect()
        self.assertEqual(m[999], 7)

    def test_tensors_without_a_buffer_say_what_to_call(self):
        with self.assertRaisesRegex(BufferError, "detach"):
            memoryview(gd.ones(3, requires_grad=True))
        with self.assertRaisesRegex(BufferError, "bfloat16"):
            memoryview(gd.ones(3, dtype="bfloat16"))

    @needs_numpy
    def test_numpy_shares_the_memory(self):
        x = gd.arange(6, dtype="float64").reshape((2, 3))
        a = np.asarray(memoryview(x))
        self.assertEqual(address(a), x.data_ptr())
        del x
        gc.collect()
        self.assertEqual(a.sum(), 15)


class DLPack(unittest.TestCase):
    def test_capsules_have_the_names_of_their_version(self):
        x = gd.ones(3)
        self.assertEqual(x.__dlpack_device__(), (1, 0))
        self.assertIn('"dltensor"', repr(x.__dlpack__()))
        self.assertIn('"dltensor_versioned"', repr(x.__dlpack__(max_version=(1, 0))))
        self.assertIn('"dltensor"', repr(x.__dlpack__(max_version=(0, 8))))

    def test_a_capsule_is_used_once(self):
        for version in [None, (1, 3)]:
            x = gd.ones(3)
            capsule = x.__dlpack__(max_version=version)
            y = gd.from_dlpack(capsule)
            self.assertEqual(y.data_ptr(), x.data_ptr())
            with self.assertRaisesRegex(ValueError, "used already"):
                gd.from_dlpack(capsule)
            y.add_(1)
            del capsule, x
            gc.collect()
            self.assertEqual(y.tolist(), [2, 2, 2])

    @needs_numpy
    def test_a_capsule_that_nobody_uses_frees_its_memory(self):
        for names in [{}, {"max_version": (1, 3)}]:
            a = np.zeros(1000)
            gone = weakref.ref(a)
            capsule = gd.as_tensor(a).__dlpack__(**names)
            del a
            gc.collect()
            self.assertIsNotNone(gone())
            del capsule
            self.assertIsNone(gone())

    def test_arguments_are_checked(self):
        x = gd.ones(3)
        for stream in [0, 1, "x", 5]:
            with self.assertRaises(ValueError):
                x.__dlpack__(stream=stream)
        x.__dlpack__(stream=-1)
        for wrong in [{"max_version": 1}, {"max_version": (1,)}, {"dl_device": "cpu"}, {"dl_device": (1, 2, 3)}]:
            with self.assertRaises(TypeError):
                x.__dlpack__(**wrong)
        with self.assertRaises(BufferError):
            x.__dlpack__(dl_device=(8, 0))
        with self.assertRaises(TypeError):
            x.__dlpack__(None)
        with self.assertRaisesRegex(BufferError, "detach"):
            gd.ones(3, requires_grad=True).__dlpack__()
        for wrong in [3, "x", object(), [1]]:
            with self.assertRaisesRegex(TypeError, "__dlpack__"):
                gd.from_dlpack(wrong)

    def test_copies(self):
        x = gd.ones(3)
        self.assertEqual(gd.from_dlpack(x).data_ptr(), x.data_ptr())
        self.assertEqual(gd.from_dlpack(x, copy=False).data_ptr(), x.data_ptr())
        self.assertNotEqual(gd.from_dlpack(x, copy=True).data_ptr(), x.data_ptr())
        capsule = x.__dlpack__(max_version=(1, 3), copy=True)
        self.assertNotEqual(gd.from_dlpack(capsule).data_ptr(), x.data_ptr())
        self.assertEqual(gd.from_dlpack(x, device="cpu").data_ptr(), x.data_ptr())

    def test_producers_that_lie_are_errors(self):
        x = gd.ones(3)

        def producer(device=(1, 0), dlpack=None):
            class Producer:
                def __dlpack_device__(self):
                    if isinstance(device, Exception):
                        raise device
                    return device

                def __dlpack__(self, **names):
                    if isinstance(dlpack, Exception):
                        raise dlpack
                    return dlpack(names) if callable(dlpack) else dlpack

            return Producer()

        self.assertEqual(gd.from_dlpack(producer(dlpack=lambda n: x.__dlpack__(**n))).data_ptr(), x.data_ptr())
        for device in [3, "ab", (1,), (1, "x"), (2**40, 0), None]:
            with self.assertRaises(TypeError):
                gd.from_dlpack(producer(device))
        for result in [None, 3, "capsule", object()]:
            with self.assertRaises(TypeError):
                gd.from_dlpack(producer(dlpack=result))
        for error in [RuntimeError("mine"), KeyError("mine"), BufferError("mine")]:
            with self.assertRaisesRegex(type(error), "mine"):
                gd.from_dlpack(producer(error))
            with self.assertRaisesRegex(type(error), "mine"):
                gd.from_dlpack(producer(dlpack=error))
        with self.assertRaises(RuntimeError):  # no such device
            gd.from_dlpack(producer((2, 77)))

        class Old:  # before DLPack 1.0
            def __dlpack_device__(self):
                return 1, 0

            def __dlpack__(self, stream=None):
                return x.__dlpack__(stream=stream)

        self.assertEqual(gd.from_dlpack(Old()).data_ptr(), x.data_ptr())

    @needs_numpy
    def test_numpy_both_ways(self):
        for name in DTYPES:
            a = np.ones((2, 3), name)
            x = gd.from_dlpack(a)
            self.assertEqual((x.dtype, x.data_ptr()), (name, address(a)))
            b = np.from_dlpack(x)
            self.assertEqual((b.dtype, address(b)), (a.dtype, address(a)))
        a = np.arange(6.0)
        self.assertEqual(gd.from_dlpack(a[::-1]).tolist(), a[::-1].tolist())
        with self.assertRaisesRegex(BufferError, "negative"):
            gd.from_dlpack(a[::-1], copy=False)
        a.flags.writeable = False
        x = gd.from_dlpack(a)
        self.assertEqual(x.data_ptr(), address(a))
        with self.assertRaisesRegex(RuntimeError, "read-only"):
            x.add_(1)
        self.assertFalse(np.from_dlpack(x).flags.writeable)
        with self.assertRaises(BufferError):
            x.__dlpack__()  # the old struct cannot say it
        with self.assertRaisesRegex(gd.DtypeError, "int16"):
            gd.from_dlpack(np.zeros(3, "int16"))

    @needs_numpy
    def test_the_producer_lives_until_any_thread_frees_the_tensor(self):
        a = np.zeros(1000)
        gone = weakref.ref(a)
        tensors = [gd.from_dlpack(a)]
        del a
        self.assertIsNotNone(gone())
        thread = threading.Thread(target=tensors.clear)
        thread.start()
        thread.join()
        gc.collect()
        self.assertIsNone(gone())

    @needs_torch
    def test_torch_both_ways(self):
        for name in list(DTYPES) + ["bfloat16"]:
            t = torch.ones((2, 3), dtype=getattr(torch, name)).T
            x = gd.from_dlpack(t)
            self.assertEqual((x.dtype, x.data_ptr(), tuple(x.shape)), (name, t.data_ptr(), (3, 2)))
            u = torch.from_dlpack(x)
            self.assertEqual((u.dtype, u.data_ptr(), u.stride()), (t.dtype, t.data_ptr(), t.stride()))
            u = torch.utils.dlpack.from_dlpack(x.__dlpack__())
            self.assertEqual(u.data_ptr(), t.data_ptr())
        t = torch.ones(3)
        x = gd.from_dlpack(t)
        x.add_(1)
        self.assertEqual(t.tolist(), [2, 2, 2])
        del t
        self.assertEqual(x.tolist(), [2, 2, 2])
        x = gd.ones(3)
        t = torch.from_dlpack(x)
        del x
        self.assertEqual(t.sum().item(), 3)
        with self.assertRaisesRegex((BufferError, RuntimeError), "grad"):
            gd.from_dlpack(torch.ones(3, requires_grad=True))
        with self.assertRaises(gd.DtypeError):
            gd.from_dlpack(torch.zeros(3, dtype=torch.complex64))

    @needs_jax
    def test_jax_both_ways(self):
        a = jax.numpy.arange(6.0)
        x = gd.from_dlpack(a)
        self.assertEqual(x.data_ptr(), a.unsafe_buffer_pointer())
        self.assertEqual(x.tolist(), a.tolist())
        b = jax.dlpack.from_dlpack(gd.ones(100))
        self.assertEqual(float(b.sum()), 100)

    def test_the_table_of_c_functions(self):
        capsule = gd.Tensor.__dlpack_c_exchange_api__
        python = ctypes.pythonapi
        python.PyCapsule_GetPointer.restype = ctypes.c_void_p
        python.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
        at = python.PyCapsule_GetPointer(capsule, b"dlpack_exchange_api")
        self.assertEqual(tuple((ctypes.c_uint32 * 2).from_address(at)), (1, 3))
        table = (ctypes.c_void_p * 7).from_address(at)
        self.assertIsNone(table[1])
        p, i = ctypes.c_void_p, ctypes.c_int32
        from_object = ctypes.PYFUNCTYPE(i, ctypes.py_object, ctypes.POINTER(p))(table[3])
        to_object = ctypes.PYFUNCTYPE(i, p, ctypes.POINTER(ctypes.py_object))(table[4])
        describe = ctypes.PYFUNCTYPE(i, ctypes.py_object, p)(table[5])
        stream = ctypes.PYFUNCTYPE(i, i, i, ctypes.POINTER(p))(table[6])
        x = gd.ones(3)
        managed, result = p(), ctypes.py_object()
        self.assertEqual(from_object(x, ctypes.byref(managed)), 0)
        self.assertEqual(to_object(managed, ctypes.byref(result)), 0)
        self.assertEqual(result.value.data_ptr(), x.data_ptr())
        ctypes.pythonapi.Py_DecRef(ctypes.py_object(result.value))
        tensor = (ctypes.c_uint64 * 6)()
        self.assertEqual(describe(x, ctypes.addressof(tensor)), 0)
        self.assertEqual(tensor[0], x.data_ptr())
        self.assertEqual(ctypes.c_int64.from_address(tensor[3]).value, 3)
        got = p(1)
        self.assertEqual(stream(1, 0, ctypes.byref(got)), 0)
        self.assertIsNone(got.value)
        with self.assertRaises(BufferError):
            from_object(gd.ones(3, requires_grad=True), ctypes.byref(managed))
        with self.assertRaises(TypeError):
            from_object("x", ctypes.byref(managed))
        # a new tensor like a description, in a call that may be made without the GIL
        messages = []
        error = ctypes.CFUNCTYPE(None, p, ctypes.c_char_p, ctypes.c_char_p)(lambda c, k, m: messages.append((k, m)))
        allocate = ctypes.CFUNCTYPE(i, p, ctypes.POINTER(p), p, type(error))(table[2])
        self.assertEqual(allocate(ctypes.addressof(tensor), ctypes.byref(managed), None, error), 0)
        self.assertEqual(to_object(managed, ctypes.byref(result)), 0)
        self.assertEqual((tuple(result.value.shape), result.value.dtype), ((3,), "float32"))
        ctypes.pythonapi.Py_DecRef(ctypes.py_object(result.value))
        tensor[1] = 99  # the device
        self.assertEqual(allocate(ctypes.addressof(tensor), ctypes.byref(managed), None, error), -1)
        self.assertEqual(messages[0][0], b"BufferError")

    @needs_numpy
    def test_tensors_may_outlive_the_interpreter(self):
        code = """
import ctypes, sys
import numpy as np
import gradus as gd

with open("/proc/self/maps") as file:
    library = ctypes.CDLL(next(line.split()[-1] for line in file if "libgradus.so" in line))
at_exit = ctypes.CDLL(None).__cxa_atexit
at_exit.argtypes = [ctypes.c_void_p] * 3
library.gd_retain.argtypes = [ctypes.c_void_p]

for make in [gd.as_tensor, gd.from_dlpack]:
    x = make(np.ones(9))
    handle = ctypes.c_void_p.from_address(id(x) + object.__basicsize__).value
    library.gd_retain(handle)
    at_exit(ctypes.cast(library.gd_release, ctypes.c_void_p), handle, None)  # the last reference
sys.keep = [memoryview(gd.ones(3)), gd.ones(3).__dlpack__()]

class Late:
    def __del__(self, t=gd.from_dlpack(np.ones(9))):
        t.add_(1)

late = Late()
cycle = [late, sys.keep]
cycle.append(cycle)
"""
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stderr), (0, ""))


if __name__ == "__main__":
    unittest.main()
