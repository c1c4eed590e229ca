"""What importers of dialects use."""

from stepscope.imports.source import Chunk, FoundRun, LARGEST_RECORD, NextChunk, Part, Skip, Source, SourceFile, pack
from stepscope.imports.sqlite import connect, count_rows, databases, select, tables
from stepscope.journal import layout

__all__ = [
    "Chunk",
    "FoundRun",
    "LARGEST_RECORD",
    "NextChunk",
    "Part",
    "Skip",
    "Source",
    "SourceFile",
    "connect",
    "count_rows",
    "databases",
    "layout",
    "pack",
    "select",
    "tables",
]
