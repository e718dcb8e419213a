"""torch.nn.parameter: Parameter."""
from gradus.nn.parameter import Parameter as Parameter
