"""The hub on the network: ports, connections, routes and the page."""
