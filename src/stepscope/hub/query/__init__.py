"""Answers from rows, pure: expressions, pages of runs, lines, span trees, steps, and their shape in JSON."""
