"""Programs and measurements of the tests, which are not part of the package."""
