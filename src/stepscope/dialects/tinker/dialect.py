"""Tinker: events of its clients are received or passed on, and events are sent to such a service."""

from stepscope.model.dialects import Dialect, HubOption

DIALECT = Dialect(
    name="tinker",
    sink="stepscope.dialects.tinker.sink:Tinker",
    receiver="stepscope.dialects.tinker.receiver.service:Tinker",
    options=(
        HubOption(
            flag="--tinker-upstream",
            metavar="URL",
            help="the service to which requests of Tinker clients are forwarded",
        ),
    ),
    client_state="movable",
)
