"""The runs whose alerts this hub evaluates, of all that the hubs of a store have."""

from collections.abc import Callable, Collection, Iterable

from stepscope.alerts.alert import Alert
from stepscope.alerts.evaluator import Evaluator
from stepscope.alerts.state_machine import OPEN
from stepscope.hub.alerting.alert_log import AlertStore

UNSURE_NS = 60 * 1_000_000_000
"""A notification that another hub queued is sent again so much later, unless that hub says that it was delivered."""


class FollowedRuns:
    """Hands alerts over from hub to hub: one cause stays one alert. Not thread-safe."""

    def __init__(self, log: AlertStore, evaluator: Callable[[], Evaluator], now: Callable[[], int]) -> None:
        self._log, self._evaluator, self._now = log, evaluator, now
        self._runs: set[str] = set()
        self._unsure: dict[str, Alert] = {}
        """Alerts of which another hub may be sending the notification."""
        if not log.shared:
            self.follow({alert.subject.run for alert in log.alerts.values()})

    def __contains__(self, run: str) -> bool:
        return run in self._runs

    def follow(self, runs: Collection[str]) -> None:
        """Restore the alerts of runs that are evaluated here from now on."""
        new = set(runs) - self._runs
        if not new:
            return
        self._runs |= new
        found = [alert for alert in self._log.alerts.values() if alert.subject.run in new]
        self._evaluator().restore(found)
        self._unsure |= {alert.id: alert for alert in found if alert.notified and not alert.delivered}
        self._resend(self._now() - (UNSURE_NS if self._log.shared else 0))

    def divide(self, stored_here: Callable[[Iterable[str]], Collection[str]]) -> None:
        """Follow the runs with open alerts that this hub stores, and no others."""
        open_alerts = [alert for alert in self._log.alerts.values() if alert.state in OPEN or alert.state == "pending"]
        runs = {alert.subject.run for alert in open_alerts}
        here = set(stored_here(runs)) if runs else runs
        self.follow(here)
        for run in (self._runs & runs) - here:
            self._runs.discard(run)
            self._evaluator().release(run)
        self._resend(self._now() - UNSURE_NS)

    def merge(self, alerts: Iterable[Alert]) -> None:
        """Take over alerts as other hubs wrote them; of those evaluated here, only whether they were delivered."""
        for alert in alerts:
            known = self._log.alerts.get(alert.id)
            if known is not None and self._evaluator().open.get(known.fingerprint) is known:
                known.notified = max(known.notified, alert.notified)
                known.delivered = max(known.delivered, alert.delivered)
            else:
                self._log.alerts[alert.id] = alert

    def _resend(self, before: int) -> None:
        """Send again what was queued before a time and is not known to have been delivered."""
        for alert in list(self._unsure.values()):
            if alert.delivered or alert.notified <= before:
                del self._unsure[alert.id]
                alert.notified = alert.notified if alert.delivered else 0
