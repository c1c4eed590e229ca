"""What the numbers of the NVIDIA driver's Xid messages mean, and what is to be done after each."""

import re

XID = re.compile(r"xid \([^)]{1,64}\): {0,4}(\d{1,4})")
"""In a kernel line in lower case: `NVRM: Xid (PCI:0000:3b:00): 79, ...`."""
RESTART = "Start the program again; the GPU itself can be used."
RESET = "Stop all programs on this GPU and reset it (nvidia-smi --gpu-reset), or restart the machine; then start again."
REPLACE = "Restart the machine; if it comes again, take it out of service and have the GPU or its board replaced."
CODES: dict[int, tuple[str, str]] = {
    13: ("a kernel failed on the GPU: an index out of range or a faulty kernel, seldom the hardware", RESTART),
    31: ("a kernel used an address of the GPU's memory that it must not: a fault of the program or a library", RESTART),
    43: ("the driver stopped the work of a program that had failed on the GPU", RESTART),
    45: ("the driver removed the work of a program that ended, or after another error", RESTART),
    48: ("an error in the GPU's memory that could not be corrected (double bit)", RESET),
    61: ("the GPU's own controller failed", RESET),
    62: ("the GPU's own controller failed", RESET),
    63: ("a row of the GPU's memory is replaced at the next reset", RESET),
    64: ("a row of the GPU's memory could not be replaced", REPLACE),
    68: ("the GPU's video processor failed", RESTART),
    69: ("a fault of the graphics engine", RESTART),
    74: ("an NVLink connection of the GPU failed", REPLACE),
    79: ("the GPU has fallen off the bus: the machine cannot reach it any more", REPLACE),
    92: ("many errors in the GPU's memory that were corrected", RESET),
    94: ("an error in the GPU's memory that was contained: only this program is affected", RESTART),
    95: ("an error in the GPU's memory that was not contained: all programs on the GPU are affected", RESET),
    109: ("the GPU did not change between programs in time", RESTART),
    119: ("the GPU's system processor did not answer in time", RESET),
    120: ("the GPU's system processor failed", RESET),
    140: ("an error in the GPU's memory that could not be corrected and cannot be recovered", RESET),
    149: ("an NVLink connection of the GPU failed", REPLACE),
    154: ("the driver asks for a recovery of the GPU", RESET),
}
"""By number: the cause and the advice."""


def xid_of(text: str) -> int | None:
    """Return the number of the first Xid message in a text in lower case."""
    found = XID.search(text)
    return None if found is None else int(found[1])
