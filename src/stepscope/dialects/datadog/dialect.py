"""Datadog: its intake and DogStatsD are received, and records and alerts are sent to it."""

from stepscope.model.dialects import Dialect, HubOption

DIALECT = Dialect(
    name="datadog",
    sink="stepscope.dialects.datadog.sink:Datadog",
    receiver="stepscope.dialects.datadog.receiver.http_intake:Datadog",
    listener="stepscope.dialects.datadog.listener:DogStatsdListener",
    notifier="stepscope.dialects.datadog.notifier:Datadog",
    options=(
        HubOption(
            flag="--dogstatsd",
            metavar="HOST:PORT",
            help="receive DogStatsD over UDP on this address, such as 127.0.0.1:8125",
            several=True,
        ),
        HubOption(
            flag="--dogstatsd-socket",
            metavar="PATH",
            help="receive DogStatsD on a Unix socket; unixstream://PATH for a stream socket",
            several=True,
        ),
        HubOption(
            flag="--dogstatsd-remote",
            help="accept DogStatsD from other machines; it has no authentication",
            switch=True,
        ),
    ),
    client_state="movable",
)
