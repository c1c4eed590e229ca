"""Neptune: runs of its exporter are imported."""

from stepscope.model.dialects import Dialect

DIALECT = Dialect(
    name="neptune",
    importer="stepscope.dialects.neptune.importer:SOURCES",
)
