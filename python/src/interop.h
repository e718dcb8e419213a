/* interop.h - sharing memory with other libraries: buffers, NumPy's protocols, DLPack.
 *
 * The functions return tensors of the open scope, or NULL with an exception. */
#ifndef GRADUS_PYTHON_INTEROP_H
#define GRADUS_PYTHON_INTEROP_H

#include "binding.h"

/* The memory of an object with the buffer protocol. It is shared if `share` is true and the layout allows
 * it (addresses and strides are multiples of the element's size, no stride is negative, the byte order is
 * the machine's); otherwise it is copied. Tensors are on the CPU. Shared memory of a read-only buffer is never
 * written: calls that would write the tensor fail. */
gd_tensor *gdpy_from_buffer(PyObject *o, bool share);

/* An object with __dlpack__, or a capsule. Memory is shared unless it must be copied: on the CPU with
 * negative strides or an address that is not a multiple of the element's size. */
gd_tensor *gdpy_from_dlpack(PyObject *o);

/* An object with __array__ or __array_interface__, through NumPy; bfloat16 of ml_dtypes, too. */
gd_tensor *gdpy_from_array_protocol(PyObject *o);

/* Methods of gradus.Tensor and functions of the module. */
PyObject *gdpy_dlpack(PyObject *self, PyObject *args, PyObject *names);
PyObject *gdpy_dlpack_device(PyObject *self, PyObject *none);
PyObject *gdpy_numpy(PyObject *self, PyObject *args, PyObject *names);
PyObject *gdpy_function_from_dlpack(PyObject *module, PyObject *args, PyObject *names);

/* The bits of a bfloat16 tensor as a float16 tensor, which shares its memory: for NumPy, whose buffers have
 * no bfloat16. */
PyObject *gdpy_half_bits(PyObject *module, PyObject *tensor);

/* Sets gradus.Tensor.__dlpack_c_exchange_api__; after gdpy_tensor_init. */
int gdpy_dlpack_init(PyObject *module);

#endif
