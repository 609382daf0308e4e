"""`ContextWindow`: a request has the newest messages of the thread, as far as they fit."""

from __future__ import annotations

from collections.abc import Callable

from ..contract.messages import Message
from ..errors import AgentDefinitionError
from .contexts import PhaseContext
from .history import Unit, estimated_tokens, units
from .mutation import Mutation
from .plugin import Plugin


class ContextWindow(Plugin):
    """Leaves the oldest messages of the thread out of a request that would be too long.

    The newest messages that fit are sent, and always the newest message and the newest one of the user. A message with
    calls and the answers to them go together. The thread keeps everything; `run.context.trimmed` counts the messages
    that were left out. The system text and messages of other hooks are not counted.

    Args:
        tokens: that the messages may have; None: no limit.
        messages: how many messages are sent; None: no limit.
        count: message -> its tokens; default: a quarter of its characters, and 1,000 for each image or file.

    Raises:
        AgentDefinitionError: nothing is limited, or a number is out of range.
    """

    name = "ContextWindow"

    def __init__(
        self,
        tokens: int | None = None,
        *,
        messages: int | None = None,
        count: Callable[[Message], int] | None = None,
    ) -> None:
        if tokens is None and messages is None:
            raise AgentDefinitionError("ContextWindow() limits nothing; give tokens= or messages=")
        self._tokens = limit_of("ContextWindow(tokens=", tokens)
        self._messages = limit_of("ContextWindow(messages=", messages)
        self._count = count_of("ContextWindow", count)

    def __repr__(self) -> str:
        return f"ContextWindow(tokens={self._tokens}, messages={self._messages})"

    async def before_inference(self, ctx: PhaseContext) -> Mutation | None:
        """Hide the messages that do not fit."""
        history = units(ctx.messages)
        kept_units = self._kept(history)
        hidden_ids = [message.id for index, unit in enumerate(history) if index not in kept_units for message in unit]
        return Mutation().hide_messages(*hidden_ids) if hidden_ids else None

    def _kept(self, history: list[Unit]) -> set[int]:
        question = max((index for index, unit in enumerate(history) if unit[0].role == "user"), default=-1)
        indexes = {question, len(history) - 1} - {-1}
        size, number = 0, 0
        for index in indexes:
            size, number = size + self._size(history[index]), number + len(history[index])
        for index in range(len(history) - 1, -1, -1):
            if index in indexes:
                continue
            size, number = size + self._size(history[index]), number + len(history[index])
            if (self._tokens is not None and size > self._tokens) or (
                self._messages is not None and number > self._messages
            ):
                break
            indexes.add(index)
        while indexes and history[min(indexes)][0].role != "user" and question >= 0:  # providers begin with the user
            indexes.remove(min(indexes))
        return indexes

    def _size(self, unit: Unit) -> int:
        return sum(map(self._count, unit))


def count_of(plugin: str, count: Callable[[Message], int] | None) -> Callable[[Message], int]:
    """Return the function that counts the tokens of a message.

    Raises:
        AgentDefinitionError: the value is not a function.
    """
    if count is not None and not callable(count):
        raise AgentDefinitionError(f"{plugin}(count={count!r:.200}): give a function, (message) -> tokens, or None")
    return count or estimated_tokens


def limit_of(what: str, value: int | None) -> int | None:
    """Return a limit of at least 1, or None.

    Raises:
        AgentDefinitionError: it is neither.
    """
    limit: object = value
    if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool) or limit < 1):
        raise AgentDefinitionError(f"{what}{value!r}): give a whole number, 1 or more, or None")
    return value
