"""What several questions share: parameters, schemas, conditions, the request, and incomplete answers."""
