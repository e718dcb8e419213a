"""The names of the Python Array API standard 2025.12, and which of them Gradus does not have yet: for messages, and for the
table in docs/guide/python.md."""

functions = """
    __array_namespace_info__ abs acos acosh add all any arange argmax argmin argsort asarray asin asinh astype
    atan atan2 atanh bitwise_and bitwise_invert bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor
    broadcast_arrays broadcast_shapes broadcast_to can_cast ceil clip concat conj copysign cos cosh
    count_nonzero cumulative_prod cumulative_sum diff divide empty empty_like equal exp expand_dims expm1 eye
    finfo flip floor floor_divide from_dlpack full full_like greater greater_equal hypot iinfo imag isdtype
    isfinite isin isinf isnan less less_equal linspace log log10 log1p log2 logaddexp logical_and logical_not
    logical_or logical_xor matmul matrix_transpose max maximum mean meshgrid min minimum moveaxis multiply
    negative nextafter nonzero not_equal ones ones_like permute_dims positive pow prod real reciprocal remainder
    repeat reshape result_type roll round searchsorted sign signbit sin sinh sort sqrt square squeeze stack std
    subtract sum take take_along_axis tan tanh tensordot tile tril triu trunc unique_all unique_counts
    unique_inverse unique_values unstack var vecdot where zeros zeros_like
""".split()
linalg = """
    cholesky cross det diagonal eigh eigvalsh inv matmul matrix_norm matrix_power matrix_rank matrix_transpose
    outer pinv qr slogdet solve svd svdvals tensordot trace vecdot vector_norm
""".split()
fft = """
    fft fftfreq fftn fftshift hfft ifft ifftn ifftshift ihfft irfft irfftn rfft rfftfreq rfftn
""".split()
dtypes = """
    bool complex64 complex128 float32 float64 int8 int16 int32 int64 uint8 uint16 uint32 uint64
""".split()


def missing():
    """Lists of the names that are not there, by the place where the standard has them."""
    import gradus

    return {
        "functions": [n for n in functions if n not in vars(gradus)],
        "linalg": [n for n in linalg if n not in vars(gradus.linalg)],
        "fft": list(fft),
        "dtypes": [n for n in dtypes if n not in vars(gradus)],
    }


def explain(name):
    """The message of an attribute that does not exist."""
    if name in dtypes:
        return f"gradus has no dtype {name} yet"
    if name in functions:
        return f"gradus has no function {name} yet (the array API standard has it)"
    if name == "fft":
        return "gradus has no Fourier transforms yet"
    return f"module 'gradus' has no attribute '{name}'"
