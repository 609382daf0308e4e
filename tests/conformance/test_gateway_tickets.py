"""Open tickets of all runs over the gateway: pages over HTTP, and the same list live over the WebSocket."""

import trio
from tests.support.gateway import TOKEN, gateway, http, welcomed

import greenroom as gr
from greenroom.testing import FunctionModel, call
from greenroom.transport import Limits, Principal
from greenroom.transport.protocol.limits import ROW_BYTES

ANN = "a-token-of-ann-herself"
STARTER = "a-token-that-may-only-start"


@gr.tool(needs_approval=True, effect="write")
async def refund(order: str) -> str:
    return order


@gr.tool(needs_approval=True)
async def mail(text: str) -> str:
    return text


def asking(key, *calls):
    def answer(request):
        return "done" if any(message.role == "tool" for message in request.messages) else list(calls)

    return gr.Agent(key, model=FunctionModel(answer), tools=[refund, mail], execution="parallel_streaming")


CLERK = asking("clerk", call("refund", order="7"), call("mail", text="Your money is on its way."))
BULKY = asking("bulky", call("mail", text="m" * 2 * ROW_BYTES))
BOSS = gr.Agent(
    "boss",
    model=FunctionModel(
        lambda request: "done" if any(one.role == "tool" for one in request.messages) else call("clerk", input="go")
    ),
    tools=[CLERK.as_tool()],
)
PEOPLE = [
    Principal(name="operator", token=TOKEN),
    Principal(name="ann", token=ANN, scopes={"follow", "decide"}, sees=lambda info: info.by == "ann"),
    Principal(name="starter", token=STARTER, scopes={"start"}),
]


async def asked(runtime, *starts):
    """Runs that wait for people, one after the other: ids by their order."""
    runs = []
    for agent, by in starts:
        run = await runtime.start(agent, f"task of {by}", by=by)
        with trio.fail_after(60):
            await run.wait()
        runs.append(run.id)
    return runs


async def listed(address, token=TOKEN, query=""):
    """All tickets, page by page, and how long each page was."""
    tickets, sizes, cursor = [], [], ""
    while cursor is not None:
        reply = await http(address, "GET", f"/v1/tickets?{query}{cursor}", token=token)
        assert reply.status == 200, reply.body
        page = reply.json()
        tickets += page["tickets"]
        sizes.append(len(page["tickets"]))
        cursor = None if page["cursor"] is None else f"&cursor={page['cursor']}"
    return tickets, sizes


async def test_open_tickets_of_all_visible_runs_come_oldest_first_and_page_by_page():
    async with gr.open_runtime(agents=[CLERK]) as runtime, gateway(runtime, principals=PEOPLE) as address:
        runs = await asked(runtime, ("clerk", "ann"), ("clerk", "bob"), ("clerk", "ann"))
        tickets, sizes = await listed(address, query="limit=4")
        assert sizes == [4, 2]
        assert [ticket["run"] for ticket in tickets] == [run for run in runs for _ in range(2)]
        assert tickets[0]["arguments"] == {"order": "7"}
        assert (tickets[0]["by"], tickets[0]["agent"], tickets[0]["title"]) == ("ann", "clerk", "task of ann")
        own, sizes = await listed(address, ANN, query="limit=1&tool=mail&order=newest")
        assert [(ticket["run"], ticket["tool"]) for ticket in own] == [(runs[2], "mail"), (runs[0], "mail")]
        assert sizes == [1, 1]
        foreign = (await http(address, "GET", "/v1/tickets?limit=1", token=TOKEN)).json()["cursor"]
        reply = await http(address, "GET", f"/v1/tickets?cursor={foreign}", token=ANN)
        assert (reply.status, reply.json()["error"]["code"]) == (422, "unprocessable")
        assert (await http(address, "GET", "/v1/tickets?order=best")).status == 422
        assert (await http(address, "GET", "/v1/tickets", token=STARTER)).status == 403


async def test_a_question_of_a_child_run_is_listed_once_and_a_large_one_without_its_arguments():
    async with gr.open_runtime(agents=[CLERK, BOSS, BULKY]) as runtime, gateway(runtime) as address:
        await asked(runtime, ("boss", "ann"), ("bulky", "ann"))
        tickets, _ = await listed(address)
        assert [(ticket["agent"], ticket["tool"], ticket["whole"]) for ticket in tickets] == [
            *(("clerk", tool, True) for tool in ("refund", "mail")),
            ("bulky", "mail", False),
        ]
        assert tickets[-1]["arguments"] == {}
        (view,) = (await http(address, "GET", f"/v1/runs/{tickets[-1]['run']}")).json()["tickets"]
        assert len(view["arguments"]["text"]) == 2 * ROW_BYTES


async def test_a_watched_list_of_tickets_has_each_change_of_a_visible_run():
    limits = Limits(watch_seconds=0.02)
    async with (
        gr.open_runtime(agents=[CLERK]) as runtime,
        gateway(runtime, principals=PEOPLE, limits=limits) as address,
        welcomed(address, token=ANN) as talk,
    ):
        (first,) = await asked(runtime, ("clerk", "ann"))
        await talk.say("watchTickets", id="w", tool="refund")
        page = (await talk.until("gw.tickets"))[-1]
        assert [ticket["run"] for ticket in page["tickets"]] == [first]
        hidden, second = await asked(runtime, ("clerk", "bob"), ("clerk", "ann"))
        seen = await heard(talk, second, 1)
        assert hidden not in {frame["run"] for frame in seen if frame["type"] == "gw.asked"}
        ticket = seen[-1]["tickets"][0]
        print_of = ticket["fingerprint"]
        await talk.say("decide", id="d", run=second, target=ticket["ticketId"], action="cancel", fingerprint=print_of)
        await heard(talk, second, 0)
        await talk.say("unwatch", id="w")
        await talk.until("gw.unwatched")


async def heard(talk, run, count):
    """The frames up to the one that says that so many tickets of a run are in the list."""
    frames = []
    with trio.fail_after(60):
        while True:
            frames += await talk.until("gw.asked")
            if (frames[-1]["run"], len(frames[-1]["tickets"])) == (run, count):
                return frames
