"""How a framework's callback comes to a run: it joins the current one, or starts one and then ends it too."""

import functools
from collections.abc import Callable, Mapping
from typing import Any

import stepscope
from stepscope.model.names import ATTR_BUCKET
from stepscope.sdk.spans import message_of

EVALUATE = "train.evaluate"
CONFIG = "train.config"
"""The event that tells a configuration which was known only after the run began."""
Method = Callable[..., None]


class Joined:
    """A run as a framework has it; `current` is None before `begin` and after `end`."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._settings = dict(settings)
        self._ours = False
        self._step: Any = None
        self._spans: dict[str, Any] = {}
        self.current: stepscope.Run | None = None

    def begin(self, config: Mapping[str, Any]) -> stepscope.Run:
        """Join the current run, or start one with the settings; ConfigError when they are wrong."""
        self.leave()
        run = stepscope.current_run()
        self._ours = run is None
        if run is None:
            run = stepscope.init(**{"config": {**config}, **self._settings})
        elif config:
            run.event(CONFIG, config)
        self.current = run
        return run

    def enter_step(self, number: int) -> None:
        """Go to a step: what is not said otherwise inside it was productive."""
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

    def leave(self) -> None:
        """End every phase, the newest first, and the step."""
        for name in reversed(list(self._spans)):
            self.leave_phase(name)
        self.leave_step()

    def end(self, status: str = "finished", error: BaseException | None = None) -> None:
        """End what is open, and the run if it was started here; an exception is recorded in either case."""
        self.leave()
        run, self.current = self.current, None
        if run is None:
            return
        if error is not None:
            run.exception(error)
        if self._ours:
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
                run.outcomes.add("failed", "callback", type(error).__name__)
                text = f"{method.__qualname__} failed: {type(error).__name__}: {message_of(error)}"
                run.outcomes.notice("callback", method.__qualname__, text)

    return call


def sort_by_prefix(
    values: Mapping[str, Any], prefixes: Mapping[str, str], otherwise: str = "trainer"
) -> dict[str, dict[str, Any]]:
    """Sort values into categories by how their keys begin; the beginning that tells the category is taken off."""
    sorted_: dict[str, dict[str, Any]] = {}
    for key, value in values.items():
        text = str(key)
        prefix = next((each for each in prefixes if text.startswith(each) and len(text) > len(each)), "")
        sorted_.setdefault(prefixes.get(prefix, otherwise), {})[text.removeprefix(prefix)] = value
    return sorted_
