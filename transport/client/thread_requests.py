"""The threads of a gateway, over HTTP, and the bytes that it serves: parts of messages, and artifacts."""

from __future__ import annotations

import abc
from typing import Any
from urllib.parse import quote

import attrs
import msgspec

from greenroom.actors.contract.plain import JSONObject
from greenroom.actors.contract.threads.messages import PartFacts, ThreadMessages
from greenroom.actors.errors import UsageError

from ..protocol.lines import ThreadLine
from .arguments import checked
from .endpoint import Endpoint
from .http_requests import run_path, unreadable


@attrs.frozen(kw_only=True)
class ListedThreads:
    """A page of threads.

    Attributes:
        threads: The thread with the newest run first.
        cursor: Cursor of the next page; None if this is the last page.
    """

    threads: tuple[ThreadLine, ...]
    cursor: str | None


class ThreadRequests(abc.ABC):
    """The methods of a client that read threads and bytes."""

    _address: Endpoint

    @abc.abstractmethod
    async def _get(
        self, path: str, query: JSONObject | None = None, *, body: JSONObject | None = None, **ids: str
    ) -> dict[str, Any]:
        """GET a JSON object; with a body, POST that. `ids`: what a refusal is about, such as a run_id."""

    @abc.abstractmethod
    async def _bytes(self, path: str, **ids: str) -> bytes:
        """GET some bytes."""

    async def threads(self, *, by: str | None = None, limit: int = 50, cursor: str | None = None) -> ListedThreads:
        """Return a page of the threads that this principal may read, over HTTP; see `Runtime.threads`.

        Raises:
            UsageError: An argument is invalid.
            NotAllowed: The principal lacks the scope `follow`.
            NotReachable: The gateway does not answer now.
            ConnectError: The connection was given up.
        """
        page = await self._get("/v1/threads", {"by": by, "limit": limit, "cursor": cursor})
        try:
            lines = msgspec.convert(page["threads"], tuple[ThreadLine, ...])
            return ListedThreads(threads=lines, cursor=page["cursor"])
        except (KeyError, msgspec.ValidationError) as error:
            raise unreadable(self._address, "list of threads", error) from error

    async def messages(
        self, thread_id: str, *, before: int | None = None, after: int | None = None, limit: int = 100
    ) -> ThreadMessages:
        """Return a page of a thread's messages, over HTTP; see `Runtime.messages`.

        Raises:
            UnknownThread: No thread has this id, or this principal may not see each of its runs.
            UsageError, NotAllowed, NotReachable, ConnectError: See `threads`.
        """
        path = f"/v1/threads/{quote(checked(thread_id, 'thread_id'), safe='')}/messages"
        page = await self._get(path, {"before": before, "after": after, "limit": limit}, thread_id=thread_id)
        try:
            return msgspec.convert(page, ThreadMessages)
        except msgspec.ValidationError as error:
            raise unreadable(self._address, "page of messages", error) from error

    async def part(self, part: PartFacts) -> bytes:
        """Return the bytes of an image or a file of a message, over HTTP.

        Raises:
            UsageError: The part is an address, or waits with the input of a run.
            UnknownPart: The gateway's store has no bytes of it.
            UnknownThread, NotAllowed, NotReachable, ConnectError: See `messages`.
        """
        if not isinstance(part, PartFacts) or not part.href:
            raise UsageError(
                f"{part!r:.200}: give a part of a message in a page of this client; an address has no bytes"
            )
        return await self._bytes(part.href)

    async def artifact(self, run_id: str, artifact_id: str) -> bytes:
        """Return the bytes of an artifact of a run, over HTTP.

        Raises:
            UnknownArtifact: The run has no such artifact, or the gateway's store has no bytes of it.
            UnknownRun, NotAllowed, NotReachable, ConnectError: See `Client.view`.
        """
        run_id, artifact_id = checked(run_id, "run_id"), checked(artifact_id, "artifact_id")
        path = f"{run_path(run_id)}/artifacts/{quote(artifact_id, safe='')}"
        return await self._bytes(path, run_id=run_id)
