"""What this process runs on, and what it must not do after a fork."""

import platform
from pathlib import Path


def processor() -> str:
    """Features of the processor: machine code, and so a network's bits, may depend on them."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line for line in lines if line.startswith(("flags", "Features"))), "")
