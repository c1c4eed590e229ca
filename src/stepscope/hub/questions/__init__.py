"""What clients ask the hub: a module or a folder for each question, with its SQL, its JSON and its endpoint."""
