"""The JSON API: endpoints as data, checked parameters, and the document that describes them."""
