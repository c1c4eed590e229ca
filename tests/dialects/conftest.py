"""Real hubs for the tests of receivers."""

from tests.hub.conftest import hub as hub
from tests.hub.conftest import start_hub as start_hub
