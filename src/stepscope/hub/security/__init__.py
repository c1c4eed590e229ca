"""Who may do what: tokens, the checks at the door, and how often one may knock."""
