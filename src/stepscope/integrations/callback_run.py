"""The run of a framework's callback, and the categories of its values."""

import functools
from collections.abc import Callable, Collection, Mapping
from typing import Any, ClassVar

import stepscope
from stepscope.extend import detect_launch, message_of
from stepscope.model.names import ATTR_BUCKET, EVENT_CONFIG

EVALUATE = "train.evaluate"
Method = Callable[..., None]
_ACTIVE = ("running", "disabled")


class CallbackRun:
    """The run of a callback. A run that it started also ends with it; a joined run continues."""

    _paused: ClassVar["CallbackRun | None"] = None
    """The callback whose run is kept open because more may follow."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._settings = dict(settings)
        self._begun: stepscope.Run | None = None
        self._ours = False
        self._alone = False
        self._ranks = 1
        self._step: Any = None
        self._spans: dict[str, Any] = {}

    @property
    def active(self) -> stepscope.Run | None:
        """The run between `begin` and `end`, unless it is paused or was ended by other code."""
        run = self._begun
        return run if run is not None and run.status in _ACTIVE and CallbackRun._paused is not self else None

    @property
    def current(self) -> stepscope.Run | None:
        """The active run, else the current run of the process."""
        return self.active or stepscope.current_run()

    @property
    def is_asked_to_stop(self) -> bool:
        """Whether a user asked the run to stop; False on several ranks, which would not stop at the same step."""
        run = self.current
        return run is not None and self._ranks == 1 and run.stop_requested

    def begin(self, config: Mapping[str, Any]) -> stepscope.Run:
        """Join the current run, or start one with the settings; ConfigError when they are invalid.

        A run that it started and that an exception or a pause left open is continued.
        """
        self.leave()
        paused, CallbackRun._paused = CallbackRun._paused, None
        if paused is not None and paused is not self:
            paused.end()
        run = stepscope.current_run()
        self._ours = run is None or (self._ours and run is self._begun)
        self._alone = False
        if run is None:
            run = stepscope.init(**{"config": {**config}, **self._settings})
        elif config:
            run.event(EVENT_CONFIG, config)
        self._begun = run
        self._ranks = detect_launch().world_size
        return run

    def enter_step(self, number: int) -> None:
        """Enter a step, whose time counts as productive except for spans with another bucket."""
        self.leave_step()
        if self.current is not None:
            self._step = self.current.step(number).__enter__()
            self._step.set_attribute(ATTR_BUCKET, "productive")

    def leave_step(self) -> None:
        """Leave the current step, if any."""
        step, self._step = self._step, None
        if step is not None:
            step.__exit__(None, None, None)

    def enter(self, name: str, bucket: str) -> None:
        """Start a phase, unless it is running."""
        if self.current is not None and name not in self._spans:
            self._spans[name] = self.current.span(name, **{ATTR_BUCKET: bucket}).__enter__()

    def leave_phase(self, name: str) -> None:
        """End a phase, if it is running."""
        span = self._spans.pop(name, None)
        if span is not None:
            span.__exit__(None, None, None)

    def enter_evaluation(self, config: Callable[[], Mapping[str, Any]]) -> None:
        """Start an evaluation, unless one is running; without a current run it gets its own run."""
        if self.current is None:
            self.begin(config())
            self._alone = True
        self.enter(EVALUATE, "overhead")

    def leave_evaluation(self) -> None:
        """End the evaluation, if one is running, and its own run if it has one."""
        self.leave_phase(EVALUATE)
        if self._alone:
            self.end()

    def leave(self) -> None:
        """End all phases, newest first, and the step."""
        for name in reversed(list(self._spans)):
            self.leave_phase(name)
        self.leave_step()

    def pause(self) -> None:
        """End open phases and the step, but keep a run that it started open, because more may follow.

        That run ends with the process, or when another callback begins.
        """
        if not self._ours:
            self.end()
            return
        self.leave()
        CallbackRun._paused = self

    def end(self, status: str = "finished", error: BaseException | None = None) -> None:
        """End open phases, the step, and the run if it was started here; an exception is recorded in either case."""
        self.leave()
        run, self._begun = self._begun, None
        ours, self._ours, self._alone = self._ours, False, False
        if run is None:
            return
        if error is not None:
            run.exception(error)
        if ours:
            run.finish(status)


def counted(method: Method) -> Method:
    """Make a callback method that cannot raise into training: failures are counted, with one warning."""

    @functools.wraps(method)
    def call(self: Any, *arguments: Any, **named: Any) -> None:
        try:
            method(self, *arguments, **named)
        except Exception as error:
            if isinstance(error, stepscope.ConfigError):
                raise
            run = stepscope.current_run()
            if run is not None:
                run.count("failed", "callback", type(error).__name__)
                text = f"{method.__qualname__} failed: {type(error).__name__}: {message_of(error)}"
                run.warn(text, about=method.__qualname__)

    return call


class Categories:
    """Sorts values into categories by the prefix of their keys, which is then removed.

    A prefix in `kept` stays, and so does one whose removal would make two keys equal. The short name goes to a key
    without a prefix, else to the key that had it in an earlier call, else to that of the earlier prefix in
    `prefixes`. The order of the keys in a call does not matter.
    """

    def __init__(self, prefixes: Mapping[str, str], default: str = "trainer", kept: Collection[str] = ()) -> None:
        self._prefixes = prefixes
        self._default = default
        self._kept = kept
        self._ranks = {prefix: rank for rank, prefix in enumerate(("", *prefixes))}
        self._owners: dict[tuple[str, str], str] = {}
        """The key that uses a name in a category."""

    def sort(self, values: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
        """Sort the values of one call: names and values by category."""
        found = [(self._prefix(key), key, value) for key, value in ((str(key), value) for key, value in values.items())]
        found.sort(key=lambda each: (self._ranks[each[0]], each[1]))
        sorted_: dict[str, dict[str, Any]] = {}
        for prefix, key, value in found:
            category = self._prefixes.get(prefix, self._default)
            sorted_.setdefault(category, {})[self._name(category, prefix, key)] = value
        return sorted_

    def _prefix(self, key: str) -> str:
        return next((each for each in self._prefixes if key.startswith(each) and len(key) > len(each)), "")

    def _name(self, category: str, prefix: str, key: str) -> str:
        short = key if prefix in self._kept else key.removeprefix(prefix)
        if short == key or self._owners.setdefault((category, short), key) != key:
            self._owners[category, key] = key
            return key
        return short
