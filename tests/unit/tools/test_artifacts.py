"""What a tool may publish: names, kinds, bytes, media types and metadata, and the sentence that each fault gets."""

from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

import greenroom as gr
from greenroom.actors.contract.artifacts import METADATA_BYTES, sequence_of
from greenroom.actors.contract.parts import MAX_BYTES
from greenroom.actors.tools.artifacts import artifact_of

PNG = b"\x89PNG\r\n\x1a\n" + b"picture"
NOW = datetime(2031, 5, 1, 12, tzinfo=timezone(timedelta(hours=2)))
DOCUMENT = {"source_route": "/guide", "language": "en", "build_status": "passed"}
SCREENSHOT = {"viewport": "1x1", "route": "/", "theme": "dark", "language": "en", "privacy_review": "none"}


def made(name: Any = "a.txt", data: Any = "text", kind: Any = "file", media_type: Any = None, **metadata: Any) -> Any:
    return artifact_of(name, data, kind=kind, media_type=media_type, metadata=metadata)


@pytest.mark.rule("AR-1")
@pytest.mark.parametrize(
    ("name", "data", "more", "media_type"),
    [
        ("a.md", "# a", {}, "text/markdown"),
        ("a.MD", b"# a", {}, "text/markdown"),
        ("a", "a", {}, "text/plain"),
        ("a.html", "<p>", {}, "text/html"),
        ("a.svg", "<svg/>", {}, "image/svg+xml"),
        ("a.png", PNG, {}, "image/png"),
        ("a.txt", PNG, {}, "image/png"),
        ("a.zip", b"PK\0", {}, "application/octet-stream"),
        ("a.md", b"\xff\xfe", {}, "application/octet-stream"),
        ("a", "--- a\n", {"kind": "diff"}, "text/x-diff"),
        ("a", "{}", {"media_type": "Application/JSON"}, "application/json"),
        ("a", bytearray(b"a"), {}, "text/plain"),
        ("a", memoryview(b"abcd").cast("H"), {}, "text/plain"),
    ],
)
def test_bytes_and_name_show_the_media_type(name, data, more, media_type):
    assert made(name, data, **more).media_type == media_type


FAULTS: list[tuple[dict[str, Any], str]] = [
    ({"kind": "picture"}, "the kinds are file, document, screenshot, preview, diff, transcript, raw"),
    ({"name": ""}, "give 1 to 255 printable characters"),
    ({"name": "a/b"}, "without slashes"),
    ({"name": ".."}, "other than . and .."),
    ({"name": "a\nb"}, "printable"),
    ({"name": "x" * 256}, "1 to 255"),
    ({"name": 7}, "the name of an artifact is that of a file"),
    ({"data": b""}, "there are no bytes"),
    ({"data": 7}, "give bytes, a str or a pathlib.Path"),
    ({"data": "\ud800"}, "lone surrogate"),
    ({"data": None}, "only a preview with url= has no bytes"),
    ({"data": bytes(MAX_BYTES + 1)}, "8,388,609 bytes; an artifact has at most 8,388,608 bytes"),
    ({"data": "é" * (MAX_BYTES // 2 + 1)}, "8,388,610 bytes"),
    ({"media_type": "text"}, "give type/subtype"),
    ({"media_type": "text/html; charset=utf-8"}, "without parameters"),
    ({"kind": "document"}, "source_route=None: give a text"),
    ({"kind": "document", **DOCUMENT, "language": " "}, "language=' '"),
    ({"kind": "document", **DOCUMENT, "build_status": 1}, "a document needs source_route, language, build_status"),
    ({"kind": "document", **DOCUMENT, "language": "x" * 201}, "1 to 200 characters"),
    ({"kind": "screenshot", "data": PNG}, "viewport=None"),
    ({"kind": "screenshot", "data": PNG, **SCREENSHOT, "privacy_review": "ok"}, "give one of none, passed, blocked"),
    ({"kind": "screenshot", **SCREENSHOT}, "a screenshot is an image, not text/plain"),
    ({"kind": "preview"}, "a preview is of a file or of an address"),
    ({"kind": "preview", "path": "a", "url": "http://a"}, "of a file or of an address"),
    ({"kind": "preview", "url": "http://a", "read_at": NOW}, "no bytes and url="),
    ({"kind": "preview", "data": None, "path": "a", "read_at": NOW}, "give the bytes and path="),
    ({"kind": "preview", "path": "a"}, "a preview needs read_at"),
    ({"kind": "preview", "path": "a", "read_at": NOW.replace(tzinfo=None)}, "a datetime with a time zone"),
    ({"kind": "preview", "path": "a", "read_at": "2031"}, "such as datetime.now"),
    ({"kind": "preview", "path": "", "read_at": NOW}, "path=''"),
    ({"kind": "preview", "path": "a\nb", "read_at": NOW}, "printable"),
    ({"kind": "preview", "path": "x" * 1025, "read_at": NOW}, "1 to 1,024"),
    ({"kind": "preview", "data": None, "url": "javascript:alert(1)", "read_at": NOW}, "http or https address"),
    ({"kind": "preview", "data": None, "url": "file:///etc/passwd", "read_at": NOW}, "http or https address"),
    ({"note": object()}, "no form in JSON"),
    ({"note": "x" * METADATA_BYTES}, "the metadata has 2,059 bytes as JSON, and at most 2,048"),
]


@pytest.mark.rule("AR-3", "AR-7")
@pytest.mark.parametrize(("given", "words"), FAULTS, ids=[words for _, words in FAULTS])
def test_each_fault_is_named_with_the_way_out(given, words):
    with pytest.raises(gr.UsageError) as caught:
        made(**given)
    assert words in str(caught.value)


@pytest.mark.rule("AR-3")
def test_each_kind_is_made_with_what_it_requires():
    for kind in ("file", "diff", "transcript", "raw"):
        assert made(kind=kind, n=1).metadata == {"n": 1}
    assert made(kind="document", **DOCUMENT, version="2").metadata == {**DOCUMENT, "version": "2"}
    assert made("a.png", PNG, kind="screenshot", **SCREENSHOT).metadata == SCREENSHOT


@pytest.mark.rule("AR-5")
@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("site/a.html", "site/a.html"),
        (Path("site") / "a.html", "site/a.html"),
        ("./a.html", "a.html"),
        ("site\\a.html", "site/a.html"),
        ("/home/ada/a.html", "<outside>/a.html"),
        ("../a.html", "<outside>/a.html"),
        ("C:\\Users\\ada\\a.html", "<outside>/a.html"),
    ],
)
def test_the_path_of_a_preview_leaves_no_place_outside_of_the_workspace(path, shown):
    preview = made("a.html", "<p>", kind="preview", path=path, read_at=NOW, n=1)
    assert (preview.path, preview.read_at, preview.metadata) == (shown, "2031-05-01T10:00:00.000Z", {"n": 1})


def test_a_letter_across_the_looked_at_beginning_is_text():
    assert made("a", "x" * 4_095 + "é").media_type == "text/plain"


@pytest.mark.parametrize(
    ("name", "sequence"),
    [
        ("r.a7", 7),
        ("r.a007", 7),
        ("r.a", None),
        ("r.a-1", None),
        ("r.a٣", None),
        ("q.a7", None),
        ("r.a" + "1" * 17, None),
    ],
)
def test_the_id_of_an_artifact_names_the_event(name, sequence):
    assert sequence_of("r", name) == sequence


async def test_a_context_made_by_hand_publishes_nothing_and_checks_all_the_same():
    artifact = await gr.ToolContext().artifact("a.txt", "text")
    assert (artifact.artifact_id, artifact.data, artifact.size) == ("", None, 4)
    assert gr.SyncToolContext().artifact("a.txt", "text") == artifact
    with pytest.raises(gr.UsageError, match="there are no bytes"):
        await gr.ToolContext().artifact("a.txt", "")
