"""The receivers of Datadog's clients: DogStatsD over UDP and Unix sockets, and the HTTP intake."""
