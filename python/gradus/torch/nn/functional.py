"""torch.nn.functional: functions of networks."""
from gradus._nn_functions import *  # noqa: F401,F403
