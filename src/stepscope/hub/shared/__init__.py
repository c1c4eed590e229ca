"""What several hubs on one store share."""
