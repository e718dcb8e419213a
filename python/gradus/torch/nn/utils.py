"""torch.nn.utils: the functions of gradus.nn.utils."""
from gradus.nn.utils import *  # noqa: F401,F403
