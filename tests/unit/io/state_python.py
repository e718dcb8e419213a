"""The Python side of test_state_python.c: python state_python.py WHAT FILE [MORE]."""
import sys

try:
    import xxhash
except ImportError:
    xxhash = None
import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

DTYPES = dict(bool=torch.bool, u8=torch.uint8, i8=torch.int8, i32=torch.int32, i64=torch.int64,
              f16=torch.float16, bf16=torch.bfloat16, f32=torch.float32, f64=torch.float64)
what, path = sys.argv[1], sys.argv[2]


def values(shape, dtype):
    return (torch.arange(int(np.prod(shape))) % 3 - (0 if dtype in (torch.uint8, torch.bool) else 1)).to(dtype).reshape(shape)


if what == "read":  # a file written by the library
    tensors = load_file(path)
    for name, dtype in DTYPES.items():
        assert torch.equal(tensors["net." + name], values((2, 5), dtype)), name
    for rank in range(9):
        assert torch.equal(tensors[f"net.r{rank}"], values([2, 1, 3, 1, 2, 1, 2, 1][:rank], torch.float32)), rank
    assert tensors["net.empty"].shape == (2, 0, 3) and len(tensors) == 19
    with safe_open(path, "pt") as file:
        assert file.metadata()["net.integer"] == "-7" and file.metadata()["format"] == "pt"
        checksum = file.metadata().get("gradus.checksum")
    if checksum and xxhash:  # computed with zeros in place of its digits
        data = open(path, "rb").read()
        assert "xxh64:" + xxhash.xxh64(data.replace(checksum.encode(), b"xxh64:" + b"0" * 16)).hexdigest() == checksum
elif what == "write":
    tensors = {"net." + name: values((2, 5), dtype) for name, dtype in DTYPES.items()}
    tensors.update({f"net.r{rank}": values([2, 1, 3, 1, 2, 1, 2, 1][:rank], torch.float32) for rank in range(9)})
    tensors["net.empty"] = torch.zeros(2, 0, 3, dtype=torch.float64)
    save_file(tensors, path, metadata={"net.number": "0.5", "net.integer": "-7", "net.natural": "9", "net.text": "x"})
elif what == "checkpoint":  # with tied and transposed weights, in a nested dict
    net = torch.nn.ModuleDict(dict(a=torch.nn.Linear(3, 4), b=torch.nn.Linear(3, 4)))
    net["b"].weight = net["a"].weight
    state = {"module." + name: v for name, v in net.state_dict().items()}
    state["module.t"] = torch.arange(6.).reshape(2, 3).t()
    state["module.step"] = 12
    with torch.no_grad():
        net["a"].weight.copy_(torch.arange(12.).reshape(4, 3))
        net["a"].bias.fill_(1)
        net["b"].bias.fill_(2)
    torch.save({"epoch": 3, "state_dict": state, "optimizer": {"lr": 0.1}}, path)
else:
    sys.exit(f"unknown command {what}")
