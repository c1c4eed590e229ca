"""Changes made at one hub that all on the same store must know: edits, tokens, dashboards, views, rules, alerts."""

from collections.abc import Callable, Sequence

from stepscope.hub.alerting.alert_log import AlertLog
from stepscope.hub.alerting.rule_files import PAGE_NAME
from stepscope.hub.dashboards import saved_views
from stepscope.hub.dashboards.dashboard import LONGEST
from stepscope.hub.fleet.client_homes import ClientHomes
from stepscope.hub.fleet.shared_alerts import SharedAlerts
from stepscope.hub.fleet.shared_edits import SharedEdits
from stepscope.hub.fleet.shared_state import SharedState
from stepscope.hub.fleet.shared_texts import SharedTexts
from stepscope.hub.fleet.shared_tokens import SharedTokens
from stepscope.hub.home import HubHome
from stepscope.hub.security.tokens import Tokens
from stepscope.hub.store.cluster.ownership import Ownership
from stepscope.hub.store.engine import Engine
from stepscope.hub.texts import TextFiles
from stepscope.journal.run_edits import Edits
from stepscope.model.errors import Retry
from stepscope.sinks.http import Connection

RULES, DASHBOARD, VIEWS = "rules", "dashboard", "views"
"""The kinds of texts that are shared."""


class Sharing:
    """The shared state of a hub. What its home has from the time before is shared at the first start."""

    def __init__(
        self,
        engine: Engine,
        ownership: Ownership,
        connect: Callable[[str], Connection],
        home: HubHome,
        tokens: Tokens,
        edits: Edits,
        on_deletion: Callable[[Sequence[str]], object],
    ) -> None:
        self.state = SharedState(engine, ownership, connect)
        self.rules = SharedTexts(self.state, RULES)
        self.dashboards = SharedTexts(self.state, DASHBOARD)
        self.views = SharedTexts(self.state, VIEWS)
        self.alerts = SharedAlerts(self.state)
        self.homes = ClientHomes(self.state, ownership)
        self._home = home
        self._adopted = False
        self._tokens = SharedTokens(self.state, tokens, home.folder)
        self._edits = SharedEdits(self.state, edits, on_deletion)
        self.state.after_each_poll(self.sync)
        self._unshared = ""
        if self.state.loaded:
            self.sync()

    @property
    def problem(self) -> str:
        """Why hubs do not know of each other's changes at present; empty when they do."""
        return self._unshared or self.state.problem

    def sync(self) -> None:
        """Share what was changed in the files of the home, and take over the tokens of other hubs."""
        try:
            self._tokens.sync()
            self._edits.sync()
            if not self._adopted:
                self._adopt()
                self._adopted = True
            self._unshared = ""
        except Retry as error:
            self._unshared = str(error)

    def _adopt(self) -> None:
        home = self._home
        self.homes.adopt(home.folder / "files")
        self.dashboards.adopt(TextFiles(home.home / "dashboards", LONGEST))
        self.views.adopt(TextFiles(home.home / "views", saved_views.LONGEST))
        self.rules.adopt(TextFiles(home.home, LONGEST), PAGE_NAME)
        self.alerts.adopt(AlertLog(home.folder, write=False))
