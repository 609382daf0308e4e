"""No way of writing one, cutting one or nesting one shows it."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from functools import partial
from typing import Any, Final
from urllib.parse import quote

from tests.support.runs import agent, frames_of, home

import greenroom as gr
from greenroom.actors.contract.secrets.redaction import Redactor
from greenroom.actors.services.stream_redaction import StreamRedactor
from greenroom.testing import call, text
from greenroom.transport.gateway.api import plain_view

from .core import Dice, Heard, must, virtual

LETTERS: Final = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
PLACES: Final = ("result", "error", "progress", "output", "answer", "question", "title", "input", "reason", "key")


def a_secret(dice: Dice) -> str:
    """A secret that was named; some have characters that JSON, URLs and Python write differently."""
    odd = dice.choice(("", "", '"', "\\", "\n", "é", "'", "/+=", "€ ", "%"))
    return "".join(dice.choices(LETTERS, k=14)) + odd + "".join(dice.choices(LETTERS, k=dice.randint(14, 60)))


WRITERS: Final[tuple[Callable[[str], Any], ...]] = (
    str,
    repr,
    json.dumps,
    partial(json.dumps, ensure_ascii=False),
    partial(quote, safe=""),
    lambda secret_text: {secret_text: 1},
    lambda secret_text: {"a": [{"b": secret_text}]},
    lambda secret_text: json.dumps({"a": {"b": [secret_text]}}),
    lambda secret_text: repr({"a": secret_text}),
    lambda secret_text: f"https://user:{quote(secret_text, safe='')}@example.org/x",
    lambda secret_text: f"-----{secret_text}-----",
    lambda secret_text: f"{secret_text}{secret_text}",
)


def shows(output: str, secret: str) -> str | None:
    """Twelve characters of a secret's first or last fourteen that stand in a text; they have no odd ones."""
    inside = [secret[at : at + 12] for at in (0, 1, 2, len(secret) - 14, len(secret) - 13, len(secret) - 12)]
    return next((one for one in inside if one in output), None)


def streams(dice: Dice, whole: str, redactor: Redactor) -> str:
    """What is shown of a text that comes in pieces."""
    hold, output, waits, at = StreamRedactor(redactor), "", "", 0
    while at < len(whole):
        size = dice.choice((1, 2, 3, 7, 40, 400))
        waits, at = waits + whole[at : at + size], at + size
        cut = hold.settled(waits)
        output, waits = output + redactor.text(waits[:cut]), waits[cut:]
    return output + redactor.text(waits)


def secrets(dice: Dice) -> None:
    """Nothing of a named secret is shown, however it is written, cut or streamed; by a run neither."""
    secret = a_secret(dice)
    inside = dice.choice(WRITERS[:4])(secret) if dice.random() < 0.5 else secret
    wrote = dice.choice(WRITERS[:4] if inside is not secret and dice.random() < 0.7 else WRITERS)(inside)
    redactor = Redactor([secret, a_secret(dice)])
    must(shows(json.dumps(redactor.value({"x": wrote})), secret) is None, f"value {wrote!r}")
    if isinstance(wrote, str):
        whole = dice.choice(("", "x" * 500, "key=", "a ")) + wrote + dice.choice(("", " b", "x" * 500))
        must(shows(streams(dice, whole, redactor), secret) is None, f"stream {whole!r}")
        cut = whole[: whole.find(secret[:14]) + dice.randint(12, 14 + len(secret))]
        must(shows(redactor.text(cut), secret) is None, f"cut {cut!r}")
    virtual(partial(a_run_of_secrets, dice, secret, wrote))


async def a_run_of_secrets(dice: Dice, secret: str, wrote: Any) -> None:
    """A run that touches a secret in some places, and what leaves it."""
    at = set(dice.sample(PLACES, 4))

    def there(place: str) -> str:
        page = wrote if isinstance(wrote, str) else json.dumps(wrote)
        return page if place in at else "plain"

    @gr.tool
    async def work(ctx: gr.ToolContext[Any]) -> Any:
        await ctx.progress(0.5, there("progress"))
        for piece in (there("output")[:9], there("output")[9:]):
            await ctx.output(piece)
        return {"a": wrote if "result" in at else 1, there("key"): 2}

    @gr.tool
    async def fails() -> str:
        raise ValueError(there("error"), {"x": there("error")}) from RuntimeError(there("error"))

    @gr.tool
    async def asks(ctx: gr.ToolContext[Any]) -> Any:
        return ctx.decision or gr.Suspend(message=there("question"), parameters={"p": there("question")})

    log, root = Heard(), logging.getLogger("greenroom")
    root.addHandler(log)
    steps = [call("work", id="c1"), call("fails", id="c2"), call("asks", id="c3")]
    one = agent([text(there("answer")), *steps], there("answer"), tools=[work, fails, asks])
    try:
        async with home(None, agents=[one], secrets=[secret]) as runtime:
            run = await runtime.start(one, f"use {there('input')}", title=there("title"))
            waiting = await run.wait()
            outputs = {"a view": plain_view(await run.view()), "tickets": waiting}
            outputs["a list"] = [(one.title, one.asked) for one in (await runtime.reader.page(gr.RunQuery())).runs]
            await run.decide("c3", "cancel", reason=there("reason"))
            await run.result()
            outputs |= {"the log": await frames_of(runtime, run.id), "a view at its end": plain_view(await run.view())}
    finally:
        root.removeHandler(log)
    outputs["logging"] = "\n".join(log.texts)
    for name, output in outputs.items():
        must(shows(str(output), secret) is None, f"{name} of a run with {wrote!r} in {sorted(at)}: {output}")
