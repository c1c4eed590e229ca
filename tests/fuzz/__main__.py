"""Run one target under atheris: `python -m tests.fuzz NAME [options of libFuzzer]`; exit 0 when nothing was found."""

import sys
import tempfile
from pathlib import Path

import atheris

from tests.fuzz.instrumented import TARGETS

LIMITS = ("-rss_limit_mb=4000", "-timeout=10", "-use_value_profile=1", "-print_final_stats=1")
"""What one input may cost: memory of the process, seconds of one input."""


def main(name: str, options: list[str]) -> None:
    """Fuzz until an option of libFuzzer ends it; an input that fails is left in the current folder."""
    target = TARGETS[name]
    folder = Path(tempfile.mkdtemp(prefix=f"stepscope-fuzz-{name}-"))
    for number, seed in enumerate(target.seeds()):
        (folder / f"seed-{number:03d}").write_bytes(seed)
    given = [option for option in options if not option.startswith("-")]
    flags = [option for option in options if option.startswith("-")]
    again = bool(given) and all(Path(path).is_file() for path in given)
    # New inputs go to the first folder: one that was named keeps them for the next time.
    atheris.Setup([name, *LIMITS, *flags, *given, *([] if again else [str(folder)])], target.check)
    atheris.Fuzz()


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] not in TARGETS:
        sys.exit(f"usage: python -m tests.fuzz {'|'.join(TARGETS)} [-max_total_time=600] [CORPUS]")
    main(sys.argv[1], sys.argv[2:])
