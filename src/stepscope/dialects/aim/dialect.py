"""Aim: runs of its repositories are imported."""

from stepscope.model.dialects import Dialect

DIALECT = Dialect(
    name="aim",
    importer="stepscope.dialects.aim.importer:SOURCES",
)
