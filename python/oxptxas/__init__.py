"""PTX to cubin for NVIDIA GPUs, and checks of the code without a GPU.

>>> cubin = compile(".version 8.0 .target sm_75 .visible .entry k() { ret; }", "sm_90")
>>> cubin[:4]
b'\\x7fELF'
>>> verify(".version 8.0 .target sm_75 .visible .entry k() { ret; }", "sm_90").right
True
>>> compile(".version 8.0 .target sm_75 .visible .entry k() { oops; }", "sm_90")
Traceback (most recent call last):
...
oxptxas.errors.PtxError: application ptx input:1:50: error: Not a name of any known instruction: 'oops'
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from . import _native
from .errors import (
    CompileError,
    InternalError,
    Message,
    NotBuiltError,
    OptionError,
    PtxError,
    VersionError,
    failure,
    messages,
)
from .programs import path, ptxas

__version__ = "0.1.0"
__all__ = [
    "CompileError",
    "InternalError",
    "Kernel",
    "Message",
    "NotBuiltError",
    "OptionError",
    "PtxError",
    "Verified",
    "VersionError",
    "compile",
    "disassemble",
    "path",
    "ptxas",
    "verify",
]


def compile(
    ptx: str | bytes,
    arch: str,
    options: Sequence[str] = (),
    *,
    log: Callable[[str], object] | None = None,
) -> bytes:
    """The cubin of a PTX text for a target such as ``sm_90a``.

    ``options`` are those of ptxas, a string each: ``["-O1", "-lineinfo", "-maxrregcount=64"]``. Warnings, and what ``-v`` says,
    go to ``log`` line by line. Threads may compile at once: the interpreter's lock is not held. Ctrl-C ends a compilation.

    Raises a :class:`CompileError`: :class:`PtxError`, :class:`VersionError`, :class:`OptionError`, :class:`NotBuiltError` or
    :class:`InternalError`.
    """
    text = ptx.encode() if isinstance(ptx, str) else bytes(ptx)
    try:
        cubin, said = _native.compile(text, [f"-arch={arch}", *options])
    except _native.Refused as refused:
        raise failure(*refused.args) from None
    if log is not None:
        for message in messages(said):
            log(str(message))
    return cubin


@dataclasses.dataclass(frozen=True)
class Kernel:
    """What was found out about a kernel."""

    name: str
    #: ``same``, ``same up to rounding``, ``nothing stored``, or what is wrong or not known, with the reason.
    verdict: str
    right: bool


@dataclasses.dataclass(frozen=True)
class Verified:
    """What was found out about code."""

    kernels: list[Kernel]
    #: Hazards and accesses in a wrong order, which are found without executing the code.
    notes: list[str]
    #: Whether nothing is wrong with any kernel.
    right: bool

    def __bool__(self) -> bool:
        return self.right


def verify(
    ptx: str,
    arch: str,
    options: Sequence[str] = (),
    *,
    cubin: bytes | None = None,
    launches: int = 4,
) -> Verified:
    """Whether code does what its PTX says: both are executed, without a GPU, on made-up launches of each kernel.

    The code is ours for ``arch`` and ``options``, or ``cubin``, which may be another compiler's.
    """
    if cubin is None:
        compile(ptx, arch, options)  # For its exceptions.
    kernels, notes, right = _native.verify_code(ptx, [f"-arch={arch}", *options], cubin, launches)
    judged = [Kernel(*kernel) for kernel in kernels]
    return Verified(judged, notes, right and all(kernel.right for kernel in judged))


def disassemble(cubin: bytes, *, control: bool = False, hex: bool = False) -> str:
    """The instructions of a cubin as text; with their control fields, and with their bits."""
    return _native.disassemble(bytes(cubin), control, hex)
