"""What the metrics of known frameworks mean: one module per framework, each a table of names by role."""

from stepscope.diagnosis.vocabularies.keras import KERAS
from stepscope.diagnosis.vocabularies.megatron import MEGATRON
from stepscope.diagnosis.vocabularies.nanochat import NANOCHAT
from stepscope.diagnosis.vocabularies.nemo_rl import NEMO_RL
from stepscope.diagnosis.vocabularies.openrlhf import OPENRLHF
from stepscope.diagnosis.vocabularies.prime_rl import PRIME_RL
from stepscope.diagnosis.vocabularies.stable_baselines import STABLE_BASELINES
from stepscope.diagnosis.vocabularies.tinker_cookbook import TINKER_COOKBOOK
from stepscope.diagnosis.vocabularies.torchtitan import TORCHTITAN
from stepscope.diagnosis.vocabularies.trl import TRL, TRL_REWARD
from stepscope.diagnosis.vocabularies.verl import VERL

ALL = (
    *(VERL, TRL, TINKER_COOKBOOK, PRIME_RL, TORCHTITAN, MEGATRON, NANOCHAT, STABLE_BASELINES, KERAS, OPENRLHF),
    *(NEMO_RL, TRL_REWARD),
)
