"""Odds and ends: numbers at the edge of sense, names without end, cursors of others, prunes, denials, full inboxes."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial
from typing import Any, Final
from urllib.parse import quote, urlencode

import trio
from tests.support.gateway import TOKEN, gateway, http, welcomed
from tests.support.runs import agent, events_of, home
from tests.support.scene_plugins import scripted

import greenroom as gr
from greenroom.actors.contract.envelope import FRAME_BYTES
from greenroom.testing import FunctionModel, ScriptedModel, call, fail
from greenroom.transport import Principal
from greenroom.transport.gateway.run_routes import PAGE_BYTES

from .core import Dice, must, real, virtual

EXTREMES: Final = (
    -1.0,
    -0.0,
    0.0,
    1e-300,
    1e300,
    1e9,
    float("inf"),
    float("-inf"),
    float("nan"),
    None,
    2**70,
    "1",
    "Wed",
)
LETTERS: Final = ("x", "é", "\U0001f600", "\x01", "\udc80", "\u202e", '"', "\\", "\n", "a b", "\0", "%2F", "/", "..")


def a_text(dice: Dice, most: int = 1_000_000) -> str:
    """A text of any size, of letters that are one to six bytes in JSON."""
    return "".join(dice.choices(LETTERS, k=2)) * dice.choice((0, 1, 20, 64, 65, 2_000, most // 2))


async def retry_after(dice: Dice) -> None:
    """A provider asks for any wait: the error is refused when it is made, or the run ends in bounded time."""
    delay: Any = dice.choice(EXTREMES)
    kind: Any = dice.choice(("rate_limited", "overloaded", "timeout", "provider"))

    class Limited(gr.ModelError):
        """An error whose attribute was changed behind its back."""

    def answers(_: Any) -> Any:
        error = Limited("slow down", kind=kind)
        error.retry_after = delay
        raise error

    try:
        step: Any = fail(kind, retry_after=delay)
    except (ValueError, TypeError, gr.UsageError):
        bad = gr.Agent("a", model=FunctionModel(answers))
    else:
        bad = agent(*[step] * 20, key="a")
    async with home(None, agents=[bad]) as runtime:
        run = await runtime.start(bad, "hi")
        with trio.move_on_after(7_200) as limit:
            outcome = await run.result()
        must(not limit.cancelled_caught, f"retry_after={delay!r}: no end in two hours")
        must(isinstance(outcome, gr.Failed), outcome)
        await events_of(run)


async def sizes(dice: Dice) -> None:
    """Any text in any field: refused with an error of ours, or stored in events of bounded size."""
    labels = {name: a_text(dice) for name in dice.sample(("title", "by", "run_id", "thread_id", "session_id"), 2)}

    @gr.tool(needs_approval=True)
    async def ask(to: str = "") -> str:
        raise gr.ToolError(a_text(dice))

    async with home(None) as runtime:
        try:
            asks = call("ask", to=a_text(dice), id=a_text(dice, 1000) or None)
            one = agent(asks, a_text(dice) or "x", tools=[ask])
            run = await runtime.start(one, a_text(dice) + "hi", **labels)
        except (gr.GreenroomError, ValueError):  # the script of a test model says ValueError
            return
        for ticket in getattr(await run.wait(), "tickets", ()):
            await run.decide(ticket.approve(reason=a_text(dice)))
        try:
            await run.send(a_text(dice) + "more", by=a_text(dice, 10_000) or None)
            await run.cancel(reason=a_text(dice))
        except gr.UsageError:
            pass
        await run.result()
        frames = await runtime.store.events(run.id, limit=1000)
        must(max(map(len, frames)) <= FRAME_BYTES, f"{max(map(len, frames))} bytes in an event")
        page = await runtime.reader.page(gr.RunQuery())
        must(all(len(line.title) <= 81 for line in page.runs), "a title that is too long")


async def inbox(dice: Dice) -> None:
    """Far more input than fits: some is refused, and what was accepted is in the run."""

    @gr.tool(needs_approval=True)
    async def ask() -> str:
        return "yes"

    message = agent(
        call("ask", id="c1"), *["done"] * 3_000, tools=[ask], on_new_input=dice.choice(("queue", "supersede"))
    )
    async with home(None, agents=[message], passivate_after=dice.choice((0.0, None))) as runtime:
        run = await runtime.start(message, "hi")
        await run.wait()
        size, words = dice.choice((1, 1_000, 40_000)), list[str]()
        for number in range(dice.choice((10, 300))):
            word = f"word-{number}-end"
            answer = await run.send(word + " x" * (size // 2))
            must(answer.ok or answer.code in ("busy", "run_done"), answer)
            words += [word] if answer.ok else []
        for ticket in getattr(await run.wait(), "tickets", ()):
            await run.decide(ticket.approve())
        await run.result()
        record = json.dumps([str(message.content) for message in (await run.view()).messages])
        must([word for word in words if word not in record] == [], f"{len(words)} accepted, some are lost")


async def denials(dice: Dice) -> None:
    """A policy refuses: whatever a person says, the body does not begin; a block ends it all."""
    ran = []

    @gr.tool(needs_approval=dice.random() < 0.7)
    async def pay() -> str:
        ran.append(1)
        return "paid"

    phases = dice.sample(("tool_gate", "tool_start"), 1)
    verdict = dice.choice((gr.Deny("no"), gr.Block("no")))
    others = dice.choice((gr.Allow(), gr.SetResult("42"), None))
    plugins = [scripted("no", tool_gate=lambda ctx: verdict), scripted("yes", tool_gate=lambda ctx: others)]
    dice.shuffle(plugins)
    one = agent(call("pay", id="c1"), "done", tools=[pay], plugins=plugins)
    async with home(None, agents=[one]) as runtime:
        run = await runtime.start(one, "hi")
        await run.decide("c1", "resume")
        for ticket in getattr(await run.wait(), "tickets", ()):
            await run.decide(ticket.approve())
        await trio.sleep(1)
        await run.cancel()
        await run.result()
        must(not ran, f"{verdict} beside {others} in {phases}: the body ran")


async def pruned_while_followed(dice: Dice) -> None:
    """Runs are pruned under their readers: each reader comes to an end, and other runs stay whole."""
    one = agent(*["done"] * 40)
    async with home(None, agents=[one]) as runtime, trio.open_nursery() as nursery:
        runs = [await runtime.start(one, f"hi {number}", thread_id=dice.choice((None, "t"))) for number in range(9)]

        async def look(run: gr.Run[Any]) -> None:
            try:
                await events_of(run)
            except (gr.UnknownRun, gr.RunDegradedError):
                return

        for run in runs:
            nursery.start_soon(look, run)
            if dice.random() < 0.4:
                await trio.sleep(dice.choice((0, 0.1)))
                await runtime.store.prune(runtime.clock.now() + timedelta(seconds=dice.choice((-1, 1))))
        await trio.sleep(1)
        later = await runtime.start(one, "later", thread_id="t")
        must((await later.result()).output == "done", "the thread is not free")


async def cursors(dice: Dice) -> None:
    """A cursor of another principal, or one that was changed, is refused or gives a page of one's own."""
    names = ("ann", "bob")
    people = [Principal(name=name, token=f"token-of-{name}-0123456789", sees=partial(_of, name)) for name in names]
    echo = gr.Agent("echo", model=ScriptedModel(["done"] * 99))
    async with gr.open_runtime(agents=[echo]) as runtime, gateway(runtime, principals=people) as address:
        for number in range(12):
            await runtime.start(echo, "hi", run_id=f"{names[number % 2]}-{number}", by=names[number % 2])
        ask = partial(http, address, "GET")
        first = (await ask("/v1/runs?limit=2", token=people[0].token)).json()
        cursor = first["cursor"]
        for _ in range(20):
            at = dice.randrange(len(cursor))
            wrong_cursor = dice.choice(
                (cursor, cursor[:at] + dice.choice("Aa0_-=é\0") + cursor[at + 1 :], cursor[:at], "é")
            )
            query = urlencode({"cursor": wrong_cursor, "limit": dice.choice((1, 5))})
            reply = await ask(f"/v1/runs?{query}", token=people[1].token)
            must(reply.status in (200, 422, 400), f"{reply.status} {reply.body!r}")
            must("ann-" not in str(reply.body), f"{wrong_cursor!r}: {reply.body!r}")


def _of(name: str, info: gr.RunInfo) -> bool:
    return info.by == name


async def fields(dice: Dice) -> None:
    """Any value in any field of any request: refused with words, never an error of the server."""
    echo = gr.Agent("echo", model=ScriptedModel(["done"] * 99))
    async with gr.open_runtime(agents=[echo]) as runtime, gateway(runtime) as address:
        run = await runtime.start(echo, "hi", run_id="r1")
        await run.result()
        for _ in range(12):
            strange = ([], {}, [[]] * 9, True, 10**30, -(2**63), dice.choice(EXTREMES))
            odd: Any = dice.choice((a_text(dice, 40_000), *strange))
            name = dice.choice(("status", "agent", "thread", "by", "since", "text", "order", "limit", "cursor"))
            text = str(odd).encode("utf-8", "replace").decode()[:5_000]
            body = {"agent": "echo", "text": "hi", dice.choice(("title", "thread", "run", "session", "agent")): odd}
            data = json.dumps(body).encode()
            frame = {"run": "r1", "id": "x", dice.choice(("run", "id", "text", "reason", "after", "limit", "by")): odd}
            replies = [
                await http(address, "GET", f"/v1/runs?{urlencode({name: text})}"),
                await http(address, "POST", "/v1/runs", body=data),
                await http(address, "GET", f"/v1/runs/{quote(text[:2_000] or 'x', safe='')}"),
                await http(address, "GET", f"/v1/runs/r1/events?{urlencode({dice.choice(('after', 'limit')): text})}"),
                await http(address, "POST", "/v1/runs/r1/commands", body={"type": "send", "text": odd}),
            ]
            for reply in replies:
                must(reply.status < 500, f"{name}={odd!r:.200}: {reply.status} {reply.body[:500]!r}")
                must(len(reply.body) < 2 * PAGE_BYTES, f"{len(reply.body)} bytes")
            async with welcomed(address, token=TOKEN) as talk:
                kind = dice.choice(("start", "send", "cancel", "pause", "subscribe", "watch", "fork", "decide", "ping"))
                answer = await talk.ask(
                    kind, **{key: value for key, value in frame.items() if value is not EXTREMES[8]}
                )
                must(answer.get("code") != "internal", f"{kind} {frame!r:.300}: {answer}")
        must((await http(address, "GET", "/v1/runs")).status == 200, "the list is broken")


VIRTUAL: Final[tuple[Callable[[Dice], Awaitable[None]], ...]] = (
    retry_after,
    sizes,
    inbox,
    denials,
    pruned_while_followed,
)
REAL: Final[tuple[Callable[[Dice], Awaitable[None]], ...]] = (cursors, fields)


def odds(dice: Dice) -> None:
    """Numbers at the edge of sense, names without end, cursors of others, prunes, denials, full inboxes."""
    scene = dice.choice((*VIRTUAL, *REAL))
    (real if scene in REAL else virtual)(partial(scene, dice))
