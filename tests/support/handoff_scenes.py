"""Scenes with a handoff: the agents that take over, and what they were asked."""

from collections.abc import Sequence
from typing import Any

import attrs
import trio

import greenroom as gr
from greenroom.testing import ScriptedModel, call

from .scene_tools import TOOLS, Context
from .scenes import Act, Life, Scene

H = call("transfer_to_other", id="H")


def other(*script: Any, key: str = "other", **options: Any) -> gr.Agent[Any]:
    """An agent that takes over, with the whole cast as its tools."""
    return gr.Agent(key, model=ScriptedModel(list(script)), description="Knows.", **{"tools": TOOLS, **options})


def read(agent: gr.Agent[Any], number: int = -1) -> list[str]:
    """What the model of an agent was sent: "role: text", of calls and results with their ids."""
    request: gr.ModelRequest = agent.model.requests[number]  # type: ignore[union-attr]
    return [_line(message) for message in request.messages]


def _line(message: gr.Message) -> str:
    who = message.call_id if message.role == "tool" else message.role
    calls = f"({', '.join(one.call_id for one in message.calls)})" if message.calls else ""
    return f"{who}: {' '.join(filter(None, [message.content, calls]))}".strip()


@attrs.define(eq=False)
class Callback:
    """The callback of a scene: notes each call of it, and the effect that it has in the middle of its time."""

    seconds: float = 2.0
    error: BaseException | None = None
    begun: int = 0
    effects: int = 0
    given: list[Any] = attrs.field(factory=list)

    async def plain(self, ctx: Context) -> None:
        """Without input."""
        await self._work()

    async def typed(self, ctx: Context, given: Any) -> None:
        """With input."""
        self.given.append(given)
        await self._work()

    async def _work(self) -> None:
        self.begun += 1
        await trio.sleep(self.seconds / 2)
        self.effects += 1
        await trio.sleep(self.seconds / 2)
        if self.error is not None:
            raise self.error


def agents_of(life: Life) -> list[tuple[int, str | None]]:
    """Step -> the agent that its event names."""
    return [(payload["step"], payload.get("agent")) for payload in life.payloads("step.started")]


def handed(life: Life) -> list[tuple[str, str, str, int]]:
    """From, to, call and step of each handoff."""
    return [(p["fromAgent"], p["toAgent"], p["callId"], p["step"]) for p in life.payloads("handoff")]


def only(*roles: str) -> Any:
    """An input filter that keeps the messages of some roles."""

    def keep(messages: Sequence[gr.Message]) -> list[gr.Message]:
        return [message for message in messages if message.role in roles]

    return keep


def fork(step: int, run_id: str = "f") -> Act:
    """The run is forked, and the fork works to its rest."""

    async def act(scene: Scene) -> None:
        scene.others[run_id] = await scene.runtime.fork(scene.run.id, step=step, new_run_id=run_id)
        await scene.others[run_id].wait()

    return act
