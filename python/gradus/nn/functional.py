"""gradus.nn.functional: functions of networks, with PyTorch's names and meanings."""
from gradus._nn_functions import *  # noqa: F401,F403
