"""Feed the zoo to the diagnosis and count: named, detected, delay, and false alarms on healthy runs."""

import argparse
import random
import sys
import time
import zlib
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from benchmarks.zoo import faults, faults_time, healthy, healthy_converged, healthy_policies
from benchmarks.zoo.story import Story, Truth
from stepscope.diagnosis.finding import Finding
from stepscope.diagnosis.run_diagnosis import Diagnosis

FAULTS, HEALTHY = faults.FAULTS, healthy.HEALTHY
MODULES = (faults, faults_time, healthy, healthy_converged, healthy_policies)
"""Each registers the runs it has."""
BEGIN, END = "<!-- measured -->", "<!-- /measured -->"


@dataclass(slots=True)
class Score:
    """What became of the runs of one kind."""

    runs: int = 0
    named: int = 0
    detected: int = 0
    extra: int = 0
    fatal: int = 0
    delays: list[int] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def diagnose(story: Story, truth: Truth | None = None, delays: list[int] | None = None) -> list[Finding]:
    """Tell a run to a diagnosis, with the clock going on after a hang or a death.

    Adds to `delays` how many steps after the step of the truth it was named.
    """
    diagnosis = Diagnosis(world=story.world, earlier=story.earlier)
    last, changes, named = 0, 0, truth is None or truth.step is None or delays is None
    for told in story.told():
        diagnosis.feed(told.rank, told.record, told.attempt, told.host)
        last = max(last, told.time)
        if not named and diagnosis.changes != changes and told.record.step is not None:
            changes = diagnosis.changes
            if any(names(each, truth) for each in diagnosis.findings()):  # type: ignore[arg-type]
                named = True
                delays.append(max(told.record.step - truth.step, 0))  # type: ignore[union-attr, operator]
    if story.dies is not None:
        diagnosis.died(story.dies[0], last + 1_000_000_000)
    if story.hangs is not None:
        for second in range(1, 90):
            diagnosis.tick(last + second * 1_000_000_000)
    return diagnosis.findings()


def names(finding: Finding, truth: Truth) -> bool:
    """Whether a finding has the kind, the step, the rank and the thing right."""
    if finding.kind not in truth.kinds:
        return False
    if truth.step is not None and (finding.step is None or abs(finding.step - truth.step) > truth.window):
        return False
    if truth.ranks is not None and set(finding.ranks) != set(truth.ranks):
        return False
    about = " ".join((finding.text, finding.key or "", finding.span or "", *finding.also, *finding.symptoms))
    return truth.about is None or truth.about in about


def detects(finding: Finding, truth: Truth) -> bool:
    """Whether a finding is at least about the right time."""
    if truth.step is None or finding.step is None:
        return finding.kind in truth.kinds
    return finding.kind in truth.kinds or abs(finding.step - truth.step) <= max(truth.window, 20)


def seeded(name: str, seed: int) -> random.Random:
    """A generator that depends on the name and the seed only."""
    return random.Random(zlib.crc32(name.encode()) * 1_000_003 + seed)


def measure(seeds: range, only: str = "") -> tuple[dict[str, Score], dict[str, Score]]:
    """Score every kind on these seeds."""
    bad: dict[str, Score] = defaultdict(Score)
    good: dict[str, Score] = defaultdict(Score)
    for seed in seeds:
        for name, make in FAULTS.items():
            if only and only not in name:
                continue
            story, truth = make(seeded(name, seed))
            score = bad[name]
            found = [each for each in diagnose(story, truth, score.delays) if each.severity != "INFO"]
            score.runs += 1
            right = [each for each in found if names(each, truth)]
            score.named += bool(right)
            score.detected += any(detects(each, truth) for each in found)
            score.extra += len(found) - len(right)
            if not right or len(found) > 1:
                wanted = f"seed {seed}: {truth}" if not right else f"seed {seed}: right, and"
                score.notes.append(
                    wanted
                    + "".join(f"\n      {each.kind} {each.ranks} {each.text}" for each in found if each not in right)
                )
        for name, tell in HEALTHY.items():
            if only and only not in name:
                continue
            found = [each for each in diagnose(tell(seeded(name, seed))) if each.severity != "INFO"]
            score = good[name]
            score.runs += 1
            score.extra += len(found)
            score.fatal += sum(each.severity == "FATAL" for each in found)
            score.notes += [f"seed {seed}: {each.kind} {each.text}" for each in found]
    return bad, good


def summary(bad: dict[str, Score], good: dict[str, Score]) -> list[str]:
    """The totals in two sentences."""
    runs, peaceful = sum(each.runs for each in bad.values()), sum(each.runs for each in good.values())
    named, detected = sum(each.named for each in bad.values()), sum(each.detected for each in bad.values())
    others = sum(each.extra for each in bad.values())
    alarms, fatal = sum(each.extra for each in good.values()), sum(each.fatal for each in good.values())
    shares = f"{named / max(runs, 1):.1%} named, {detected / max(runs, 1):.1%} detected"
    return [
        f"{len(bad)} kinds of fault, {runs} runs: {shares}, {others / max(runs, 1):.2f} other findings a run.",
        f"{len(good)} kinds of healthy run, {peaceful} runs: {alarms / max(peaceful, 1):.3f} false alarms a run, "
        f"{fatal} FATAL.",
    ]


def table(bad: dict[str, Score], good: dict[str, Score], seeds: range) -> str:
    """The results as a part of docs/diagnosis.md."""
    lines = [
        f"Seeds {seeds.start} to {seeds.stop - 1}.",
        "",
        *summary(bad, good),
        "",
        "| fault | named | detected | delay | other findings |",
        "|---|---|---|---|---|",
    ]
    lines += [
        f"| {name} | {each.named} of {each.runs} | {each.detected} of {each.runs} | {_delay(each)} | {each.extra} |"
        for name, each in bad.items()
    ]
    lines += ["", "| healthy run with a false alarm | alarms | runs |", "|---|---|---|"]
    lines += [f"| {name} | {each.extra} | {each.runs} |" for name, each in good.items() if each.extra] or [
        "| none | 0 | |"
    ]
    return "\n".join(lines)


def _delay(score: Score) -> str:
    """The median delay in words; nothing where a fault has no step, or shows by the absence of records."""
    if not score.delays:
        return ""
    steps = int(median(score.delays))
    return f"{steps} step{'s' * (steps != 1)}"


def write(path: Path, text: str, begin: str = BEGIN, end: str = END) -> None:
    """Put a text between the marks of a page."""
    before, _, rest = path.read_text().partition(begin)
    _, _, after = rest.partition(end)
    path.write_text(f"{before}{begin}\n{text}\n{end}{after}")


def main() -> None:
    """Measure, and print or write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="100:103", help="FIRST:LAST, the last not included; below 100 is for tuning")
    parser.add_argument("--only", default="", help="the kinds that have this in their names")
    parser.add_argument("--notes", action="store_true", help="print what was found and not expected")
    parser.add_argument("--write", type=Path, help="a page to put the table into")
    args = parser.parse_args()
    first, last = map(int, args.seeds.split(":"))
    begun = time.perf_counter()
    bad, good = measure(range(first, last), args.only)
    if args.notes:
        for name, score in [*bad.items(), *good.items()]:
            print("".join(f"{name} {note}\n" for note in score.notes), end="")
    if args.write:
        write(args.write, table(bad, good, range(first, last)))
    print(table(bad, good, range(first, last)))
    print(f"{time.perf_counter() - begun:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
