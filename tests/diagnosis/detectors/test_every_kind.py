"""Every kind of finding: named in a run that has the fault, and silent on the same run without it."""

import functools
import itertools
from pathlib import Path

import pytest

from benchmarks.zoo.evaluate import FAULTS, HEALTHY, names, seeded
from benchmarks.zoo.story import Story, Truth
from stepscope.diagnosis import registry
from stepscope.diagnosis.finding import Finding
from stepscope.diagnosis.findings_json import band_words
from stepscope.diagnosis.run_diagnosis import Diagnosis
from stepscope.model.names import EVENT_FINISHED, EVENT_STARTED
from stepscope.model.records import Alert, Event, Log, Span
from tests.diagnosis.detectors.logged_faults import LOGGED

HERE = Path(__file__).parent
SECOND = 10**9
SEED = 1
RUNS = {
    "spike": ("spike_3x", "spike_early"),
    "not_finite": ("nan_rank_layer",),
    "divergence": ("slow_divergence",),
    "constant": ("dead_constant",),
    "bad_resume": ("bad_resume",),
    "lr_schedule": ("lr_jump", "lr_not_scheduled"),
    "kl_blowup": ("kl_around_zero", "kl_blowup"),
    "value_function": ("value_function_lost",),
    "retry_storm": ("retry_storm", "retries_counted"),
    "data_stall": ("data_stall", "masked_stall", "stall_beside_straggler", "stall_on_crowded_machine"),
    "checkpoint_growth": ("growing_checkpoint",),
    "throughput_loss": ("throughput_loss", "slower_steps"),
    "config_differs": ("batch_size_differs",),
    **{
        kind: (kind,)
        for kind in (
            *("level_shift", "plateau", "not_learning", "vanishing_gradients", "exploding_gradients", "lr_zero"),
            *("scaler_collapse", "accuracy_drop", "overfit", "entropy_collapse", "clip_saturated", "clip_zero"),
            *("dead_environment", "reward_hacking", "memory_creep", "gpu_memory_creep", "disk_filling", "gpu_idle"),
            *("periodic_stall", "straggler", "intermittent_straggler", "slow_link", "slower_than_before", "desync"),
            *("clock_skew", "code_differs", "new_error", "log_burst", "hang", "lost_records", "dead_rank"),
            *("duplicate_steps", "missing_steps"),
        )
    },
}
"""Runs of the zoo that have a fault of this kind."""
ELSEWHERE = {
    *("slow_span", "crash", "error", "alert", "detector_failed", "busy_machine", "always_clipped"),
    *("no_progress", "restart_storm", "small_batch", "recompilation", "gc_pauses", "checkpoint_old", "no_first_step"),
    *("odd_machine", "overtraining", "suspect_host", "looping_samples", "empty_samples", "equal_samples"),
    "script_change",
    *(each.name for each in registry.kinds().values() if each.name in LOGGED),
}
"""Kinds that have tests beside their modules."""
AFTER = 200
"""Steps after the fault that several ranks tell of."""


def told(story: Story, twin_ends: int | None = None, upto: int | None = None) -> tuple[list[Finding], list[Finding]]:
    """Diagnose a run up to a step, or whole with the time going on after its end; also what was found before a step."""
    diagnosis, last, before = Diagnosis(world=story.world, earlier=story.earlier), 0, list[Finding]()
    for each in story.told():
        if twin_ends is not None and each.record.step is not None and each.record.step >= twin_ends:
            before, twin_ends = list(diagnosis.findings()), None
        if upto is not None and each.record.step is not None and each.record.step >= upto:
            break
        diagnosis.feed(each.rank, each.record, each.attempt, each.host)
        last = max(last, each.time)
    assert twin_ends is None
    if story.dies is not None:
        diagnosis.died(story.dies[0], last + SECOND)
    for second in range(90 if story.hangs is not None else 0):
        diagnosis.tick(last + second * SECOND)
    return diagnosis.findings(), before


@functools.cache
def plain() -> list[Finding]:
    """What is found in a run without any fault, the twin of those that have no step."""
    return told(HEALTHY["plain"](seeded("plain", SEED)))[0]


def fault(name: str) -> tuple[list[Finding], list[Finding], Truth]:
    """What is found in the run of a fault, and in its healthy twin.

    The twin is the same run before the fault, or one without it where it has no step. Of a run that hangs or dies it is
    made apart: its ranks may end at different steps.
    """
    story, truth = FAULTS[name](seeded(name, SEED))
    twin_ends = truth.step and truth.step - (0 if truth.window < 3 else 2)
    if story.hangs is not None or story.dies is not None:
        whole, _ = told(story)
        story, _ = FAULTS[name](seeded(name, SEED))
        story.hangs = story.dies = None
        return whole, told(story, upto=twin_ends)[0] if twin_ends else plain(), truth
    upto = None if truth.step is None or story.world == 1 else truth.step + AFTER
    found, before = told(story, twin_ends or None, upto)
    return found, before if twin_ends else plain(), truth


def test_every_kind_has_a_run() -> None:
    """A detector that is added comes with a run of the zoo that has its fault, or with a test of its own."""
    tested = [each for each in registry.built_in() if (HERE / f"test_{each.__module__.rpartition('.')[2]}.py").exists()]
    own = {kind.name for each in tested for kind in each.KINDS}
    assert RUNS.keys() | ELSEWHERE | own == set(registry.KINDS)


@pytest.mark.parametrize("name", sorted(set(itertools.chain(*RUNS.values()))))
def test_a_fault_is_named_and_its_healthy_twin_is_not(name: str) -> None:
    """Its kind, step, rank, metric or span are right, and it says what was expected; without it, nothing is found."""
    found, healthy, truth = fault(name)
    right = [each for each in found if names(each, truth)]
    assert right, (truth, found)
    assert all(band_words(each).startswith("Expected ") for each in found)
    assert not [each for each in healthy if each.kind in truth.kinds]


class _Raises:
    KINDS = ()

    def __init__(self, run: object) -> None:
        pass

    def log(self, *given: object) -> None:
        raise ValueError("no")


def test_what_the_program_recorded_itself_says_what_was_expected() -> None:
    """Crashes, deaths, errors, alerts and failed detectors have no band and say in words what was expected."""
    diagnosis = Diagnosis(world=3, detectors=[_Raises])
    took = SECOND // 5
    for step in range(40):
        diagnosis.feed(0, Span(step * SECOND, took, step, None, b"", bytes([step] * 8), None, "train.step"))
    diagnosis.feed(0, Span(0, took, 3, None, b"", b"f" * 8, None, "fetch", 0, 2, "refused"))
    diagnosis.feed(0, Alert(0, 5, None, None, None, 17, "low", "too low"))
    diagnosis.feed(0, Log(0, 5, None, None, None, 9, "hello"))
    found = {each.kind: band_words(each) for each in diagnosis.findings()}
    diagnosis.feed(1, Event(0, 39, None, None, None, 17, EVENT_FINISHED, {"status": "failed"}))
    found |= {each.kind: band_words(each) for each in diagnosis.findings()}
    diagnosis.died(2, 41 * SECOND)
    found |= {each.kind: band_words(each) for each in diagnosis.findings()}
    assert found == {
        "error": "Expected no exception and no failed span",
        "alert": "Expected no alert from the training code",
        "crash": "Expected every process to end with the status finished",
        "dead_rank": "Expected a step every 200 ms, or an exit record when a process ends",
        "detector_failed": "Expected a detector that does not raise",
    }


def test_ranks_that_differ_say_what_the_others_have() -> None:
    """The expected setting is that of most ranks; where there is no majority, it is one value on all."""
    for settings, words in (
        ([1, 1, 2], "Expected 1, as on 2 other ranks"),
        ([1, 2], "Expected the same value on all ranks"),
    ):
        diagnosis = Diagnosis(world=len(settings))
        for rank, value in enumerate(settings):
            diagnosis.feed(rank, Event(1, None, None, None, None, 9, EVENT_STARTED, {"config": {"depth": value}}))
        assert [(each.kind, band_words(each)) for each in diagnosis.findings()] == [("config_differs", words)]
