"""Routes: whatever a stranger asks of any route, the answer is the one for a run that is not there.

The oracle is a comparison: the same request, once for a run or thread of another principal, once for one that never
was. Status and body must be the same but for the name that was asked for. What a person wrote is in no answer at
all, and nothing of the owner's runs moves.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import timedelta
from functools import partial
from typing import Any, Final
from urllib.parse import quote, urlencode

import attrs
import trio
from tests.support.gateway import gateway, http, welcomed

import greenroom as gr
from greenroom.testing import ScriptedModel, call
from greenroom.transport import Address, Principal
from greenroom.transport.server.routes import ROUTES

from .core import Dice, must, real

TOKENS: Final = {name: f"token-of-{name}-0123456789" for name in ("ann", "bob", "eve")}
"""Ann owns the runs, bob may do everything with runs of his own, eve follows runs of her own."""
PATIENCE: Final = 3.0
STATES: Final = ("pruned", "done", "running", "queued", "waiting", "paused", "forked")
SAID: Final = "zqsecret"
"""Stands in every text, title and reason of ann's."""


def people() -> list[Principal]:
    """The three."""
    scopes: Any = {"eve": {"follow"}}
    usual = {"follow", "decide", "start"}
    return [
        Principal(name=name, token=token, sees=partial(_is_of, name), scopes=scopes.get(name, usual))
        for name, token in TOKENS.items()
    ]


def _is_of(name: str, info: gr.RunInfo) -> bool:
    return info.by == name


def house() -> tuple[list[gr.Agent[Any]], trio.Event]:
    """Agents that answer, work and ask."""
    may_end = trio.Event()

    @gr.tool
    async def work() -> str:
        await may_end.wait()
        return SAID

    @gr.tool(needs_approval=True)
    async def pay(to: str) -> str:
        return SAID

    def one(key: str, *steps: Any) -> gr.Agent[Any]:
        return gr.Agent(key, model=ScriptedModel(list(steps)), tools=[work, pay])

    works = one("works", call("work", id="c1"), f"{SAID}.")
    return [one("echo", f"{SAID}."), works, one("asks", call("pay", to=SAID, id="c1"), "x")], may_end


async def settled(runtime: gr.Runtime, ids: Mapping[str, str]) -> dict[str, str]:
    """Ann's runs, one in each state; their ids by state."""
    options = {"by": "ann", "title": f"{SAID} title"}
    old = await runtime.start("echo", SAID, run_id=ids["pruned"], thread_id="th-pruned", **options)
    await old.result()
    await runtime.store.prune(runtime.clock.now() + timedelta(seconds=1))
    done = await runtime.start("echo", SAID, run_id=ids["done"], thread_id="th-done", **options)
    await done.result()
    await runtime.start("works", SAID, run_id=ids["running"], thread_id="th-running", **options)
    await runtime.start("echo", SAID, run_id=ids["queued"], thread_id="th-running", **options)
    await (await runtime.start("asks", SAID, run_id=ids["waiting"], thread_id="th-waiting", **options)).wait()
    pause_run = await runtime.start("asks", SAID, run_id=ids["paused"], thread_id="th-paused", **options)
    await pause_run.pause(reason=SAID)
    fork_run = await runtime.fork(ids["done"], step=1, new_run_id=ids["forked"], by="ann")
    await trio.sleep(0.05)
    threads = {state: f"th-{'running' if state == 'queued' else state}" for state in STATES}
    return threads | {"forked": fork_run.thread_id}


@attrs.frozen
class Ask:
    """A request of HTTP, or frames of the WebSocket if `frames` is not empty."""

    method: str = "GET"
    target: str = ""
    body: Any = None
    headers: Mapping[str, str] = attrs.field(factory=dict)
    frames: tuple[Mapping[str, Any], ...] = ()


def a_command(dice: Dice, run: str) -> dict[str, Any]:
    """A command to a run, or something like one."""
    kind = dice.choice(("decide", "cancel", "send", "pause"))
    target = dice.choice((f"{run}.t1", f"{run}.t2", "c1", f"{run}-c1", run))
    more: dict[str, dict[str, Any]] = {
        "decide": {
            "target": target,
            "action": dice.choice(("resume", "cancel")),
            "fingerprint": dice.choice((None, "f")),
        },
        "cancel": {"mode": dice.choice(("now", "after_step")), "reason": "r"},
        "send": {"text": "t"},
        "pause": {"reason": "r"},
    }
    return {"type": kind, **more[kind]}


def a_list(dice: Dice, run: str, thread: str) -> dict[str, str]:
    """A query of a list that ann's runs would fit."""
    fields = {"thread": thread, "prefix": run[:-2], "text": run, "by": "ann", "status": "waiting", "agent": "asks"}
    fields |= {"order": "waiting_longest", "counts": "true", "limit": "1"}
    return {name: fields[name] for name in ("prefix", *dice.sample(sorted(fields), dice.randint(0, 4)))}


def a_chat(thread: str, run: str, number: int) -> dict[str, Any]:
    """A body of the AI SDK that continues with a run."""
    part = {"type": "tool-pay", "toolCallId": f"{run}-c1", "state": "approval-responded", "input": {}}
    part["approval"] = {"id": f"{run}.t1", "approved": True}
    message = {"id": run, "role": "assistant", "parts": [part]}
    user = {"id": f"m{number}", "role": "user", "parts": [{"type": "text", "text": "hi"}]}
    return {"id": thread, "trigger": "submit-message", "messages": [[message], [user, message]][number % 2]}


def an_ag_ui(thread: str, run: str) -> dict[str, Any]:
    """A body of AG-UI that resumes a run."""
    resume = [{"interruptId": f"{run}.t1", "status": "resolved", "payload": {"approved": True}}]
    body = {"threadId": thread, "runId": "x1", "state": {}, "messages": [], "tools": [], "context": []}
    return {**body, "forwardedProps": {}, "resume": resume}


def over_http(dice: Dice, run: str, thread: str) -> Ask:
    """A request to some route of the table, which names a run or a thread that need not be the asker's."""
    route, number = dice.choice(ROUTES), dice.getrandbits(20)
    params = {"run": run, "chat": thread, "agent": dice.choice(("echo", "works", "asks")), "version": "v6", "name": run}
    params |= {"queue": "q", "thread": thread, "position": "1", "place": "0", "sha256": "0" * 64}
    params |= dict.fromkeys(("rule", "artifact", "task", "config"), run)
    target = route.template.format(**{name: quote(value, safe="") for name, value in params.items()})
    kind = dice.choice(("application/json", "text/event-stream"))
    headers = {"idempotency-key": f"k{number}", "accept": kind}
    query: dict[str, Any] = {}
    if route.template == "/v1/runs":
        query = a_list(dice, run, thread) if route.method == "GET" else {}
    elif route.template == "/v1/threads":
        query = {"by": dice.choice(("ann", "bob")), "limit": dice.choice((1, 1000))}
    elif route.template.endswith("/events"):
        query = {"after": dice.choice((0, 1, 3, 10**6)), "limit": dice.choice((1, 1000))}
    body: Any = None
    match route.method, route.template.rsplit("/", 1)[-1]:
        case "POST", "commands":
            body = a_command(dice, run)
        case "POST", "fork":
            body = {"step": dice.choice((0, 1))}
        case "POST", "chat":
            body = a_chat(thread, run, number)
        case "POST", "run":
            body = an_ag_ui(thread, run)
        case "POST", "runs":  # whose id or thread it is may be reported: it cannot be had
            body = {"agent": "nothing", "text": "x", "run": run, "thread": thread}
    method = "HEAD" if route.method == "GET" and dice.random() < 0.1 else route.method
    return Ask(method, target + (f"?{urlencode(query)}" if query else ""), body, headers)


def over_a_socket(dice: Dice, run: str, thread: str) -> Ask:
    """Frames that name a run or a thread that need not be the asker's."""
    frames: list[dict[str, Any]] = []
    for number in range(dice.randint(1, 4)):
        name = f"f{number}"
        query = {key: value for key, value in a_list(dice, run, thread).items() if key != "counts"}
        frames.append(
            dice.choice((
                {"type": "subscribe", "run": run, "after": dice.choice((0, 3, 99)), "epoch": dice.choice((None, "e"))},
                {"type": "unsubscribe", "run": run},
                {"type": "watch", "id": name, **query, **({"limit": 1} if "limit" in query else {})},
                {"type": "threads", "id": name, "by": "ann"},
                {"type": "messages", "id": name, "thread": thread, "after": dice.choice((0, 1))},
                {"type": "fork", "id": name, "run": run, "step": dice.choice((0, 1))},
                {"run": run, "id": name, **a_command(dice, run)},
            ))
        )  # fmt: skip
    return Ask(frames=tuple(frames))


async def intrude(dice: Dice, address: Address, who: str, run: str, thread: str) -> tuple[int, str]:
    """Try to begin a run in a thread of ann's, or under the id of one of her runs; what was answered."""
    number, token = dice.getrandbits(40), TOKENS[who]
    order: dict[str, Any] = {"agent": "echo", "text": "x", "onBusy": dice.choice(("queue", "refuse"))}
    order |= dice.choice(
        ({"run": run}, {"thread": thread}, {"run": run, "thread": thread}, {"run": run, "thread": "n"})
    )
    user = {"id": f"m{number}", "role": "user"}
    chat = {"id": thread, "trigger": "submit-message", "messages": [{**user, "parts": [{"type": "text", "text": "x"}]}]}
    ag_ui = {**an_ag_ui(thread, run), "messages": [{**user, "content": "x"}]}
    del ag_ui["resume"]
    fork = {"type": "fork", "id": f"f{number}", "run": run, "step": 0, "newRun": dice.choice((run, f"n{number}"))}
    ask = dice.choice((
        Ask("POST", "/v1/runs", order, {"idempotency-key": f"k{number}"}),
        Ask(frames=({"type": "start", "id": f"s{number}", **order},)),
        Ask(frames=(fork,)),
        Ask("POST", "/v1/ai-sdk/v6/agents/echo/chat", chat),
        Ask("POST", "/v1/ai-sdk/v7/agents/asks/chat", chat),
        Ask("POST", "/v1/ag-ui/agents/echo/run", ag_ui),
    ))  # fmt: skip
    status, text = await answered(address, token, ask)
    is_refused = status in (403, 409) or any(f'"code": "{code}"' in text for code in ("not_allowed", "unknown_run"))
    must(is_refused, f"{who} intrudes into {run} or {thread}: {ask}: {status} {text}")
    return status, text


async def answered(address: Address, token: str | None, ask: Ask) -> tuple[int, str]:
    """Status and text of an answer."""
    if not ask.frames:
        reply = await http(address, ask.method, ask.target, token=token, body=ask.body, headers=dict(ask.headers))
        return reply.status, reply.body.decode()
    answers = []
    async with welcomed(address, token=token) as talk:
        for frame in ask.frames:
            await talk.say(**{"kind": frame["type"], **{k: v for k, v in frame.items() if k != "type"}})
            await talk.say("ping", id="last")
            frame_id, until = frame.get("id"), {"gw.tick", "gw.runs"} if frame["type"] == "watch" else {"gw.tick"}
            while until:
                message = await talk.hear()
                until -= (
                    {"gw.runs"}
                    if message["type"] == "gw.error" and message.get("id") == frame_id
                    else {message["type"]}
                )
                answers += [] if message["type"] == "gw.tick" else [message]
    return 0, json.dumps(answers, sort_keys=True)


async def moved(runtime: gr.Runtime, ids: Mapping[str, str]) -> dict[str, Any]:
    """What would move if ann's runs were touched."""
    facts: dict[str, Any] = {}
    for run in ids.values():
        record = await runtime.store.load(run, calls="all")
        facts[run] = None if record is None else (record.row.last_sequence, record.tickets, record.row.status)
    runs = await runtime.reader.page(gr.RunQuery(by="ann", limit=1000))
    return facts | {"all": sorted(one.info.run_id for one in runs.runs)}


async def strangers_ask(dice: Dice, tries: int) -> None:
    """One house with ann's runs, and many requests of strangers."""
    ids = {state: f"zqid-{dice.getrandbits(40):010x}" for state in STATES}
    agents, may_end = house()
    async with gr.open_runtime(agents=agents) as runtime:
        threads = await settled(runtime, ids)
        async with gateway(runtime, principals=people()) as address:
            for _ in range(tries):
                state, who = dice.choice(STATES), dice.choice(("bob", "bob", "eve"))
                make = dice.choice((over_http, over_http, over_a_socket))
                seed = dice.getrandbits(40)
                never = f"zqno-{dice.getrandbits(40):010x}", "th-" + "x" * (len(threads[state]) - 3)
                before = await moved(runtime, ids)
                status, text = await intrude(dice, address, who, ids[state], threads[state])
                own_ids = f"{ids[state]} {threads[state]}"
                other_ids = (SAID, *(one for one in ids.values() if one not in own_ids))
                must(not [one for one in other_ids if one in text], f"{who} intrudes into {state}: {text}")
                replies: list[tuple[int, str]] = []
                for run, thread in ((ids[state], threads[state]), never):
                    ask = make(Dice(seed), run, thread)
                    with trio.move_on_after(PATIENCE) as limit:
                        status, text = await answered(address, TOKENS[who], ask)
                        replies.append((status, text.replace(thread, "THREAD").replace(run, "RUN")))
                    must(not limit.cancelled_caught, f"{who} gets a stream of {state}: {ask}")
                must(status < 500, f"{who}, {ask}: {status} {text}")
                fault = f"{who} about {state}: {ask}\n{replies[0]}\n{replies[1]}"
                must(SAID not in replies[0][1], fault)
                must(not [one for one in ids.values() if one in replies[0][1]], fault)
                if "nothing" not in str(ask.body):
                    must(replies[0] == replies[1], fault)
                must(await moved(runtime, ids) == before, f"ann's runs moved: {fault}")
            may_end.set()


def routes(dice: Dice) -> None:
    """Strangers ask all routes about runs of others, in every state."""
    real(partial(strangers_ask, dice, 12))
