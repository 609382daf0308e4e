"""A model that calls every tool once, with arguments made from the tool's schema, and then answers.

    agent = gr.Agent("a", tools=[search, book], output_type=Trip, model=AutoModel())

A first test of an agent: do the tools run with valid arguments, does the answer fit the output type?
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal

import msgspec

from ..contract.ids import canonical_json
from ..contract.messages import ModelRequest
from ..contract.plain import JSONObject, JSONValue
from ..errors import UsageError
from .models import KEEP, RUNS, Call, Part, Text, _TestModel
from .schema_values import value_for

_ANSWER: Final = "Done."


class AutoModel(_TestModel):
    """A model that calls each offered tool once per run and agent, all in its first answer, and then ends the run.

    Arguments are valid against the tool's schema and depend on the seed, the agent and the tool only, so that a run
    repeats them, also after a restart. A step that offers further tools gets calls of those. A request whose
    `tool_choice` is "none" gets the final answer, one that names a tool gets a call of that tool alone.

    Args:
        call_tools: "all", or the names of the tools to call; a tool that is not offered is not called.
        output: the final answer: a str as it is, other JSON data as JSON. None: "Done.", or for an output type a value
            made from its schema.
        seed: chooses other arguments and another answer.
        chunk: characters per delta; None streams the answer as one delta.
        keep: how many of the newest requests are kept (1,000); None: all.

    Raises:
        UsageError: an argument is invalid. Streaming raises UnsupportedSchema for a tool or an output type without a
            value, which ends the run as model_error.
    """

    name = "auto"

    def __init__(
        self,
        call_tools: Literal["all"] | Iterable[str] = "all",
        output: JSONValue = None,
        seed: int = 0,
        *,
        chunk: int | None = None,
        keep: int | None = KEEP,
    ) -> None:
        super().__init__(chunk, keep)
        if isinstance(call_tools, str) and call_tools != "all":
            raise UsageError(f"call_tools={call_tools!r}: give 'all' or a list of tools' names")
        names = () if call_tools == "all" else tuple(call_tools)
        wrong = next((name for name in names if not isinstance(name, str)), None)
        if wrong is not None:
            raise UsageError(f"call_tools has {wrong!r}; give the names of tools")
        try:
            canonical_json(output)
        except (TypeError, ValueError) as error:
            raise UsageError(f"output={output!r:.200}: give JSON data ({error})") from error
        self._only = None if call_tools == "all" else frozenset(names)
        self._output = output
        self._seed = seed
        self._answers: dict[tuple[str, str], dict[int, tuple[str, ...]]] = {}  # (run, agent) -> tools of each answer

    async def _step(self, request: ModelRequest) -> tuple[Part, ...]:
        answers = self._answers_of(request)
        names = {tool for tools in answers.values() for tool in tools}
        if request.model_attempts and not answers:  # the process has been restarted since
            names = _calls_in(request)
        usable = [tool for tool in request.tools if self._only is None or tool.name in self._only]
        if request.tool_choice == "none":
            usable = []
        elif any(tool.name == request.tool_choice for tool in usable):
            usable = [tool for tool in usable if tool.name == request.tool_choice]
        calls = tuple(
            Call(tool.name, self._value(request, tool.name, tool.schema)) for tool in usable if tool.name not in names
        )
        answers[request.model_attempts] = tuple(call.tool for call in calls)
        return calls or (Text(self._answer(request)),)

    def _answers_of(self, request: ModelRequest) -> dict[int, tuple[str, ...]]:
        """Return the tools that this agent has called in this run, by the number of the answer.

        An answer at or after the present position has been lost, with a process that ended before its commit.
        """
        who = (request.run_id, request.agent)
        answers = self._answers.pop(who, {})
        if len(self._answers) >= RUNS:
            del self._answers[next(iter(self._answers))]
        earlier_answers = {number: tools for number, tools in answers.items() if number < request.model_attempts}
        self._answers[who] = earlier_answers  # as its newest entry
        return earlier_answers

    def _value(self, request: ModelRequest, name: str, schema: JSONObject) -> JSONObject:
        value = value_for(schema, f"{self._seed} {request.agent} {name}")
        return value if isinstance(value, dict) else {}

    def _answer(self, request: ModelRequest) -> str:
        if isinstance(self._output, str):
            return self._output
        if self._output is not None:
            return msgspec.json.encode(self._output).decode()
        if request.output_schema is None:
            return _ANSWER
        return msgspec.json.encode(value_for(request.output_schema, f"{self._seed} {request.agent}")).decode()


def _calls_in(request: ModelRequest) -> set[str]:
    """Return the tools that messages of this run have called; hooks and filters may hide some."""
    ours = (one for one in request.messages if one.producer is not None and one.producer.run_id == request.run_id)
    return {call.tool for message in ours for call in message.calls}
