#!/usr/bin/env python3
"""Converts a PyTorch state dict to a safetensors file.

    python tools/to_safetensors.py resnet18.pth resnet18.safetensors
    python tools/to_safetensors.py checkpoint.pt model.safetensors --key model --strip module.

Reads .pt and .pth files written by torch.save: a state dict, or a checkpoint that contains one under the key "state_dict",
"model_state_dict", "model" or "net" (or under --key, a path of keys joined by dots). Files are loaded with weights_only=True, so
no code in them is executed.

Tensors are written row-major under their names. Tensors that share all of their memory (tied weights) are written once, under
the first name; a model in which they are tied finds them. Tensors that share only a part of their memory are written
separately. Numbers and strings among the tensors become metadata.

Needs torch and numpy.
"""
import argparse
import json
import os
import struct
import sys

import numpy as np
import torch

DTYPES = {
    torch.bool: "BOOL", torch.uint8: "U8", torch.int8: "I8", torch.int16: "I16", torch.int32: "I32",
    torch.int64: "I64", torch.float16: "F16", torch.bfloat16: "BF16", torch.float32: "F32", torch.float64: "F64",
}
for _name, _code in (("uint16", "U16"), ("uint32", "U32"), ("uint64", "U64"), ("float8_e4m3fn", "F8_E4M3"),
                     ("float8_e5m2", "F8_E5M2"), ("complex64", "C64")):
    if hasattr(torch, _name):
        DTYPES[getattr(torch, _name)] = _code

USUAL_KEYS = ("state_dict", "model_state_dict", "model", "net")


class ConversionError(Exception):
    pass


def is_state_dict(value):
    """A dict from names to tensors, with at least one tensor; it may also have numbers and strings."""
    return (isinstance(value, dict) and any(isinstance(v, torch.Tensor) for v in value.values())
            and all(isinstance(k, str) for k in value))


def find_state_dict(loaded, key):
    if key:
        for part in key.split("."):
            if not isinstance(loaded, dict) or part not in loaded:
                raise ConversionError(f"there is no key '{part}' of --key {key}; there are {describe_keys(loaded)}")
            loaded = loaded[part]
        if not is_state_dict(loaded):
            raise ConversionError(f"'{key}' is not a state dict; it has {describe_keys(loaded)}")
        return loaded
    for name in USUAL_KEYS:
        if isinstance(loaded, dict) and is_state_dict(loaded.get(name)):
            return loaded[name]
    if is_state_dict(loaded):
        return loaded
    raise ConversionError(f"no state dict found; choose one with --key. There are {describe_keys(loaded)}")


def describe_keys(value):
    if not isinstance(value, dict):
        return f"no keys, but {type(value).__name__}"
    keys = [str(k) for k in value]
    return "the keys " + ", ".join(keys[:8]) + (f" and {len(keys) - 8} more" if len(keys) > 8 else "")


def same_memory(tensor):
    """A key that is equal for tied tensors: the same elements of the same memory in the same order."""
    if tensor.numel() == 0:
        return None
    return (tensor.device, tensor.data_ptr(), tensor.dtype, tuple(tensor.shape), tensor.stride())


def collect(state, strip):
    """Returns names and tensors, larger elements first so that all are aligned; the metadata; and the ties."""
    tensors, metadata, seen, ties = {}, {"format": "pt"}, {}, []
    for name, value in state.items():
        if name.startswith(strip):
            name = name[len(strip):]
        if isinstance(value, (bool, int, float, str)):
            metadata[name] = value if isinstance(value, str) else repr(value)
            continue
        if not isinstance(value, torch.Tensor):
            print(f"{name}: {type(value).__name__} skipped", file=sys.stderr)
            continue
        if value.layout != torch.strided or value.is_quantized or value.dtype not in DTYPES:
            raise ConversionError(f"{name}: safetensors has no tensors of {value.dtype}, {value.layout}")
        if name in tensors or not name or name == "__metadata__":
            raise ConversionError(f"'{name}' is not a valid name of a tensor, or occurs twice")
        first = seen.setdefault(same_memory(value), name)
        if first != name and same_memory(value) is not None:
            ties.append((name, first))
            continue
        tensors[name] = value.detach()
    ordered = sorted(tensors.items(), key=lambda item: -item[1].element_size())
    return ordered, metadata, ties


def data_of(tensor):
    """The elements of a tensor, row-major and little-endian."""
    flat = tensor.resolve_conj().resolve_neg().to("cpu").contiguous().reshape(-1)
    data = flat.view(torch.uint8).numpy() if flat.numel() else np.empty(0, np.uint8)
    if sys.byteorder == "big" and tensor.element_size() > 1:
        data = data.reshape(-1, tensor.element_size())[:, ::-1]
    return np.ascontiguousarray(data)


def write(path, ordered, metadata):
    header, at = {"__metadata__": metadata}, 0
    for name, tensor in ordered:
        size = tensor.numel() * tensor.element_size()
        header[name] = {"dtype": DTYPES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % 64)
    temporary = f"{path}.tmp-{os.getpid()}"
    try:
        with open(temporary, "wb") as file:  # the old file remains until the new one is complete
            file.write(struct.pack("<Q", len(text)) + text)
            for _, tensor in ordered:
                file.write(memoryview(data_of(tensor)))
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        if os.path.exists(temporary):
            os.remove(temporary)
        raise


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", help="the .pt or .pth file")
    parser.add_argument("target", help="the safetensors file to write")
    parser.add_argument("--key", help="key of the state dict in a checkpoint: model, or ema.net")
    parser.add_argument("--strip", default="", help="a prefix to remove from names, such as module. of DataParallel")
    options = parser.parse_args()
    try:
        loaded = torch.load(options.source, map_location="cpu", weights_only=True)
        ordered, metadata, ties = collect(find_state_dict(loaded, options.key), options.strip)
        write(options.target, ordered, metadata)
    except (ConversionError, OSError, RuntimeError) as problem:
        sys.exit(f"{options.source}: {problem}")
    except Exception as problem:  # pickle errors: the file contains more than tensors
        sys.exit(f"{options.source}: cannot read it with weights_only=True: {str(problem).splitlines()[0]}")
    for name, first in ties:
        print(f"{name} is tied to {first}", file=sys.stderr)
    size = sum(t.numel() * t.element_size() for _, t in ordered)
    print(f"{options.target}: {len(ordered)} tensors, {size} bytes")


if __name__ == "__main__":
    main()
