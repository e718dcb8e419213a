"""Writes the safetensors files that the tests read.

    python tests/golden/safetensors_make.py

golden/safetensors/ has files written by the safetensors package: every dtype and rank, and shards with an
index as Hugging Face's loaders expect them. test_safetensors.c computes the same values: element i of a
tensor is (3 * i + 1) % 7 - 2, but (3 * i + 1) % 5 for u8 and i % 3 == 0 for bool.

fuzz/corpus/safetensors/ has damaged and malicious files; expected.txt has the error message of each.
"""
import json
import os
import struct

import torch
from safetensors.torch import save_file

HERE = os.path.dirname(os.path.abspath(__file__))
GOLDEN = os.path.join(HERE, "safetensors")
CORPUS = os.path.join(HERE, "..", "fuzz", "corpus", "safetensors")


def values(shape, dtype):
    i = torch.arange(int(torch.tensor(shape, dtype=torch.int64).prod()))
    if dtype is torch.bool:
        v = i % 3 == 0
    elif dtype is torch.uint8:
        v = (3 * i + 1) % 5
    else:
        v = (3 * i + 1) % 7 - 2
    return v.to(dtype).reshape(shape).contiguous()


def write_golden():
    os.makedirs(GOLDEN, exist_ok=True)
    dtypes = dict(bool=torch.bool, u8=torch.uint8, i8=torch.int8, i32=torch.int32, i64=torch.int64,
                  f16=torch.float16, bf16=torch.bfloat16, f32=torch.float32, f64=torch.float64)
    tensors = {f"{name}.weight": values((2, 3), dtype) for name, dtype in dtypes.items()}
    for rank in range(9):
        tensors[f"rank{rank}"] = values(tuple(1 + k % 2 for k in range(rank)), torch.float32)
    tensors["empty"] = values((0,), torch.float32)
    tensors["empty2"] = values((3, 0, 2), torch.int64)
    save_file(tensors, os.path.join(GOLDEN, "all.safetensors"), metadata={"format": "pt", "step": "41"})
    save_file({"half": values((4,), torch.float32).to(torch.float8_e4m3fn), "word": values((3,), torch.int16),
               "plain": values((2,), torch.float32)}, os.path.join(GOLDEN, "others.safetensors"))
    names = [f"model-{k:05d}-of-00002.safetensors" for k in (1, 2)]
    shards = [{"fc1.weight": values((4, 3), torch.float32), "fc1.bias": values((4,), torch.float32)},
              {"fc2.weight": values((2, 4), torch.float32), "fc2.bias": values((2,), torch.float32)}]
    for name, shard in zip(names, shards):
        save_file(shard, os.path.join(GOLDEN, name), metadata={"format": "pt"})
    index = {"metadata": {"total_size": sum(t.nbytes for s in shards for t in s.values())},
             "weight_map": {t: name for name, shard in zip(names, shards) for t in shard}}
    with open(os.path.join(GOLDEN, "model.safetensors.index.json"), "w") as f:
        f.write(json.dumps(index, indent=2, sort_keys=True) + "\n")


def tensor(dtype="F32", shape=(2,), offsets=(0, 8)):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


def file_bytes(header, data=b"\0" * 8, length=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def write_corpus():
    os.makedirs(CORPUS, exist_ok=True)
    deep = b'{"a":' + b"[" * 300 + b"]" * 300 + b"}"
    two = {"a": tensor(), "b": tensor(offsets=(8, 16))}
    bad = {
        "nothing": (b"", "is not a safetensors file: it has 0 bytes"),
        "seven_bytes": (b"\x02\0\0\0\0\0\0", "is not a safetensors file: it has 7 bytes"),
        "length_alone": (struct.pack("<Q", 2), "header would have 2 bytes, but the file ends at 8"),
        "length_zero": (struct.pack("<Q", 0), "does not begin with '{'"),
        "length_huge": (struct.pack("<Q", 2**64 - 1) + b"{}", "at most 100000000 are allowed"),
        "length_negative": (struct.pack("<q", -9) + b"{}", "at most 100000000 are allowed"),
        "length_over_limit": (struct.pack("<Q", 100000001) + b"{}", "at most 100000000 are allowed"),
        "length_beyond_file": (file_bytes({"a": tensor()}, length=99999), "but the file ends at"),
        "a_zip_file": (b"PK\x03\x04" + b"\0" * 60, "but the file ends at 64"),
        "a_pickle": (b"\x80\x02}q\0X\6\0\0\0weight", "at most 100000000 are allowed"),
        "json_array": (file_bytes(b"[1, 2]"), "does not begin with '{'"),
        "json_cut": (file_bytes(b'{"a": {"dtype": "F32"'), "expected"),
        "json_two_values": (file_bytes(b'{} {}', b""), "expected"),
        "json_comment": (file_bytes(b'{/* */}', b""), "expected"),
        "json_deep": (file_bytes(deep), "deep"),
        "json_nan": (file_bytes(b'{"a": NaN}'), "expected"),
        "not_utf8": (file_bytes(b'{"\xff\xfe": {"dtype":"F32","shape":[2],"data_offsets":[0,8]}}'), "UTF-8"),
        "half_a_surrogate": (file_bytes(b'{"\\ud800": {"dtype":"F32","shape":[2],"data_offsets":[0,8]}}'), "surrogate"),
        "zero_byte_in_name": (file_bytes(b'{"a\\u0000b": {"dtype":"F32","shape":[2],"data_offsets":[0,8]}}'), "has a zero byte"),
        "empty_name": (file_bytes({"": tensor()}), "a tensor has an empty name"),
        "same_name_twice": (file_bytes(b'{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},'
                                   b'"a":{"dtype":"F32","shape":[2],"data_offsets":[8,16]}}', b"\0" * 16), "twice"),
        "same_member_twice": (file_bytes(b'{"a":{"dtype":"F32","dtype":"F64","shape":[2],"data_offsets":[0,8]}}'), "twice"),
        "tensor_is_number": (file_bytes({"a": 3}), "tensor 'a': is described by a number"),
        "no_dtype": (file_bytes({"a": {"shape": [2], "data_offsets": [0, 8]}}), "has no \"dtype\""),
        "dtype_is_number": (file_bytes({"a": {"dtype": 3, "shape": [2], "data_offsets": [0, 8]}}), "has no \"dtype\""),
        "no_shape": (file_bytes({"a": {"dtype": "F32", "data_offsets": [0, 8]}}), "has no \"shape\""),
        "no_offsets": (file_bytes({"a": {"dtype": "F32", "shape": [2]}}), "has no \"data_offsets\""),
        "shape_is_text": (file_bytes({"a": {"dtype": "F32", "shape": "2", "data_offsets": [0, 8]}}), "is a string, not a list"),
        "one_offset": (file_bytes({"a": tensor(offsets=(8,))}), "\"data_offsets\" has 1 numbers, not 2"),
        "three_offsets": (file_bytes({"a": tensor(offsets=(0, 4, 8))}), "\"data_offsets\" has 3 numbers, not 2"),
        "size_negative": (file_bytes({"a": tensor(shape=(-2,))}), "negative"),
        "size_fraction": (file_bytes({"a": tensor(shape=(1.5,))}), "not an integer"),
        "size_is_text": (file_bytes({"a": tensor(shape=("2",))}), "has a string among its numbers"),
        "size_beyond_64_bits": (file_bytes({"a": tensor(shape=(2**64,))}), "too large"),
        "offset_negative": (file_bytes({"a": tensor(offsets=(-8, 0))}), "negative"),
        "offset_fraction": (file_bytes({"a": tensor(offsets=(0, 8.5))}), "not an integer"),
        "offset_beyond_63_bits": (file_bytes({"a": tensor(offsets=(0, 2**63))}), "too large"),
        "offsets_swapped": (file_bytes({"a": tensor(offsets=(8, 0))}), "ends (0) before it starts (8)"),
        "beyond_the_file": (file_bytes({"a": tensor(shape=(3,), offsets=(0, 12))}), "the file has 8 bytes of data"),
        "beyond_the_file_huge": (file_bytes({"a": tensor(shape=(2**40,), offsets=(0, 2**42))}), "the file has 8 bytes of data"),
        "product_overflows": (file_bytes({"a": tensor(shape=(2**62, 4))}), "shape is too large"),
        "product_overflows_bytes": (file_bytes({"a": tensor(shape=(2**61,))}), "shape is too large"),
        "product_overflows_to_0": (file_bytes({"a": tensor(shape=(2**32, 2**32, 4), offsets=(0, 0)), "b": tensor()}), "shape is too large"),
        "shape_too_small": (file_bytes({"a": tensor(shape=(1,))}), "has 8 bytes, but its shape and dtype F32 need 4"),
        "shape_too_large": (file_bytes({"a": tensor(shape=(3,))}), "has 8 bytes, but its shape and dtype F32 need 12"),
        "dtype_too_wide": (file_bytes({"a": tensor("F64")}), "has 8 bytes, but its shape and dtype F64 need 16"),
        "half_a_byte": (file_bytes({"a": tensor("F4", (3,), (0, 1))}, b"\0"), "do not fill complete bytes"),
        "overlap": (file_bytes({"a": tensor(), "b": tensor(offsets=(4, 12))}, b"\0" * 12), "tensor 'b': overlaps 'a'"),
        "same_bytes_twice": (file_bytes({"a": tensor(), "b": tensor()}), "overlaps"),
        "hole": (file_bytes({"a": tensor(), "b": tensor(offsets=(12, 20))}, b"\0" * 20), "after a hole from 8 on"),
        "hole_first": (file_bytes({"a": tensor(offsets=(4, 12))}, b"\0" * 12), "after a hole from 0 on"),
        "empty_inside_another": (file_bytes({"a": tensor(), "b": tensor(shape=(0,), offsets=(4, 4))}), "overlaps"),
        "bytes_behind": (file_bytes({"a": tensor()}, b"\0" * 9), "has 1 bytes after its last tensor"),
        "bytes_and_no_tensor": (file_bytes({}, b"\0" * 3), "has 3 bytes after its last tensor"),
        "data_cut": (file_bytes(two, b"\0" * 15), "the file has 15 bytes of data"),
        "metadata_is_list": (file_bytes({"__metadata__": ["a"], "a": tensor()}), "__metadata__ is an array"),
        "metadata_number": (file_bytes({"__metadata__": {"step": 3}, "a": tensor()}), "\"step\" of __metadata__ is a number"),
        "metadata_zero_byte": (file_bytes(b'{"__metadata__": {"a": "b\\u0000c"}}', b""), "has a zero byte"),
        "checksum_short": (file_bytes({"__metadata__": {"gradus.checksum": "xxh64:12"}, "a": tensor()}), "which is not a checksum"),
        "checksum_escaped": (file_bytes(b'{"__metadata__": {"gradus\\u002echecksum": "xxh64:0123456789abcdef"}}', b""),
                             "which is not a checksum"),
    }
    for name, (data, _) in bad.items():
        with open(os.path.join(CORPUS, name + ".bin"), "wb") as f:
            f.write(data)
    with open(os.path.join(CORPUS, "expected.txt"), "w") as f:
        for name, (_, reason) in bad.items():
            f.write(f"{name}.bin\t{reason}\n")


write_golden()
write_corpus()
