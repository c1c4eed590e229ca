"""Megatron-LM."""

from stepscope.diagnosis.vocabulary import Vocabulary

MEGATRON = Vocabulary(
    "megatron-lm",
    signs=frozenset(("lm loss", "iteration-time", "params-norm")),
    own={
        "zeros": ("num-zeros",),
        "param_norm": ("params-norm",),
        "step_time": ("iteration-time",),
        "skipped": ("skipped-train-samples", "skipped iterations"),
        "attention_logit": ("max_attention_logit",),
        "gpu_memory": ("mem-allocated-bytes", "mem-reserved-bytes"),
        "power": ("power/gpu",),
        "stage": ("batch-size",),
    },
)
