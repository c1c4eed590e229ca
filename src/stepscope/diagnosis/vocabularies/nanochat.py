"""nanochat."""

from stepscope.diagnosis.vocabulary import Vocabulary

NANOCHAT = Vocabulary(
    "nanochat",
    signs=frozenset(("train/tok_per_sec", "core_metric", "val/bpb", "train/lrm")),
    own={"step_time": ("train/dt",), "held_out_accuracy": ("core_metric",), "": ("train/lrm", "lrm")},
    here={"length": ("sequence_length",)},
)
