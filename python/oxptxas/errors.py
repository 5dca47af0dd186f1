"""Why nothing was compiled."""

from __future__ import annotations

import dataclasses
import json


@dataclasses.dataclass(frozen=True)
class Message:
    """A message, with its place if it has one."""

    severity: str
    text: str
    file: str | None = None
    line: int | None = None
    column: int | None = None
    #: What was expected, the nearest form that exists, and why it does not here.
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}:{self.column}: " if self.line is not None else ""
        severity = f"{self.severity}: " if self.severity else ""
        return "\n  ".join([f"{place}{severity}{self.text}", *self.notes])


def messages(said: str) -> list[Message]:
    """Lines of JSON, and of text as ptxas writes it."""
    found = []
    for line in said.splitlines():
        if line.startswith("{"):
            m = json.loads(line)
            found.append(
                Message(m["severity"], m["message"], m["file"], m.get("line"), m.get("column"), tuple(m["notes"]))
            )
            continue
        head, colon, text = line.partition(": ")
        severity = head.removeprefix("ptxas ").strip()
        if colon and severity in ("info", "warning", "error", "fatal"):
            found.append(Message(severity, text))
        else:
            found.append(Message("", line))
    return found


class CompileError(Exception):
    """Nothing was compiled. ``messages`` say why."""

    def __init__(self, found: list[Message]):
        super().__init__("\n".join(map(str, found)))
        self.messages = found


class PtxError(CompileError):
    """The PTX is wrong."""


class VersionError(PtxError):
    """The PTX is of a version that is not understood."""


class NotBuiltError(CompileError):
    """The PTX is right, but has something that is not built yet."""


class OptionError(CompileError, ValueError):
    """The options or the target are wrong."""


class InternalError(CompileError):
    """An error in the compiler."""


KINDS = {
    "options": OptionError,
    "version": VersionError,
    "source": PtxError,
    "not built": NotBuiltError,
    "internal": InternalError,
}


def failure(kind: str, errors: str, information: str) -> CompileError:
    """The exception for what was said."""
    found = [m for m in messages(errors) if m.text != "Ptx assembly aborted due to errors"]
    return KINDS[kind](found)
