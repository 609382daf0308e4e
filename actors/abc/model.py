"""The port to a language model."""

from __future__ import annotations

import abc
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Literal

import attrs

from ..contract.messages import ModelRequest, ModelResponse, Usage
from ..contract.plain import JSONObject


@attrs.frozen
class TextDelta:
    """More text of the answer."""

    text: str


@attrs.frozen
class ReasoningDelta:
    """More reasoning of the model."""

    text: str


@attrs.frozen
class CallDelta:
    """More of a tool call that the model requests. No event shows it; the response has the whole call.

    A model that reports its calls while they stream lets a run know, after a broken stream, which calls had begun.

    Attributes:
        index: tells the calls of one answer apart.
        tool: the tool's name; "" if an earlier piece of this call had it.
        arguments: more of the arguments' JSON text.
    """

    index: int
    tool: str = ""
    arguments: str = ""


@attrs.frozen
class UsageReport:
    """The tokens of the request as far as its provider has reported them; a later report replaces an earlier one.

    No event shows it; the response has the usage of the whole request. A run that is stopped while the model writes
    counts the newest report.
    """

    usage: Usage


ModelDelta = TextDelta | ReasoningDelta | CallDelta
ModelEvent = TextDelta | ReasoningDelta | CallDelta | UsageReport | ModelResponse


class Model(abc.ABC):
    """A streaming port to a language model.

    `stream` opens one request. The iterator yields deltas and, as its last item, exactly one `ModelResponse`. Leaving
    the context closes the connection before it returns, also on cancellation. A model holds no state of a run: the
    request carries all of it.

    Attributes:
        name: names the model in events, in the agent's digest and in messages.
        structured: "prompt": for an agent with an output type, the system text asks for JSON of its schema. "native":
            the model itself passes `request.output_schema` to its provider.
        input_schema: JSON Schema of a run's input, for a model that reads the input as the JSON text of an object, as
            that of `tool_agent` does; None: the input is any text. Protocols that offer agents as tools (MCP) show the
            schema to their clients and check what these send.
    """

    name: str = "model"
    structured: Literal["prompt", "native"] = "prompt"
    input_schema: JSONObject | None = None

    @abc.abstractmethod
    def stream(self, request: ModelRequest) -> AbstractAsyncContextManager[AsyncIterator[ModelEvent]]:
        """Open one request.

        Raises:
            ModelError: a classified failure; from opening the stream or from any iteration.
        """

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Hold what the model shares between requests, such as connections; the default holds nothing.

        A runtime enters the context before its first request to the model and leaves it after its last run has stopped,
        both in one task. On leaving, the task is cancelled: shield and bound what has to be awaited there. `stream`
        also works outside of this context.

        Raises:
            ModelError: a classified failure of the request that opens the model; a later request tries again.
        """
        yield

    def check(self, settings: JSONObject) -> str | None:
        """Return why the model cannot be asked with an agent's settings, and what to do; None if it can.

        Asked when a run starts or is taken up. Pure: no network.
        """
        return None
