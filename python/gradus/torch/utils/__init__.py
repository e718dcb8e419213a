"""torch.utils."""
import importlib as _importlib

from gradus.torch.utils import checkpoint as checkpoint

TYPE_CHECKING = False

if not TYPE_CHECKING:

    def __getattr__(name):
        if name == "data":
            return _importlib.import_module("gradus.torch.utils.data")
        raise AttributeError(f"module 'gradus.torch.utils' has no attribute '{name}'")
