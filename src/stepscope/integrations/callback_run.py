"""The run of a framework's callback, joined or started, and the categories of its values."""

import functools
from collections.abc import Callable, Collection, Mapping
from typing import Any, ClassVar

import stepscope
from stepscope.extend import message_of
from stepscope.model.names import ATTR_BUCKET, EVENT_CONFIG

EVALUATE = "train.evaluate"
Method = Callable[..., None]
_ACTIVE = ("running", "disabled")


class Joined:
    """The run of a callback. A run that was started here is ended here; one that was joined continues."""

    _paused: ClassVar["Joined | None"] = None
    """The callback whose run is kept open in case more follows."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._settings = dict(settings)
        self._begun: stepscope.Run | None = None
        self._ours = False
        self._alone = False
        self._step: Any = None
        self._spans: dict[str, Any] = {}

    @property
    def begun(self) -> stepscope.Run | None:
        """The run between `begin` and `end`, unless it is paused or was ended elsewhere."""
        run = self._begun
        return run if run is not None and run.status in _ACTIVE and Joined._paused is not self else None

    @property
    def current(self) -> stepscope.Run | None:
        """The run that was begun; before and after that the process's current one."""
        return self.begun or stepscope.current_run()

    def begin(self, config: Mapping[str, Any]) -> stepscope.Run:
        """Join the current run, or start one with the settings; ConfigError when they are wrong.

        A run of its own that an exception or a pause left open is joined too, and is still its own.
        """
        self.leave()
        paused, Joined._paused = Joined._paused, None
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
        return run

    def enter_step(self, number: int) -> None:
        """Enter a step, which counts as productive except for spans with another bucket."""
        self.leave_step()
        if self.current is not None:
            self._step = self.current.step(number).__enter__()
            self._step.set_attribute(ATTR_BUCKET, "productive")

    def leave_step(self) -> None:
        """Leave the step, if the code is in one."""
        step, self._step = self._step, None
        if step is not None:
            step.__exit__(None, None, None)

    def enter(self, name: str, bucket: str) -> None:
        """Begin a phase, unless it has begun already."""
        if self.current is not None and name not in self._spans:
            self._spans[name] = self.current.span(name, **{ATTR_BUCKET: bucket}).__enter__()

    def leave_phase(self, name: str) -> None:
        """End a phase, if it has begun."""
        span = self._spans.pop(name, None)
        if span is not None:
            span.__exit__(None, None, None)

    def enter_evaluation(self, config: Callable[[], Mapping[str, Any]]) -> None:
        """Begin an evaluation, unless it has begun already; where no run is current, it is a run of its own."""
        if self.current is None:
            self.begin(config())
            self._alone = True
        self.enter(EVALUATE, "overhead")

    def leave_evaluation(self) -> None:
        """End an evaluation, if it has begun, and its run if it had one of its own."""
        self.leave_phase(EVALUATE)
        if self._alone:
            self.end()

    def leave(self) -> None:
        """End every phase, the newest first, and the step."""
        for name in reversed(list(self._spans)):
            self.leave_phase(name)
        self.leave_step()

    def pause(self) -> None:
        """End what is open, but keep a run that was started here open, because more may follow.

        It ends with the process, or when a framework's callback begins something else.
        """
        if not self._ours:
            self.end()
            return
        self.leave()
        Joined._paused = self

    def end(self, status: str = "finished", error: BaseException | None = None) -> None:
        """End what is open, and the run if it was started here; an exception is recorded in either case."""
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
    """Make a callback's method one that cannot raise into training: what fails is counted and named once."""

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

    It stays on where it is one of `kept`, and where the short name is taken: a key that had no prefix comes first,
    then the one that had the name in an earlier call, then those of earlier prefixes. Their order in a call counts
    for nothing.
    """

    def __init__(self, prefixes: Mapping[str, str], otherwise: str = "trainer", kept: Collection[str] = ()) -> None:
        self._prefixes = prefixes
        self._otherwise = otherwise
        self._kept = kept
        self._ranks = {prefix: rank for rank, prefix in enumerate(("", *prefixes))}
        self._owners: dict[tuple[str, str], str] = {}
        """The key that has a name in a category."""

    def sort(self, values: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
        """Sort the values of one call: names and values by category."""
        found = [(self._prefix(key), key, value) for key, value in ((str(key), value) for key, value in values.items())]
        found.sort(key=lambda each: (self._ranks[each[0]], each[1]))
        sorted_: dict[str, dict[str, Any]] = {}
        for prefix, key, value in found:
            category = self._prefixes.get(prefix, self._otherwise)
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
