"""torch.nn.init: initial values, written into a tensor."""
from gradus.nn.init import *  # noqa: F401,F403
