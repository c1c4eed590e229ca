"""The command line: one file per command, all reading journals directly."""
