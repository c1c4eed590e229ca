"""Graphite: metrics are delivered to it, and lines of its clients are received."""

from stepscope.model.dialects import Dialect, HubOption

DIALECT = Dialect(
    name="graphite",
    sink="stepscope_graphite.sink:Graphite",
    listener="stepscope_graphite.listener:GraphiteListener",
    options=(
        HubOption(
            flag="--graphite-port",
            metavar="PORT",
            help="receive Graphite's plaintext protocol over TCP on this port (off)",
            port=True,
        ),
    ),
)
