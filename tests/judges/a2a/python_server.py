"""An agent on the official Python server of A2A, in a process of its own: `python python_server.py PORT COUNT_FILE`.

The text of a message says what the agent does: "slow N" works for N seconds and says a number each tenth; "ask" asks
once, "ask twice" twice; "files" returns what it got, and a file of its own; "data" returns an object; "fail", "reject"
and "auth" end or wait that way; anything else is repeated. Each executed message is a line of COUNT_FILE.
"""

import asyncio  # noqa: TID251 - the judge's own loop, in a process of its own
import sys

import uvicorn
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes, create_rest_routes
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import a2a_pb2 as pb
from google.protobuf.json_format import ParseDict
from google.protobuf.struct_pb2 import Value
from starlette.applications import Starlette

PORT, COUNT, BINDING = int(sys.argv[1]), sys.argv[2], sys.argv[3] if len(sys.argv) > 3 else "HTTP+JSON"


def count(line: str) -> None:
    """Note what was executed."""
    with open(COUNT, "a") as file:
        file.write(f"{line}\n")


def text(value: str) -> pb.Part:
    return pb.Part(text=value)


class Work(AgentExecutor):
    """Does what the text says."""

    async def execute(self, context: RequestContext, queue: EventQueue) -> None:
        words = context.get_user_input()
        count(f"{context.message.message_id} {words!r}")
        asked = 0
        if context.current_task is None:
            task = pb.Task(id=context.task_id, context_id=context.context_id, history=[context.message])
            task.status.state = pb.TASK_STATE_SUBMITTED
            await queue.enqueue_event(task)
        else:
            first = context.current_task.history[0].parts[0].text
            asked = sum(message.role == pb.ROLE_USER for message in context.current_task.history)
            if first == "ask twice" and asked < 2:
                words = "ask"
        update = TaskUpdater(queue, context.task_id, context.context_id)
        await update.start_work()
        await self.work(words, context, update)

    async def work(self, words: str, context: RequestContext, update: TaskUpdater) -> None:
        if words.startswith("ask"):
            await update.requires_input(update.new_agent_message([text("which order?")]))
            return
        if words == "auth":
            await update.requires_auth(update.new_agent_message([text("log in there")]))
            return
        if words == "fail":
            await update.failed(update.new_agent_message([text("no tea left")]))
            return
        if words == "reject":
            await update.reject(update.new_agent_message([text("not my work")]))
            return
        if words.startswith("slow"):
            for number in range(int(float(words.split()[1]) * 10)):
                await update.add_artifact([text(f"{number} ")], artifact_id="out", append=number > 0)
                await asyncio.sleep(0.1)
        elif words == "files":
            got = [part for part in context.message.parts if part.HasField("raw")]
            facts = ", ".join(f"{part.filename} {part.media_type} {len(part.raw)}" for part in got)
            await update.add_artifact([text(f"got: {facts}")], artifact_id="out")
            file = pb.Part(raw=b"tea,3\n", media_type="text/csv", filename="menu.csv")
            linked = pb.Part(url="https://shop.example/tea.png", media_type="image/png")
            await update.add_artifact([file, linked], artifact_id="menu")
        elif words.endswith("data"):
            await update.add_artifact([pb.Part(data=ParseDict({"tea": 3}, Value()))], artifact_id="out")
        else:
            await update.add_artifact([text(f"done: {words}")], artifact_id="out")
        await update.complete()

    async def cancel(self, context: RequestContext, queue: EventQueue) -> None:
        count(f"cancel {context.task_id}")
        await TaskUpdater(queue, context.task_id, context.context_id).cancel()


url = f"http://127.0.0.1:{PORT}"
interfaces = {
    "HTTP+JSON": pb.AgentInterface(url=url, protocol_binding="HTTP+JSON", protocol_version="1.0"),
    "JSONRPC": pb.AgentInterface(url=f"{url}/rpc", protocol_binding="JSONRPC", protocol_version="1.0"),
}
card = pb.AgentCard(
    name="work",
    description="test",
    version="1",
    default_input_modes=["text/plain"],
    default_output_modes=["text/plain"],
    capabilities=pb.AgentCapabilities(streaming=True),
    supported_interfaces=[interfaces.pop(BINDING), *interfaces.values()],
    skills=[pb.AgentSkill(id="w", name="w", description="w", tags=["w"])],
)
handler = DefaultRequestHandler(agent_executor=Work(), task_store=InMemoryTaskStore(), agent_card=card)
app = Starlette(
    routes=[*create_agent_card_routes(card), *create_jsonrpc_routes(handler, "/rpc"), *create_rest_routes(handler)]
)
uvicorn.run(app, host="127.0.0.1", port=PORT, log_level="warning")
