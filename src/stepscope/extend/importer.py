"""What importers of dialects use."""

from stepscope.imports.folder_files import FolderFiles
from stepscope.imports.source import LARGEST_RECORD, Chunk, FoundRun, NextChunk, Part, Skip, Source, SourceFile, pack
from stepscope.imports.sqlite import connect, count_rows, databases, find_runs, select, tables
from stepscope.journal import layout

__all__ = [
    "LARGEST_RECORD",
    "Chunk",
    "FolderFiles",
    "FoundRun",
    "NextChunk",
    "Part",
    "Skip",
    "Source",
    "SourceFile",
    "connect",
    "count_rows",
    "databases",
    "find_runs",
    "layout",
    "pack",
    "select",
    "tables",
]
