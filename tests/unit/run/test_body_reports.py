"""The fields of a note, as a body gives them and as its event has them; and a context that was made by hand."""

from typing import Any

import pytest

import greenroom as gr
from greenroom.actors.contract.work_events import NOTES
from greenroom.actors.run.body_reports import NOTE_LIMIT, note_payload


def test_the_fields_of_a_note_have_the_names_of_the_wire() -> None:
    assert note_payload("run.file.read", {"path": "a.txt", "read_at": "now", "lines": 2}) == {
        "path": "a.txt",
        "readAt": "now",
        "lines": 2,
    }


@pytest.mark.parametrize(
    ("kind", "fields", "text"),
    [
        ("run.file", {}, "there is no such event"),
        (7, {}, "there is no such event"),
        ("run.file.read", {"path": "a"}, "missing required field `readAt`"),
        ("run.file.read", {"path": "a", "readAt": "now"}, "'readAt' is no field of it"),
        ("run.file.read", {"path": "a", "read_at": "now", "lines": "2"}, "Expected `int | null`"),
        ("runtime.timeout", {"runtime": "acme", "which": "never", "seconds": 1.0}, "Invalid enum value"),
        ("run.degraded", {"reason": "x", "detail": "y" * NOTE_LIMIT}, f"at most {NOTE_LIMIT:,}"),
        ("run.degraded", {"reason": object()}, "the fields"),
    ],
)
def test_a_note_in_another_form_is_refused(kind: Any, fields: dict[str, Any], text: str) -> None:
    with pytest.raises(gr.ToolError, match=text.replace("(", r"\(").replace("|", r"\|")):
        note_payload(kind, fields)


def test_each_kind_names_its_fields() -> None:
    for kind in NOTES:
        with pytest.raises(gr.ToolError, match="the fields are "):
            note_payload(kind, {"nonsense": 1})


async def test_a_context_that_was_made_by_hand_drops_what_a_body_reports() -> None:
    ctx: gr.ToolContext[Any] = gr.ToolContext(memo={"job": 7})
    assert ctx.memo == {"job": 7}
    await ctx.save(1)
    ctx.spend(gr.Usage(input=1))
    await ctx.reports.say("hm", reasoning="hm")
    await ctx.reports.complete("hm")
    await ctx.reports.note("run.degraded", reason="hm")
    assert "NoReports" in repr(ctx.reports)
    sync: gr.SyncToolContext[Any] = gr.SyncToolContext(memo=3)
    sync.save(1)
    sync.spend(gr.Usage(input=1))
    assert sync.memo == 3


def test_a_code_that_no_failure_has_is_refused_where_the_error_is_made() -> None:
    with pytest.raises(gr.UsageError, match="did you mean 'target_offline'"):
        gr.ToolError("gone", run_code="target_ofline")
    assert gr.ToolError("gone", run_code="target_offline").run_code == "target_offline"
    assert gr.ToolError("gone").run_code is None
