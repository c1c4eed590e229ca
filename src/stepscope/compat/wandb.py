"""The public name of the shim for wandb: `import stepscope.compat.wandb as wandb`."""

import sys
from importlib import import_module

sys.modules[__name__] = import_module("stepscope.dialects.wandb.shim")
