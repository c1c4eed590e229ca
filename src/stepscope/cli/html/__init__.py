"""A run as one HTML file: charts as SVG, no scripts, nothing fetched from anywhere."""
