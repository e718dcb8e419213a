"""torch.cuda: the devices of CUDA."""
from __future__ import annotations

from gradus import _core


def is_available() -> bool:
    """Whether there is a device."""
    return device_count() > 0


def device_count() -> int:
    """The number of devices."""
    count = 0
    while True:
        try:
            _core.empty(0, device=f"cuda:{count}")
        except Exception:
            return count
        count += 1


def synchronize(device=None) -> None:
    """Waits until the device has done all its work."""
    _core.synchronize("cuda" if device is None else device)


def manual_seed(seed) -> None:
    """Sets the seed of all random functions."""
    _core.manual_seed(seed)


manual_seed_all = manual_seed


def empty_cache() -> None:
    """There is nothing to do: memory is shared by all tensors of a device."""
