"""Trackio: its databases are imported."""

from stepscope.model.dialects import Dialect

DIALECT = Dialect(
    name="trackio",
    importer="stepscope.dialects.trackio.importer:SOURCES",
    media="stepscope.dialects.trackio.media:TrackioMedia",
)
