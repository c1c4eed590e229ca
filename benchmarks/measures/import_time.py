"""Import: seconds, modules and memory that `import SDK` costs, and import with the first start of a run."""

from __future__ import annotations

import statistics
import sys
from pathlib import Path

from benchmarks.results import Options, Progress, Result
from benchmarks.spawn import execute, last_words, scratch
from benchmarks.subjects import SUBJECTS

NAME = "import"
METHOD = (
    "A new interpreter each time, byte code and page cache warm (the first is thrown away), the clock "
    "around the user's lines alone; lowest of the rounds, SDKs visited in turn. Modules and memory are "
    "what the lines add."
)
_SNIPPET = """
import os, sys, time
FOLDER = os.getcwd()
PAGE = os.sysconf("SC_PAGE_SIZE")
def rss():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * PAGE
names, memory, start = len(sys.modules), rss(), time.perf_counter()
{lines}
end = time.perf_counter()
with open("answer", "w") as f:
    f.write(f"{{(end - start) * 1e3}} {{len(sys.modules) - names}} {{(rss() - memory) / 1e6}}")
os._exit(0)
"""


def measure(options: Options, progress: Progress) -> list[Result]:
    """Import every subject in turn, several times over."""
    rounds = 3 if options.quick else 6
    lines = {("import", name): SUBJECTS[name].importing for name in options.subjects if SUBJECTS[name].importing}
    lines |= {("import and start", name): f"{line}\n{SUBJECTS[name].starting}" for (_, name), line in lines.items()}
    taken: dict[tuple[str, str], list[list[float]]] = {pair: [] for pair in lines}
    skipped: dict[tuple[str, str], str] = {}
    for turn in range(rounds + 1):
        progress(f"import: round {turn} of {rounds}")
        for pair, code in lines.items():
            if pair not in skipped:
                row, why = _once(code)
                if why:
                    skipped[pair] = why
                    progress(f"{pair[0]}: {pair[1]} SKIPPED: {why}")
                elif turn:
                    taken[pair].append(row)
    done = [Result(NAME, case, name, _stats(rows)) for (case, name), rows in taken.items() if rows]
    return done + [Result(NAME, case, name, skipped=why) for (case, name), why in skipped.items()]


def _once(code: str) -> tuple[list[float], str]:
    with scratch() as folder:
        _, said = execute([sys.executable, "-c", _SNIPPET.format(lines=code)], folder, limit_s=60)
        answer: Path = folder / "answer"
        if not answer.exists():
            return [], last_words(said)
        return [float(word) for word in answer.read_text().split()], ""


def _stats(rows: list[list[float]]) -> dict[str, float]:
    taken, modules, memory = zip(*rows, strict=True)
    return {
        "ms": min(taken),
        "median_ms": statistics.median(taken),
        "modules": min(modules),
        "rss_mb": min(memory),
    }
