"""What the Python Array API standard has and Gradus has not yet, for messages."""

#: Functions that need a kernel or a dtype that is not there yet.
functions = {
    "copysign", "nextafter", "signbit", "conj", "real", "imag",
    "unique_all", "unique_counts", "unique_inverse", "unique_values",
}
dtypes = {"int16", "uint16", "uint32", "uint64", "complex64", "complex128"}


def explain(name):
    """The message of an attribute that does not exist."""
    if name in dtypes:
        return f"gradus has no dtype {name} yet"
    if name in functions:
        return f"gradus has no function {name} yet (the array API standard has it)"
    if name == "fft":
        return "gradus has no Fourier transforms yet"
    return f"module 'gradus' has no attribute '{name}'"
