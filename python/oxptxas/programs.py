"""The programs of the package."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def path() -> str:
    """The folder whose ``bin`` has the programs, as XLA's ``--xla_gpu_cuda_data_dir`` wants it."""
    return str(Path(__file__).parent)


def ptxas() -> str:
    """A program with ptxas's name and options, for ``TRITON_PTXAS_PATH`` and others."""
    return str(Path(__file__).parent / "bin" / "ptxas")


def run(name: str) -> None:
    """Becomes the program."""
    program = str(Path(path()) / "bin" / name)
    os.execv(program, [program, *sys.argv[1:]])


def run_oxptxas() -> None:
    """The command `oxptxas`."""
    run("oxptxas")


def run_oxsass() -> None:
    """The command `oxsass`."""
    run("oxsass")
