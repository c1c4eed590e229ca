"""A machine or GPU unlike the others: its readings differ from those of all peers, which agree with each other."""

from statistics import median

from stepscope.diagnosis.detector import RunState, judged_once
from stepscope.diagnosis.finding import Finding, Kind, number
from stepscope.diagnosis.series_history import Series, spread

ODD = Kind(
    "odd_machine",
    "INFO",
    "this machine or GPU does other work than its peers, or is slower, hotter or less used",
    "Compare its clocks, cooling, other jobs and the share of the work it gets with a peer.",
    rules_out="a property of the training: the peers agree with each other",
)
PEERS = 3
"""So many others must have the same reading."""
BLOCKS = 4
SIGMAS, DIFFERENCE = 6.0, 0.3
"""It differs by so many times their spread, and by this share of their median."""


def judge(series: Series, run: RunState) -> Finding | None:
    """Compare the last blocks of a reading with those of all others of the same role."""
    if len(series.middles) < BLOCKS:
        return None
    peers = [
        median(each.middles[-BLOCKS:])
        for (role, _), found in run.by_role.items()
        if role == series.role.name
        for each in found
        if each is not series and len(each.middles) >= BLOCKS and (each.key == series.key or role != "gpu_time")
    ]
    if len(peers) < PEERS:
        return None
    usual, mine = median(peers), median(series.middles[-BLOCKS:])
    apart = max(SIGMAS * spread(peers), DIFFERENCE * abs(usual), max(peers) - min(peers))
    if abs(mine - usual) <= apart or any(abs(each - usual) <= apart for each in series.middles[-BLOCKS:]):
        return None
    text = f"{series.key} is {number(mine)}, and {number(usual)} on {len(peers)} peers"
    return ODD.about(series, series.firsts[-BLOCKS], text, (usual - apart, usual + apart), value=mine)


OddMachine = judged_once(
    "OddMachine", ODD, ("gpu_use", "gpu_temperature", "gpu_clock", "gpu_time", "host_cpu_use"), judge, held_out=None
)
"""Watches readings that all machines and GPUs of a run have."""
