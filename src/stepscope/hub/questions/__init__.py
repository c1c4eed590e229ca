"""What clients ask the hub: one module per question with its SQL, its JSON and its endpoint."""
