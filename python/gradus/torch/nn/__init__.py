"""torch.nn: functions of networks."""
from gradus.torch.nn import functional  # noqa: F401


def __getattr__(name):
    if name == "grad":
        import importlib

        return importlib.import_module("gradus.torch.nn.grad")
    raise AttributeError(f"module 'gradus.torch.nn' has no attribute '{name}'")
