"""Remote control: users ask a run to stop or to change its live settings; the program decides what it does."""

import os
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from stepscope.journal import request_files
from stepscope.model import names
from stepscope.model.run_requests import LONGEST_SETTING, MAX_SETTINGS, Asked, fitting, kind_of
from stepscope.sdk.run_protocols import Part

Call = Callable[[], object]


class LiveSettings:
    """Settings that users may change while the program runs, read as attributes or items: `live.lr_scale`.

    A change is there at the next read. Assigning to one is counted as rejected: the values belong to users.
    """

    def __init__(self, reject: Callable[[str, str], None]) -> None:
        self.__dict__["_reject"] = reject

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...

    def __getitem__(self, name: str) -> Any:
        return self.__dict__[name]

    def __setattr__(self, name: str, value: Any) -> None:
        self._reject(f"live.{name[:50]}", "live settings are changed by users only")

    def __repr__(self) -> str:
        shown = {name: value for name, value in self.__dict__.items() if name != "_reject"}
        return f"LiveSettings({', '.join(f'{name}={value!r}' for name, value in shown.items())})"


class RemoteControl:
    """What users ask of one process. `look` is called by the flusher; the rest from any thread."""

    def __init__(self, run: Part) -> None:
        self._run = run
        self.settings = LiveSettings(run.outcomes.reject)
        self._declared: dict[str, Any] = {}
        self._followed: dict[str, str] = {}
        """The request that each setting has its value from."""
        self._on_stop: list[Call] = []
        self._stamp: tuple[int, int, int] | None = None

    def after_fork(self) -> None:
        """Keep values and requests, not the calls of the parent."""
        self._on_stop.clear()
        self._stamp = None

    def look(self, found: os.stat_result, attempt: int) -> None:
        """Follow what is asked of this attempt, if the file changed since the last look."""
        stamp = (found.st_mtime_ns, found.st_ino, found.st_size)
        if stamp == self._stamp:
            return
        asked = request_files.read(self._run.home, self._run.id)
        self._stamp = stamp
        for name, each in asked.settings.items():
            if attempt <= each.attempt and name in self._declared and self._followed.get(name) != each.id:
                self._followed[name] = each.id
                self._change(name, each)
        if asked.stop is not None and attempt <= asked.stop.attempt and self._run.stop_asked is None:
            self._stop(asked.stop)

    def _change(self, name: str, asked: Asked) -> None:
        before = self.settings[name]
        about = {"name": name, "before": before, "request": asked.id, "who": asked.who}
        try:
            value = fitting(self._declared[name], asked.value)
        except ValueError as error:
            self._run.event(names.EVENT_LIVE_CHANGED, {**about, "value": asked.value, "refused": str(error)}, "WARN")
            return
        self.settings.__dict__[name] = value
        self._run.event(names.EVENT_LIVE_CHANGED, {**about, "value": value, **self._step()})

    def _stop(self, asked: Asked) -> None:
        self._run.stop_asked = asked
        asks = self._run.asks_to_stop or bool(self._on_stop)
        about = {"request": asked.id, "who": asked.who, "asks": asks, **self._step()}
        self._run.event(names.EVENT_STOP, about, "WARN")
        self._run.outcomes.notice_text(f"{asked.who} asked this run to stop")
        for call in tuple(self._on_stop):
            self._start(call)

    def _step(self) -> dict[str, int]:
        step = self._run.mark.step
        return {} if step is None else {"step": step}

    def on_stop(self, call: Any) -> Callable[[], bool]:
        """Have `call` called once, on a thread of its own, when the run is asked to stop; at once if it was."""
        if not callable(call):
            self._run.outcomes.reject("on_stop", f"needs a function, got {type(call).__name__}")
            return lambda: False
        self._on_stop.append(call)
        if self._run.stop_asked is not None:
            self._start(call)
        return lambda: self._take(call)

    def _take(self, call: Call) -> bool:
        try:
            self._on_stop.remove(call)
        except ValueError:
            return False
        return True

    def _start(self, call: Call) -> None:
        """Call it once: who takes it from the list calls it."""
        if self._take(call):
            threading.Thread(target=self._call, args=(call,), name="stepscope-on-stop", daemon=True).start()

    def _call(self, call: Call) -> None:
        try:
            call()
        except BaseException as error:
            self._run.outcomes.add("failed", "on_stop", type(error).__name__)
            self._run.outcomes.notice("on_stop", type(error).__name__, f"on_stop raised {error!r}")

    def declare(self, given: Mapping[str, Any]) -> LiveSettings:
        """Declare settings as changeable; those that are declared already keep their values."""
        here = self.settings.__dict__
        fresh = {name: value for name, value in given.items() if name not in here}
        if not fresh:
            return self.settings
        here |= fresh
        declared: dict[str, Any] = {}
        for name, value in fresh.items():
            if kind_of(value) is None or not 0 < len(name) <= LONGEST_SETTING:
                self._run.outcomes.reject(f"live({name[:50]}=...)", "not a finite number, a short text, True or False")
            elif len(self._declared) + len(declared) >= MAX_SETTINGS:
                self._run.outcomes.reject(f"live({name[:50]}=...)", f"more than {MAX_SETTINGS} live settings")
            else:
                declared[name] = value
        if declared:
            self._declared |= declared
            self._run.event(names.EVENT_LIVE, {"settings": declared})
            self._stamp = None
        return self.settings
