"""Access control: tokens, scopes, hosts and origins, rate limits and body limits."""
