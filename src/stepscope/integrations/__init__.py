"""Frameworks that training code uses, one module each, imported only on use."""
