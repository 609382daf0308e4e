"""What a program says and does, as reports of the body to its run.

Theory of operation. A complete message is held back until something follows it: the last one is the result of the call,
and would be told twice. All counts and lengths are limited here, because a program may write what it likes.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias, assert_never

from ..contract.codec import shortened
from ..contract.envelope import timestamp
from ..contract.messages import Usage
from ..tools.context import ToolContext
from .clocks import Which
from .items import FileRead, MessageDone, Notice, Plan, Reasoning, SaidText, SessionKnown, Unparsed, UsageSeen

Report: TypeAlias = SaidText | Reasoning | MessageDone | FileRead | Plan | UsageSeen | SessionKnown | Notice | Unparsed
"""Items that the program does not wait for."""

READS_LIMIT: Final = 1_000
"""Most files of one prompt whose reading is reported."""
FAULTS_LIMIT: Final = 25
"""Most lines of one prompt that are reported as unparsed; the verdict counts more of them as another format."""
NOTICES_LIMIT: Final = 200
"""Most notices of one prompt."""
PLAN_LIMIT: Final = 50
"""Most entries of a plan: the fields of a note have a limit in bytes, and JSON takes up to six for a character."""
ENTRY_LIMIT: Final = 150
"""Most characters of an entry."""
TEXT_LIMIT: Final = 300
"""Most characters of a sample or a reason."""
PATH_LIMIT: Final = 1_000
NOTICE_LIMIT: Final = 2_000
_STATUS_LIMIT: Final = 30


class Narration:
    """Reports the items of one program.

    Args:
        ctx: The context of the body.
        name: The program.
        folder: The folder in which it works.

    Attributes:
        usage: The newest usage.
        session: The id of the session, once it is known.
    """

    def __init__(self, ctx: ToolContext[Any], name: str, folder: str) -> None:
        self._ctx, self._name, self._folder = ctx, name, folder
        self._newest: str | None = None
        self._reads = self._faults = self._notices = 0
        self.usage: Usage | None = None
        self.session = ""

    def __repr__(self) -> str:
        return f"<Narration of {self._name}: {self._reads} reads, {self._faults} faults>"

    async def go_on(self) -> None:
        """Complete the message that is held back: something follows it."""
        text, self._newest = self._newest, None
        if text is not None:
            await self._ctx.reports.complete(text)

    async def report(self, item: Report) -> None:
        """Report an item.

        Raises:
            ToolError: the run does not wait for this call any more.
        """
        match item:
            case SaidText(text=text):
                await self.go_on()
                await self._ctx.reports.say(text)
            case Reasoning(text=text):
                await self.go_on()
                await self._ctx.reports.say(reasoning=text)
            case MessageDone(text=text):
                await self.go_on()
                self._newest = text
            case UsageSeen(usage=usage):
                self.usage = usage
            case SessionKnown(session_id=session_id):
                self.session = session_id
            case FileRead() | Plan() | Notice() | Unparsed():
                await self._note(item)
            case _ as never:
                assert_never(never)

    async def _note(self, item: FileRead | Plan | Notice | Unparsed) -> None:
        match item:
            case FileRead(path=path):
                self._reads += 1
                if self._reads <= READS_LIMIT:
                    read_at = timestamp(datetime.now(UTC))
                    shown_path = shortened(inner_path(path, self._folder), PATH_LIMIT)
                    await self._ctx.reports.note("run.file.read", path=shown_path, read_at=read_at)
            case Plan(entries=entries):
                rows = [
                    {"text": shortened(text, ENTRY_LIMIT), "status": shortened(status, _STATUS_LIMIT)}
                    for text, status in entries[:PLAN_LIMIT]
                ]
                await self._ctx.reports.note("run.plan.changed", entries=rows)
            case Notice(kind=kind, text=text):
                self._notices += 1
                if self._notices <= NOTICES_LIMIT:
                    await self._ctx.output(f"[{self._name}: {kind}] {shortened(text, NOTICE_LIMIT)}\n")
            case Unparsed(line=line, rule=rule, sample=sample):
                self._faults += 1
                if self._faults <= FAULTS_LIMIT:
                    await self._ctx.reports.note(
                        "schema.validation_failed",
                        source=self._name,
                        line=line,
                        rule=rule,
                        sample=shortened(sample, TEXT_LIMIT),
                    )
            case _ as never:
                assert_never(never)

    async def late(self, which: Which, seconds: float) -> None:
        """Report that a clock has run out."""
        if which != "work":
            await self._ctx.reports.note("runtime.timeout", runtime=self._name, which=which, seconds=seconds)

    async def unavailable(self, reason: str) -> None:
        """Report that the program could not work."""
        await self._ctx.reports.note(
            "runtime.unavailable",
            code="runtime_unavailable",
            runtime=self._name,
            reason=shortened(reason, TEXT_LIMIT),
            hint="check that it is installed, logged in and reachable",
        )


def inner_path(path: str, folder: str) -> str:
    """Return a path relative to the folder; one that leads elsewhere becomes `<outside>/name`."""
    whole = os.path.normpath(os.path.join(folder, path))
    root = os.path.normpath(folder)
    if whole == root:
        return "."
    if whole.startswith(root.rstrip("/") + "/"):
        return whole[len(root.rstrip("/")) + 1 :]
    return f"<outside>/{os.path.basename(whole)}"
