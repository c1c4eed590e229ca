"""PyTorch timed through its own hooks: data, forward, backward, optimizer, collectives, checkpoints, gradient norm."""

from stepscope.integrations.torch.profiling import Window as Window
from stepscope.integrations.torch.profiling import profile as profile
from stepscope.integrations.torch.timing import instrument as instrument
from stepscope.integrations.torch.timing import instrument_once as instrument_once
from stepscope.integrations.torch.timing import uninstrument as uninstrument
