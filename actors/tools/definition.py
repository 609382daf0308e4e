"""`tool`: turn a typed function into a tool for a model. Every fault is reported at the definition."""

from __future__ import annotations

import functools
import inspect
import math
import re
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Final, Generic, Literal, ParamSpec, TypedDict, TypeVar, Unpack, overload

import attrs

from greenroom.supervision.fields import did_you_mean

from ..contract.messages import ToolInfo
from ..contract.plain import JSONObject, JSONValue, encodable, exact
from ..contract.spec import HANDOFF, Concurrency, GateKind, ToolSpec
from ..errors import ToolDefinitionError
from ..plugins.guardrails import Guardrail, ToolInputGuardrail, ToolOutputGuardrail, check_guardrails
from .arguments import Arguments, GivenArguments, given_arguments, read_arguments
from .context import SyncToolContext, ToolContext
from .docstrings import first_paragraph
from .named_deps import ANY, named_deps
from .preparing import PrepareTool

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

Predicate = Callable[[ToolContext, JSONObject], bool | Awaitable[bool]]
"""(ctx, arguments as the body gets them, defaults filled in) -> whether a person must approve."""
Enabled = Callable[[Any], bool | Awaitable[bool]]
"""(`PhaseContext`) -> whether the tool is offered."""

EFFECTS: Final = ("read", "write", "patch", "shell", "network", "publish", "deploy", "secret")
"""The effect classes that policies know; a tool may use another identifier."""

_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_LONGEST_EFFECT: Final = 64
_CHOICES: Final[Mapping[str, tuple[str | None, ...]]] = {
    "replay": ("unsafe", "safe"),
    "concurrency": ("shared", "ordered", "exclusive"),
    "on_error": ("return", "raise"),
    "on_timeout": (None, "return", "raise"),
    "on_conflict": ("keep", "retry"),
    "loop": ("trio", "asyncio"),
}


_GUARDS: Final[Mapping[str, type[Guardrail]]] = {
    "input_guardrails": ToolInputGuardrail,
    "output_guardrails": ToolOutputGuardrail,
}


class ToolOptions(TypedDict, total=False):
    """The options of `tool`, documented there."""

    name: str
    description: str
    needs_approval: bool | Predicate
    replay: Literal["unsafe", "safe"]
    effect: str
    concurrency: Concurrency
    timeout: float | None
    on_error: Literal["return", "raise"]
    on_timeout: Literal["return", "raise"] | None
    on_conflict: Literal["keep", "retry"]
    grace: float
    background: bool
    input_guardrails: Sequence[ToolInputGuardrail[Any, Any]]
    output_guardrails: Sequence[ToolOutputGuardrail[Any, Any]]
    is_enabled: bool | Enabled
    prepare: PrepareTool | None
    loop: Literal["trio", "asyncio"]


@attrs.frozen(eq=False, kw_only=True)
class Tool(Generic[P, R_co]):
    """A function that a model can call; made by `tool`.

    Calling the object calls the function itself, as in a unit test.

    Attributes:
        function: the body.
        name: the name for the model.
        description: the description for the model; default: the first paragraph of the docstring.
        needs_approval: True, False, or a predicate that is called per call.
        replay: "safe" if the runtime may run the body again after a crash without a question.
        effect: its effect class.
        concurrency: shared, ordered or exclusive.
        timeout: seconds for one attempt; None for no limit.
        on_error: "return" answers the model with the failure, "raise" ends the run.
        on_timeout: the same for a timeout; None: as `on_error`.
        on_conflict: if another call wrote the same state key: "keep" the result and drop this call's writes, or
            "retry".
        grace: seconds for the body to end after a cancel.
        background: a call ends immediately, and the body runs as a task of the run.
        input_guardrails: judge the arguments of each call, in order, before its other gates.
        output_guardrails: judge the result of each body, in order, before it is stored.
        is_enabled: True, False, or a predicate that is called in each step.
        prepare: an async function that is called once before the first step of a run; None: nothing to prepare.
        loop: "asyncio" if the body is a coroutine function of asyncio, which runs in the loop of the host.
        plugin: the name of a plugin without which no agent may have the tool; None: any agent may.
        secrets: values that the body uses and no event may show; a runtime masks those of the agents it is opened with.
        is_async: runs in the event loop; otherwise in a worker thread.
        deps_type: the dependencies that the context of the body names, as `ToolContext[Deps]`; Any if none.
    """

    function: Callable[P, R_co]
    name: str
    description: str = ""
    needs_approval: bool | Predicate = False
    replay: Literal["unsafe", "safe"] = "unsafe"
    effect: str = "read"
    concurrency: Concurrency = "shared"
    timeout: float | None = None
    on_error: Literal["return", "raise"] = "return"
    on_timeout: Literal["return", "raise"] | None = None
    on_conflict: Literal["keep", "retry"] = "keep"
    grace: float = 5.0
    background: bool = False
    input_guardrails: tuple[ToolInputGuardrail[Any, Any], ...] = ()
    output_guardrails: tuple[ToolOutputGuardrail[Any, Any], ...] = ()
    is_enabled: bool | Enabled = True
    prepare: PrepareTool | None = None
    loop: Literal["trio", "asyncio"] = "trio"
    plugin: str | None = None
    secrets: tuple[str, ...] = attrs.field(default=(), repr=False)
    is_async: bool
    _arguments: Arguments | GivenArguments = attrs.field(repr=False)
    deps_type: object = ANY

    @staticmethod
    def from_schema(
        function: Callable[[Any, dict[str, Any]], Any], *, schema: JSONObject, **options: Unpack[ToolOptions]
    ) -> Tool[..., Any]:
        """Make a tool whose parameters are a JSON Schema, for tools that are known at run time only.

        Args:
            function: (ctx, arguments), async or sync. `arguments` is a dict of plain data that satisfies the schema, a
                copy; defaults of the schema are not filled in.
            schema: JSON Schema of the arguments object; `{"type": "object", ...}`. References are resolved inside it.
            options: as of `tool`; also `name` and `description` have the same defaults.

        Raises:
            ToolDefinitionError: the function, the schema or an option is invalid; names the fault.
        """
        return _define(function, options, {}, schema=schema)

    def __repr__(self) -> str:
        return f"<Tool {self.name!r}>"

    @property
    def __wrapped__(self) -> Callable[P, R_co]:
        """The function, for `inspect.signature(tool)` and `help`."""
        return self.function

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Call the function itself: no check, no thread, no timeout."""
        return self.function(*args, **kwargs)

    @property
    def takes_context(self) -> bool:
        """True if the first parameter is the context."""
        return self._arguments.context is not None

    @property
    def schema(self) -> JSONObject:
        """JSON Schema of the arguments object. Shared; do not change it."""
        return self._arguments.schema

    @property
    def gate(self) -> GateKind:
        """`needs_approval` as the engine sees it."""
        if isinstance(self.needs_approval, bool):
            return "always" if self.needs_approval else "never"
        return "ask"

    @property
    def ends_on_timeout(self) -> bool:
        """True if a timeout ends the run: by `on_timeout`, or by `on_error` if that is None."""
        return (self.on_timeout or self.on_error) == "raise"

    @property
    def info(self) -> ToolInfo:
        """The tool as the model sees it."""
        return ToolInfo(name=self.name, description=self.description, schema=self.schema)

    @property
    def spec(self) -> ToolSpec:
        """The tool as the engine sees it."""
        return ToolSpec(
            name=self.name,
            effect=self.effect,
            replay_safe=self.replay == "safe",
            gate=self.gate,
            concurrency=self.concurrency,
            fatal=self.on_error == "raise",
            grace=self.grace,
            on_conflict=self.on_conflict,
            background=self.background,
            output=not self.background,
            guarded=bool(self.input_guardrails),
            conditional=self.is_enabled is not True,
            prepares=self.prepare is not None,
            check=self._arguments.check,
        )

    def check(self, arguments: JSONObject) -> str | None:
        """Return None, or the fault of the arguments with its path. Pure."""
        return self._arguments.check(arguments)

    def convert(self, arguments: JSONObject) -> dict[str, JSONValue]:
        """Return JSON arguments as keyword arguments in the annotated types; missing ones are left to the defaults.

        Raises:
            ArgumentsError: the arguments do not fit; the message names the path.
        """
        return self._arguments.convert(arguments)

    def complete(self, arguments: JSONObject) -> dict[str, JSONValue]:
        """Return the result of `convert` with the function's defaults filled in, as a predicate gets it.

        Raises:
            ArgumentsError: the arguments do not fit; the message names the path.
        """
        return self._arguments.complete(arguments)

    def call(self, ctx: ToolContext | SyncToolContext, keywords: Mapping[str, Any]) -> Any:
        """Call the function with the result of `convert`; returns the coroutine of an async tool or a sync result.

        The function of a tool that was made from a schema gets the arguments as one dict.
        """
        function: Callable[..., Any] = self.function
        if isinstance(self._arguments, GivenArguments):
            return function(ctx, keywords)
        return function(**keywords) if self._arguments.context is None else function(ctx, **keywords)


@overload
def tool(function: Callable[P, R], /, **options: Unpack[ToolOptions]) -> Tool[P, R]: ...
@overload
def tool(**options: Unpack[ToolOptions]) -> Callable[[Callable[P, R]], Tool[P, R]]: ...
def tool(function: Callable[..., Any] | None = None, /, **options: Unpack[ToolOptions]) -> Any:
    """Make a function a tool: `@tool`, `@tool(option=...)`, or `tool(function, option=...)` for an imported function.

    Every parameter needs an annotation; the first one may be the context (annotated `ToolContext[Deps]`, in a sync
    function `SyncToolContext[Deps]`, or named ctx without annotation). Sync functions run in a worker thread, and get a
    `SyncToolContext` regardless of their annotation.

    Args:
        function: the body; async or sync.
        options: all optional.
            name: `^[a-zA-Z0-9_-]{1,64}$`; default: the function's.
            description: for the model; default: the first paragraph of the docstring.
            needs_approval: a person must approve each call; or a predicate(ctx, arguments), sync or async, that decides
                per call. It gets the arguments as the body does, defaults filled in, and is called again when the state
                has changed before the call begins. A predicate that fails, or takes 30 s, means: approval is needed.
            replay: "safe" if the runtime may run the body again after a crash without a question; default "unsafe".
            effect: read (default), write, patch, shell, network, publish, deploy, secret, or another identifier.
            concurrency: shared (default), ordered (one at a time in model order), exclusive (alone).
            timeout: seconds for one attempt, including the wait for a worker thread; None (default): no limit.
            on_error: "return" (default) answers the model with the failure; "raise" ends the run.
            on_timeout: the same for a timeout; None (default): as on_error.
            on_conflict: if parallel calls wrote one exclusive state key: "keep" (default) the result of the later call,
                drop its writes and inform the model; "retry" runs that call again alone, and needs replay="safe".
            grace: seconds for the body to end after a cancel or timeout; default 5.0.
            background: a call is checked, gated and approved like any other, and then ends immediately with the id of a
                task: the body runs beside the steps of the run, and the model gets its result as a message. Default
                False.
            input_guardrails: functions decorated with `tool_input_guardrail`, asked in order before every other gate of
                a call.
            output_guardrails: functions decorated with `tool_output_guardrail`, asked in order about the result of each
                body.
            is_enabled: whether the model is offered the tool: True (default), False, or a predicate(ctx), sync or
                async, with a `PhaseContext`. The predicate is called before each model request, and again when a call
                passes its gates: if the tool is disabled by then, the call fails (tool_disabled), and every other call
                of the step whose body has not begun is cancelled (turn_stopped). A predicate that fails, or takes
                30 s, means: not offered.
            prepare: async (ctx) -> `Preparation` or None, with a `PreparationContext`. It is called before the first
                step of each run whose agent, or an agent that the run may be handed over to, has the tool, and again if
                the process ends meanwhile. A `PreparationError` that it raises fails the run with the error's code, any
                other exception with tool_error, and 300 s with runtime_unavailable.
            loop: "trio" (default), or "asyncio" for a body that uses libraries of asyncio: each call is a task in the
                loop of a program that opened its runtime with `greenroom.aio.open_runtime`. The methods of its context
                are awaited there as anywhere; a cancel or timeout cancels the task, and the call ends with it. Other
                runtimes refuse the agent. For hooks and predicates there is `greenroom.aio.in_host`.

    Raises:
        ToolDefinitionError: the function cannot be a tool as it is written, or an option is invalid; names the fault
            and says what to write.
    """
    # annotations may use local names of the place of definition
    namespace = sys._getframe(1).f_locals
    if function is None:
        return lambda body: _define(body, options, namespace)
    return _define(function, options, namespace)


_FROM_SIGNATURE: Final[Any] = object()
"""In place of a schema: the parameters of the function are the arguments."""


def _define(
    function: Any, options: ToolOptions, namespace: Mapping[str, object], *, schema: Any = _FROM_SIGNATURE
) -> Tool[..., object]:
    if isinstance(function, Tool):
        raise ToolDefinitionError(f"{function.name!r} is a tool already; decorate it once")
    if isinstance(function, str):
        raise ToolDefinitionError(f"tool({function!r}): give the name as @tool(name={function!r})")
    name = _name(function, options.get("name"))
    _refuse_non_functions(function, name)
    _check_options(name, options)
    is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(inspect.unwrap(function))
    arguments: Arguments | GivenArguments
    if schema is _FROM_SIGNATURE:
        arguments = read_arguments(function, name, namespace)
    elif _takes(function, None, {}):
        arguments = given_arguments(schema, name, is_async=is_async)
    else:
        raise ToolDefinitionError(f"tool {name!r}: with a schema, write the function as (ctx, arguments)")
    if not is_async and options.get("loop") == "asyncio":
        way = "define it with async def; a sync function runs in a worker thread, and may call asyncio.run(...)"
        raise ToolDefinitionError(f"tool {name!r}, option loop='asyncio': {way}")
    if is_async and arguments.context is SyncToolContext:
        raise ToolDefinitionError(
            f"tool {name!r}: an async function gets a ToolContext; SyncToolContext is for sync ones"
        )
    own_settings: dict[str, Any] = {
        option: exact(value) if isinstance(value, str) else value for option, value in options.items()
    }
    for option in _GUARDS:
        if option in own_settings:
            own_settings[option] = tuple(own_settings[option])
    settings: dict[str, Any] = {"description": first_paragraph(function), **own_settings, "name": name}
    if not encodable(settings["description"]):
        raise ToolDefinitionError(f"tool {name!r}: its description has a lone surrogate; remove it")
    deps_type = named_deps(function, namespace)
    return Tool(function=function, is_async=is_async, arguments=arguments, deps_type=deps_type, **settings)


def _name(function: object, explicit: object) -> str:
    name = explicit if explicit is not None else getattr(function, "__name__", None)
    if name is None:
        raise ToolDefinitionError(f"{function!r} has no name of its own; give one: tool(..., name='...')")
    if explicit is None and name == "<lambda>":
        raise ToolDefinitionError("a lambda cannot be a tool (no annotations, no docstring); write a function with def")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ToolDefinitionError(
            f"tool name {name!r:.200}: use 1 to 64 of a-z A-Z 0-9 _ and -; give another one with name="
        )
    return exact(name)


def _refuse_non_functions(function: object, name: str) -> None:
    if not (inspect.isfunction(function) or inspect.ismethod(function) or isinstance(function, functools.partial)):
        raise ToolDefinitionError(f"tool {name!r}: {function!r} is not a function; write one with def and decorate it")
    body = inspect.unwrap(function)
    if getattr(body, "__name__", "") == "<lambda>":
        raise ToolDefinitionError(
            f"tool {name!r}: a lambda cannot be a tool (no annotations); write a function with def"
        )
    if inspect.isgeneratorfunction(body) or inspect.isasyncgenfunction(body):
        raise ToolDefinitionError(
            f"tool {name!r} is a generator function; return one value, and stream with `await ctx.output(...)`"
        )


def _check_options(name: str, options: ToolOptions) -> None:
    def fault(option: str, what: str) -> ToolDefinitionError:
        return ToolDefinitionError(f"tool {name!r}, option {option:.100}={options.get(option)!r:.200}: {what}")

    for option, kind in _GUARDS.items():
        guardrails = _listed(options.get(option, ()))
        wrong = check_guardrails(guardrails, kind)
        if wrong is not None:
            raise fault(option, wrong)
    for option, value in options.items():
        if option not in ToolOptions.__annotations__:
            options_text = f"the options are {', '.join(ToolOptions.__annotations__)}"
            hint = did_you_mean(option, ToolOptions.__annotations__).strip() or options_text
            raise fault(option, f"there is no such option; {hint}")
        if option in _CHOICES and value not in _CHOICES[option]:
            hint = did_you_mean(value, filter(None, _CHOICES[option]))
            raise fault(option, f"{hint}use one of {', '.join(map(repr, _CHOICES[option]))}")
    _check_values(options, fault)


def _check_values(options: ToolOptions, fault: Callable[[str, str], ToolDefinitionError]) -> None:
    effect, approval = options.get("effect", "read"), options.get("needs_approval", False)
    if not isinstance(effect, str) or not effect.isidentifier() or len(effect) > _LONGEST_EFFECT:
        way = f"an identifier of your own, of at most {_LONGEST_EFFECT} characters"
        raise fault("effect", f"use one of {', '.join(EFFECTS)}, or {way}")
    if effect == HANDOFF:
        raise fault("effect", "handoffs have it, and no other tool; use another identifier")
    _check_effect(effect, fault)
    _check_predicate("needs_approval", approval, fault, ctx=None, arguments={})
    _check_predicate("is_enabled", options.get("is_enabled", True), fault, ctx=None)
    _check_prepare(options.get("prepare"), fault)
    if not isinstance(options.get("description", ""), str):
        raise fault("description", "give a str")
    if options.get("on_conflict") == "retry" and options.get("replay") != "safe":
        raise fault(
            "on_conflict", "it runs the body twice; say that this is harmless with replay='safe', or use 'keep'"
        )
    timeout, grace = options.get("timeout"), options.get("grace", 5.0)
    if timeout is not None and not (_is_seconds(timeout) and timeout > 0):
        raise fault("timeout", "give seconds greater than 0, or None for no limit")
    if not _is_seconds(grace):
        raise fault("grace", "give seconds, 0 or more")
    if not isinstance(options.get("background", False), bool):
        raise fault("background", "use True or False")
    if options.get("background") and options.get("concurrency", "shared") != "shared":
        raise fault("concurrency", "a background tool runs beside everything else; omit the option")
    if options.get("background") and options.get("on_conflict", "keep") != "keep":
        raise fault("on_conflict", "a background task is not run again for what it wrote; omit the option")


def _listed(value: Any) -> Any:
    return tuple(value) if isinstance(value, list | tuple) else value


def _check_predicate(
    option: str, value: object, fault: Callable[[str, str], ToolDefinitionError], **arguments: object
) -> None:
    if not isinstance(value, bool) and not _takes(value, *arguments.values()):
        raise fault(option, f"use True, False, or a function ({', '.join(arguments)}) -> bool")


def _check_prepare(prepare: object, fault: Callable[[str, str], ToolDefinitionError]) -> None:
    if prepare is not None and not (inspect.iscoroutinefunction(prepare) and _takes(prepare, None)):
        raise fault("prepare", "give an async function (ctx) -> Preparation or None, or None")


def _check_effect(effect: str, fault: Callable[[str, str], ToolDefinitionError]) -> None:
    """Refuse an identifier close to a known class: a policy for "write" must not miss a tool with "writes"."""
    near = get_close_matches(effect.lower(), EFFECTS, 1, cutoff=0.75)
    if effect not in EFFECTS and near:
        effects = ", ".join(EFFECTS)
        raise fault("effect", f"did you mean {near[0]!r}? A word of your own must not look like one of {effects}")


def _takes(predicate: Any, *arguments: object) -> bool:
    try:
        inspect.signature(predicate).bind(*arguments)
    except (TypeError, ValueError):
        return False
    return True


def _is_seconds(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value >= 0
