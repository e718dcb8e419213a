"""torch.utils.tensorboard: the writer of gradus.tensorboard."""
from gradus.tensorboard import SummaryWriter as SummaryWriter
