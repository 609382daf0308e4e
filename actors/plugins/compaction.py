"""`Compaction`: a model sums up the older messages of a thread, and requests have the summary in their place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import attrs

from ..abc import Model
from ..contract.messages import Message
from ..errors import AgentDefinitionError
from ..state.keys import ReservedKey
from .contexts import PhaseContext
from .history import Unit, units
from .mutation import Mutation
from .plugin import Plugin
from .window import count_of, limit_of

ORDER: Final = (
    "Sum up the conversation below for an assistant that continues it and will not see it. Keep what was asked and "
    "decided, facts, names, numbers, and what is still open. Answer with the summary alone."
)
"""The instructions of the model that sums up."""


@attrs.frozen
class Summary:
    """The older part of a thread.

    Attributes:
        text: the summary.
        upto: id of the newest message that it covers.
    """

    text: str
    upto: str


SUMMARY: Final = ReservedKey[Summary | None]("greenroom.summary", Summary | None, default=None, scope="thread")
"""The newest summary of a thread."""


class Compaction(Plugin):
    """Sums up older messages when a thread grows too long.

    Once the messages that no summary covers have more than `above` tokens, a model sums up all of them but the newest,
    together with the summary so far. The summary is kept with the thread (`greenroom.summary`); requests have it as a
    user message before the newest messages. The thread keeps everything. A summary that fails is reported
    (run.degraded), and the request is made with all messages.

    Args:
        above: tokens of messages without a summary, 1 or more.
        keep: the newest messages that are never summed up, 1 or more.
        model: sums up: a Model or "provider:name"; None: the agent's own.
        count: message -> its tokens; default: a quarter of its characters, and 1,000 for each image or file.

    Raises:
        AgentDefinitionError: a number is out of range, or the model is neither.
    """

    name = "Compaction"
    timeout = 120.0
    on_error = "ignore"
    state = (SUMMARY,)

    def __init__(
        self,
        above: int,
        *,
        keep: int = 6,
        model: Model | str | None = None,
        count: Callable[[Message], int] | None = None,
    ) -> None:
        if not isinstance(model, Model | str | None):
            raise AgentDefinitionError(f'Compaction(model={model!r}): give a Model object, a "provider:name", or None')
        self._above = limit_of("Compaction(above=", above) or 1
        self._keep = limit_of("Compaction(keep=", keep) or 1
        self._model = model
        self._count = count_of("Compaction", count)

    def __repr__(self) -> str:
        return f"Compaction(above={self._above}, keep={self._keep})"

    async def before_inference(self, ctx: PhaseContext) -> Mutation | None:
        """Put the summary in place of the messages that it covers, after a new one if it is due."""
        history, summary = units(ctx.messages), ctx.state[SUMMARY]
        ends = [unit[-1].id for unit in history]
        begin = ends.index(summary.upto) + 1 if summary is not None and summary.upto in ends else 0
        if not begin:
            summary = None  # of another history
        change, until = Mutation(), self._due(history, begin)
        if until > begin:
            older = [message for unit in history[begin:until] for message in unit]
            words = transcript(older) if summary is None else f"{summary.text}\n\n{transcript(older)}"
            order = Message(id="order", role="system", content=ORDER)
            text = Message(id="conversation", role="user", content=words)
            answer = await ctx.ask_model(order, text, model=self._model)
            change = change.spend(answer.usage, model=answer.model)
            if new_text := "".join(answer.text).strip():
                summary, begin = Summary(text=new_text, upto=ends[until - 1]), until
                change = change.set(SUMMARY, summary)
        if summary is None:
            return change if change.spent else None
        covered_ids = [message.id for unit in history[:begin] for message in unit]
        content = f"Summary of the conversation so far:\n{summary.text}"
        return change.hide_messages(*covered_ids).add_message(content, role="user", placement="session")

    def _due(self, history: list[Unit], begin: int) -> int:
        """Return the number of units that a new summary covers; `begin` if none is due."""
        if sum(self._count(message) for unit in history[begin:] for message in unit) <= self._above:
            return begin
        until, kept_messages = len(history), 0
        while until > begin and kept_messages < self._keep:
            until -= 1
            kept_messages += len(history[until])
        return until


def transcript(messages: list[Message]) -> str:
    """Return messages as text: a line for each, with the calls that were made and the facts of images and files."""
    lines = []
    for message in messages:
        calls = "".join(f" [calls {call.tool} with {dict(call.arguments)}]" for call in message.calls)
        parts = "".join(f" [{part.line()}]" for part in message.parts)
        lines.append(f"{message.role}: {message.content}{parts}{calls}")
    return "\n".join(lines)
