"""torch.utils."""
from gradus.torch.utils import checkpoint as checkpoint
