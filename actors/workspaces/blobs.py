"""Read contents from the shadow repository, many in one process."""

from __future__ import annotations

from collections.abc import Sequence

import trio

from .difference import Replacement
from .git import Git


async def blob_sizes(git: Git, replacements: Sequence[Replacement]) -> dict[str, int]:
    """Return the sizes of the contents of both versions, by digest.

    Raises:
        GitFailed: an object is missing.
    """

    def words() -> bytes:
        versions = {version.digest for one in replacements for version in (one.old, one.new) if version}
        return "".join(f"{digest}\n" for digest in sorted(versions)).encode()

    def read(output: bytes) -> dict[str, int]:
        lines = (line.split(" ") for line in output.decode().splitlines())
        return {digest: int(size) for digest, size in lines}

    data = await trio.to_thread.run_sync(words)
    _, output = await git.run("cat-file", "--batch-check=%(objectname) %(objectsize)", "--buffer", data=data)
    return await trio.to_thread.run_sync(read, output)


async def read_blobs(git: Git, digests: Sequence[str]) -> dict[str, bytes]:
    """Return contents by digest; the caller bounds their sizes."""

    def read(output: bytes) -> dict[str, bytes]:
        contents, place = dict[str, bytes](), 0
        while place < len(output):
            end = output.index(b"\n", place)
            digest, size = output[place:end].decode().split(" ")
            place = end + 1 + int(size)
            contents[digest] = output[end + 1 : place]
            place += 1  # the newline after each content
        return contents

    data = await trio.to_thread.run_sync(lambda: "".join(f"{digest}\n" for digest in digests).encode())
    _, output = await git.run("cat-file", "--batch=%(objectname) %(objectsize)", "--buffer", data=data)
    return await trio.to_thread.run_sync(read, output)
