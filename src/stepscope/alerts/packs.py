"""The built-in packs of rules; a rule is idle where its metrics do not exist."""

from functools import cache

from stepscope.alerts.rule import Compiled, Rule, compile_rule

PACKS = ("findings", "training", "rl", "service", "system")

_KL = [
    *("trainer/kl", "*.kl", "kl_divergence", "*/kl_divergence", "*.kl_divergence"),
    *("approx_kl", "*/approx_kl", "*.approx_kl", "*/approxkl", "*/approxkl_avg", "*/ppo_kl"),
]
"""KL divergences of an update. One to a reference model grows in a healthy run, and `kl` alone is often that one."""
_RULES: dict[str, tuple[Rule, ...]] = {
    "findings": (
        Rule(
            name="findings",
            when="finding *",
            keep_firing="15m",
            message="{text}",
        ),
    ),
    "training": (
        Rule(
            name="training: no loss",
            key=["loss", "*/loss", "*.loss"],
            rank=0,
            when="absent 60m",
            severity="WARN",
            message="no loss has been logged for an hour and the run has not ended: is it stuck?",
        ),
    ),
    "rl": (
        Rule(
            name="rl: KL warning",
            key=_KL,
            when="> 0.05",
            hold="3 steps",
            recovery=0.04,
            keep_firing="3 steps",
            severity="WARN",
            message="KL {value} is above 0.05 since step {step}: lower the learning rate if it keeps rising",
        ),
        Rule(
            name="rl: KL critical",
            key=_KL,
            when="> 0.1",
            recovery=0.08,
            keep_firing="3 steps",
            severity="ERROR",
            message="KL {value} exceeds 0.1 since step {step}: the policy is leaving its reference",
            inhibits=["rl: KL warning", "finding kl_blowup"],
        ),
    ),
    "service": (
        Rule(
            name="service: long queue",
            key=["*futures.queue_length", "*performance.queue_depth", "*/queue_depth"],
            when="> 100",
            hold="5m",
            recovery=50,
            keep_firing="1m",
            message="{value} requests have been waiting for more than 5 minutes: add workers or slow the clients",
        ),
    ),
    "system": (
        Rule(
            name="system: disk full",
            key="system/disk/utilization",
            when="> 0.97",
            hold="1m",
            recovery=0.95,
            severity="ERROR",
            message="the disk is {value} full: checkpoints will fail",
        ),
        Rule(
            name="system: memory full",
            key="system/memory/utilization",
            when="> 0.97",
            hold="30s",
            recovery=0.93,
            severity="ERROR",
            message="memory is {value} full: the process may be killed",
        ),
        Rule(
            name="system: GPU hot",
            key="system/gpu/*/temperature_celsius",
            when="> 90",
            hold="1m",
            recovery=85,
            keep_firing="1m",
            message="{key} is {value}: the GPU slows down to protect itself",
        ),
    ),
}


@cache
def pack_rules(name: str) -> tuple[Compiled, ...]:
    """The rules of a pack."""
    return tuple(compile_rule(rule, f"pack {name}") for rule in _RULES[name])
