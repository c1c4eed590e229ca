"""Where a process stands still: its Python stacks and its collectives, recorded when it makes no progress."""

import sys
import threading
import time
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any

from stepscope.model import names
from stepscope.sdk.run_protocols import Part

MIN_SECONDS = 2.0
"""A process is reported when it stands still for this long, and ..."""
PATIENCE = 2.0
"""... for this many times as long as it ever did before."""
LOOPING = 3.0
"""One that moves within a step must take this many times longer."""
MAX_FRAMES, MAX_THREADS, MAX_GROUPS, MAX_RANKS = 48, 8, 16, 64
MAX_REPORTS = 200
"""The most reports of one process."""
_TENSORS = ("tensor", "input_tensor", "input", "output_tensor", "output", "tensor_list", "object_list", "obj")
Moment = tuple[Any, ...]


class Positions:
    """Compares where the main thread is, once a second, and records an event when that stays the same.

    Nothing is asked of the training loop. What it costs is walking one stack a second.
    """

    def __init__(self, run: Part, clock: Callable[[], float] = time.monotonic) -> None:
        self._run, self._clock = run, clock
        self._still = _Stay(1.0)
        self._in_step = _Stay(LOOPING)
        self._stepped = run.launch.world_size > 1
        self._reports = 0
        self.details: list[Callable[[], Mapping[str, Any]]] = []
        """Functions that add to a report."""

    def __call__(self) -> None:
        """Look where the main thread is, and report a process that stands still."""
        run = self._run
        mark = run.active_mark
        self._stepped = self._stepped or mark is not None
        if not self._stepped or not run.main or run.status != "running":
            return
        frame = sys._current_frames().get(threading.main_thread().ident or 0)
        now = self._clock()
        still = self._still.stays((mark, *_signature(frame)), now)
        in_step = mark is not None and self._in_step.stays((mark,), now) and not self._still.reported
        if (still or in_step) and self._reports < MAX_REPORTS:
            self._reports += 1
            run.event(
                names.EVENT_POSITION, self._report(frame, self._still.seconds if still else self._in_step.seconds)
            )

    def _report(self, frame: FrameType | None, seconds: float) -> dict[str, Any]:
        found: dict[str, Any] = {"seconds": round(seconds, 3), "stack": stack_of(frame)}
        if others := _other_threads():
            found["threads"] = others
        if collective := collective_of(frame):
            found["collective"] = collective
        if groups := groups_here():
            found["groups"] = groups
        for detail in self.details:
            found.update(detail())
        return found


class _Stay:
    """How long something has been the same, compared with how long it ever was."""

    def __init__(self, factor: float) -> None:
        self._factor = factor
        self._moment: Moment = ()
        self._since = 0.0
        self.reported = False
        self._longest = 0.0
        self.seconds = 0.0

    def stays(self, moment: Moment, now: float) -> bool:
        """Return, once, that it has been the same for longer than usual."""
        if moment != self._moment or not self._since:
            self._longest = max(self._longest, self.seconds)
            self._moment, self._since, self.reported, self.seconds = moment, now, False, 0.0
            return False
        self.seconds = now - self._since
        if self.reported or self.seconds < max(MIN_SECONDS, PATIENCE * self._longest) * self._factor:
            return False
        self.reported = True
        return True


def _signature(frame: FrameType | None) -> Moment:
    """Return where a thread is: the code and instruction of its frames."""
    found: list[int] = []
    while frame is not None and len(found) < 2 * MAX_FRAMES:
        found += (id(frame.f_code), frame.f_lasti)
        frame = frame.f_back
    return tuple(found)


def stack_of(frame: FrameType | None) -> str:
    """Return a stack as lines of file, line and function, the innermost last."""
    lines: list[str] = []
    while frame is not None and len(lines) < MAX_FRAMES:
        code = frame.f_code
        lines.append(f"{code.co_filename}:{frame.f_lineno} {code.co_name}")
        frame = frame.f_back
    return "\n".join(reversed(lines))


def _other_threads() -> dict[str, str]:
    """Return the stacks of the other threads of the program, by name."""
    stacks = sys._current_frames()
    others = [each for each in threading.enumerate() if each is not threading.main_thread()]
    seen = {each.name: stacks[each.ident] for each in others if each.ident in stacks}
    named = [(name, frame) for name, frame in seen.items() if not name.startswith("stepscope")]
    return {name: stack_of(frame) for name, frame in named[:MAX_THREADS]}


def collective_of(frame: FrameType | None) -> dict[str, Any]:
    """Return the collective of torch.distributed that a thread is in, with its size: empty when it is in none."""
    while frame is not None:
        code = frame.f_code
        if code.co_name in names.COLLECTIVES and code.co_filename.endswith("distributed_c10d.py"):
            return _described(code.co_name, frame.f_locals)
        frame = frame.f_back
    return {}


def _described(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {"name": name}
    first = next((given[each] for each in _TENSORS if given.get(each) is not None), None)
    if isinstance(first, (list, tuple)) and first:
        first = first[0]
    try:
        found["numel"], found["dtype"] = int(first.numel()), str(first.dtype).removeprefix("torch.")  # type: ignore[union-attr]
    except Exception:  # an object, or no tensor at all
        pass
    group = given.get("group")
    if isinstance(label := getattr(group, "group_name", None), str):
        found["group"] = label
    return found


def groups_here() -> dict[str, dict[str, Any]]:
    """Return the process groups of this process: how many collectives each has begun, and its ranks."""
    library = sys.modules.get("torch.distributed.distributed_c10d")
    world = getattr(library, "_world", None)
    found: dict[str, dict[str, Any]] = {}
    for group in list(getattr(world, "pg_map", {}))[:MAX_GROUPS]:
        try:
            ranks = sorted(world.pg_group_ranks[group])  # type: ignore[union-attr]
            begun = int(group._get_sequence_number_for_group())
        except Exception:  # a group that was destroyed, or a backend that does not count
            continue
        found[str(group.group_name)] = {"begun": begun, "size": len(ranks), "ranks": ranks[:MAX_RANKS]}
    return found
