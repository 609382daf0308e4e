"""A search for a text: of large values, too, it makes no objects, and reads on in a thread."""

import tracemalloc

import msgspec
import pytest
import trio

import greenroom as gr
from greenroom.actors.contract.secrets.redaction import Redactor
from greenroom.actors.stores.common._text_search import TextSearch

LARGEST = 520_000
DENSE = "password=e " * (LARGEST // 11)


def frame_of(value):
    return msgspec.json.encode({"payload": {"output": value}})


@pytest.mark.parametrize("value", [[[]] * (LARGEST // 3), [{"a": 1}] * (LARGEST // 8)])
def test_a_value_of_many_parts_is_read_as_a_text(value):
    """Making its objects takes a thread, and with it the interpreter, 100 ms and more."""
    frame = frame_of(value)
    tracemalloc.start()
    try:
        assert not TextSearch(text="lamp").finds("run-1", frame, None)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 6 * len(frame)


def test_a_text_is_found_as_it_reads_and_a_null_has_none():
    for value, text, is_hit in [
        ('a "lamp"\n', '"lamp"\n', True),
        ({"a": "\u00d6l"}, "öl", True),
        (None, "null", False),
        (7, "7", True),
    ]:
        assert TextSearch(text=text).finds("run-1", frame_of(value), None) is is_hit


def test_a_secret_with_characters_that_json_escapes_is_not_found():
    secret = 'pass"wor\\d-of-the-lamp'
    for value in (secret, {"a": secret}, [secret]):
        assert TextSearch(text="lamp").finds("run-1", frame_of(value), None)
        assert not TextSearch(text="lamp", shown=Redactor([secret]).text).finds("run-1", frame_of(value), None)


async def test_the_loop_turns_while_the_memory_store_reads_a_text_full_of_secrets():
    """Its redaction takes half a second. Counted are turns, not time, for the machine may be busy."""
    turns = 0

    async def turn():
        nonlocal turns
        while True:
            await trio.sleep(0.001)
            turns += 1

    reply = gr.testing.ScriptedModel([DENSE])
    async with gr.open_runtime(agents=[gr.Agent("a", model=reply)]) as runtime, trio.open_nursery() as nursery:
        run = await runtime.start("a", "hello")
        await run.result()
        nursery.start_soon(turn)
        await trio.testing.wait_all_tasks_blocked()
        before = turns
        found = await runtime.runs(text="password")
        assert turns - before > 3
        assert [line.run_id for line in found.runs] == [run.id]
        nursery.cancel_scope.cancel()
