"""A small agent behind the Agent Client Protocol, version 1: the program of `make demo-work`, and of tests.

    python -I acp_program.py [--pace SECONDS]

Theory of operation. The program works offline and imports nothing of Greenroom, as any other program that a runtime
drives. For each prompt it reads the folder's README.md, asks for one command (`wc -l` over the text files at the top of
the folder), and asks for one file: a page with the numbers. The page is LINES.md, or the Markdown file that the prompt
names last. A refused command leaves the numbers out, a refused file ends the work without a page. One thread does
everything: where the program waits, for an answer or for its command, it reads what the client sends meanwhile.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import select
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

VERSION: Final = 1
PAGE: Final = "LINES.md"
SUFFIXES: Final = frozenset((".md", ".txt", ".py", ".toml", ".cfg", ".js", ".ts", ".c", ".h", ".rs", ".go", ".sh"))
FILES: Final = 12
"""Most files that are counted."""
POLL: Final = 0.02
"""Seconds between two looks at the command and at what the client sends."""
OPTIONS: Final = (
    {"optionId": "always", "name": "Always allow", "kind": "allow_always"},
    {"optionId": "once", "name": "Allow", "kind": "allow_once"},
    {"optionId": "no", "name": "Reject", "kind": "reject_once"},
)
_NAMED: Final = re.compile(r"(?<![\w./-])[\w-]+\.md(?![\w/-])")
_NO_JSON, _INVALID_REQUEST, _NO_METHOD, _BAD_PARAMS = -32700, -32600, -32601, -32602
"""Codes of errors in JSON-RPC."""


class PromptCancelled(Exception):
    """The client has cancelled the prompt."""


class BadRequest(Exception):
    """A request gets an error: code and text."""


class Wire:
    """Lines of JSON on standard input and output."""

    def __init__(self) -> None:
        self._data = b""

    def send(self, **message: Any) -> None:
        """Write one message."""
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()

    def next(self, seconds: float | None = None) -> dict[str, Any] | None:
        """Return the next message, or None if none comes within so many seconds. The program ends with its input."""
        end = None if seconds is None else time.monotonic() + seconds
        while b"\n" not in self._data:
            patience = None if end is None else max(0.0, end - time.monotonic())
            if not select.select([0], [], [], patience)[0]:
                return None
            data = os.read(0, 65_536)
            if not data:
                raise SystemExit(0)
            self._data += data
        line, self._data = self._data.split(b"\n", 1)
        try:
            message = json.loads(line)
        except ValueError:
            message = None
        if not isinstance(message, dict):
            self.send(id=None, error={"code": _NO_JSON, "message": f"not a JSON object: {line[:100]!r}"})
            return {}
        return message


class DemoProgram:
    """The sessions, and the work for one prompt at a time."""

    def __init__(self, pace: float) -> None:
        self._wire, self._pace = Wire(), pace
        self._folders: dict[str, Path] = {}
        self._numbers = 0
        self._working = ""  # the session of the prompt
        self._stopped = False

    def serve(self) -> None:
        """Answer requests until the input ends."""
        while True:
            message = self._wire.next()
            if message is not None:
                self._take(message)

    def _take(self, message: dict[str, Any]) -> None:
        """Answer a request; a notification gets no answer."""
        method, params = message.get("method"), message.get("params")
        params = params if isinstance(params, dict) else {}
        if method == "session/cancel":
            self._stopped |= params.get("sessionId") == self._working
        if method is None or "id" not in message:
            return
        try:
            self._wire.send(id=message["id"], result=self._answer(method, params))
        except BadRequest as refused:
            code, text = refused.args
            self._wire.send(id=message["id"], error={"code": code, "message": text})

    def _answer(self, method: str, params: dict[str, Any]) -> Any:
        """Return the result of a request.

        Raises:
            BadRequest: The request gets an error.
        """
        match method:
            case "initialize":
                info = {"name": "greenroom-demo", "version": "1"}
                capabilities = {"loadSession": False, "promptCapabilities": {}}
                return {
                    "protocolVersion": VERSION,
                    "agentCapabilities": capabilities,
                    "agentInfo": info,
                    "authMethods": [],
                }
            case "session/new":
                folder = Path(str(params.get("cwd", "")))
                if not folder.is_absolute() or not folder.is_dir():
                    raise BadRequest(_BAD_PARAMS, f"cwd is not the absolute path of a folder: {folder}")
                session = self._number("session")
                self._folders[session] = folder
                return {"sessionId": session}
            case "session/prompt":
                return {"stopReason": self._prompted(params)}
            case _:
                raise BadRequest(_NO_METHOD, f"{method} is not supported")

    def _number(self, kind: str) -> str:
        self._numbers += 1
        return f"{kind}-{self._numbers}"

    # --- the work ----------------------------------------------------------------------------------------------------

    def _prompted(self, params: dict[str, Any]) -> str:
        """Work for one prompt and return why the work ended."""
        session = str(params.get("sessionId", ""))
        if session not in self._folders:
            raise BadRequest(_BAD_PARAMS, f"there is no session {session}")
        if self._working:
            raise BadRequest(_INVALID_REQUEST, "a prompt is being worked on; wait for its end or cancel it")
        text = "\n".join(part.get("text", "") for part in params.get("prompt", ()) if part.get("type") == "text")
        self._working, self._stopped = session, False
        try:
            self._work(self._folders[session], text)
        except PromptCancelled:
            return "cancelled"
        finally:
            self._working = ""
        return "end_turn"

    def _work(self, folder: Path, text: str) -> None:
        names = [name for name in _NAMED.findall(text) if name != "README.md"]
        page = names[-1] if names else PAGE
        files = sorted(
            entry.name
            for entry in os.scandir(folder)
            if Path(entry.name).suffix in SUFFIXES and entry.name.isprintable() and entry.name != page
            if entry.is_file(follow_symlinks=False)
        )[:FILES]
        self._plan("in_progress", "pending")
        self._says("First I read what the folder says of itself.")
        title = self._read(folder / "README.md")
        counts = self._count(folder, files) if files else None
        self._plan("completed", "in_progress")
        self._write(folder / page, page_of(title, files, counts))

    def _read(self, path: Path) -> str:
        """Read the title of a file, unasked; return the folder's name if there is no such file."""
        call = self._number("call")
        self._update("tool_call", toolCallId=call, title=f"Read {path.name}", kind="read", status="in_progress")
        self._rest(self._pace)
        text = _text(path) or ""
        status = {"status": "completed" if text else "failed", "locations": [{"path": str(path)}]}
        self._update("tool_call_update", toolCallId=call, **status)
        return next((line.strip("# ") for line in text.splitlines() if line.strip("# ")), path.parent.name)

    def _count(self, folder: Path, files: list[str]) -> str | None:
        """Ask for the command and run it; return its output, or None if the command was refused."""
        self._says("Then I count its lines.")
        argv = ["wc", "-l", "--", *files]
        call, command = self._number("call"), shlex.join(argv)
        facts = {"toolCallId": call, "title": command, "kind": "execute", "rawInput": {"command": command}}
        self._update("tool_call", status="pending", **facts)
        if not self._allowed(facts):
            self._update("tool_call_update", toolCallId=call, status="failed", rawOutput="The command was refused.")
            return None
        self._update("tool_call_update", toolCallId=call, status="in_progress")
        pipes: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        with subprocess.Popen(argv, cwd=folder, **pipes) as process:  # noqa: S603 - the client has allowed it
            try:
                while process.poll() is None:
                    self._rest(POLL)
            finally:
                process.kill()
            output = process.stdout.read().decode(errors="replace") if process.stdout else ""
        content = [{"type": "content", "content": {"type": "text", "text": output}}]
        status = "completed" if process.returncode == 0 else "failed"
        self._update("tool_call_update", toolCallId=call, status=status, content=content)
        return output

    def _write(self, path: Path, text: str) -> None:
        """Ask for the page and write it."""
        call, before = self._number("call"), _text(path)
        difference = {"type": "diff", "path": str(path), "oldText": before, "newText": text}
        facts = {"toolCallId": call, "title": f"Write {path.name}", "kind": "edit", "content": [difference]}
        self._update("tool_call", status="pending", **facts)
        if not self._allowed(facts):
            self._update("tool_call_update", toolCallId=call, status="failed")
            self._says(f"Nothing was written: {path.name} was refused.")
            return
        self._rest(self._pace)
        draft = path.with_name(f".{path.name}.draft")
        draft.write_text(text)
        draft.replace(path)  # which never writes through a link
        self._update("tool_call_update", toolCallId=call, status="completed")
        self._plan("completed", "completed")
        self._says(f"{path.name} says how long the files of this folder are.")

    # --- what the client sees and answers ----------------------------------------------------------------------------

    def _allowed(self, call: dict[str, Any]) -> bool:
        """Ask whether a call may run.

        Raises:
            PromptCancelled: The client has cancelled the prompt.
        """
        request = self._number("question")
        params = {"sessionId": self._working, "toolCall": call, "options": list(OPTIONS)}
        self._wire.send(id=request, method="session/request_permission", params=params)
        while True:
            message = self._wire.next() or {}
            if message.get("id") == request and "method" not in message:
                break
            self._take(message)
        outcome = (message.get("result") or {}).get("outcome") or {}
        if self._stopped or outcome.get("outcome") == "cancelled":
            raise PromptCancelled
        return outcome.get("optionId") in ("always", "once")

    def _rest(self, seconds: float) -> None:
        """Wait, and take what the client sends meanwhile.

        Raises:
            PromptCancelled: The client has cancelled the prompt.
        """
        end = time.monotonic() + seconds
        while not self._stopped and (message := self._wire.next(max(0.0, end - time.monotonic()))) is not None:
            self._take(message)
        if self._stopped:
            raise PromptCancelled

    def _update(self, kind: str, /, **fields: Any) -> None:
        params = {"sessionId": self._working, "update": {"sessionUpdate": kind, **fields}}
        self._wire.send(method="session/update", params=params)

    def _says(self, text: str) -> None:
        for word in text.split(" "):
            self._update("agent_message_chunk", content={"type": "text", "text": f"{word} "})
            self._rest(self._pace / 10)

    def _plan(self, counting: str, writing: str) -> None:
        steps = (("Count the lines", counting), ("Write the page", writing))
        entries = [{"content": step, "status": status, "priority": "medium"} for step, status in steps]
        self._update("plan", entries=entries)


def _text(path: Path) -> str | None:
    """Return the text of a file; None if there is no such file, or a link."""
    return path.read_text(errors="replace") if path.is_file() and not path.is_symlink() else None


def page_of(title: str, files: list[str], counts: str | None) -> str:
    """Return the page: the numbers of `wc -l`, or the names alone."""
    lines = [f"# {title}", ""]
    if counts is None:
        lines += ["Not counted: the command was refused.", "", *(f"- {name}" for name in files)]
    else:
        rows = (row.split(maxsplit=1) for row in counts.splitlines())
        lines += ["| file | lines |", "|---|--:|", *(f"| {row[1]} | {row[0]} |" for row in rows if len(row) == 2)]
    return "\n".join([*lines, ""])


def main() -> None:
    """Run the program."""
    parser = argparse.ArgumentParser(description="A small agent behind the Agent Client Protocol.")
    parser.add_argument("--pace", type=float, default=0.0, help="seconds that each piece of work takes")
    DemoProgram(parser.parse_args().pace).serve()


if __name__ == "__main__":
    main()
