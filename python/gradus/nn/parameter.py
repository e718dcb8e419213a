"""gradus.nn.parameter: Parameter."""
from gradus.nn._module import Parameter as Parameter
