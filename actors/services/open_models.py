"""`OpenModels`: the models of a runtime by name, and the models and toolsets that are open.

Theory of operation. `Model.open` is a context manager for what requests share, and `Toolset.open` for what steps share.
A context manager is entered and left in one task, so each open one has a task, in the nursery of the runtime's tasks. A
static child of the runtime's supervisor closes them: it is stopped after all runs, before the store. A crash of that
child closes nothing, because a closed model would fail the requests of runs. A model or toolset that keeps the default
`open` has no task. A toolset of scope "run" is open once for each run that asked it, until the run leaves this process.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs
import trio

from greenroom.supervision import ActorContext, cleanup, failure_of

from ..abc import Model
from ..contract.secrets.current import REDACTOR
from ..contract.secrets.redaction import Redactor
from ..models import ModelFactory, resolve_model
from ..tools.toolset import Toolset
from .breakers import Breakers
from .error_log import MODEL, ErrorLog

MODELS: Final = ":models"
"""Id of the child; no run id begins with a colon."""
_DEFAULTS: Final = (Model.open, Toolset.open)
"""They hold nothing, so there is nothing to open."""
CLOSING: Final = 5.0
"""Seconds for all of them to close. Those that take longer are cancelled already, and are not waited for here."""


@attrs.define(eq=False)
class _Opening:
    """A model or toolset that is being opened, or is open. `failure` is set if it could not be opened.

    `source` is the toolset that is asked, which may be another object for each opening.
    """

    part: Model | Toolset
    key: tuple[int, str]
    source: Toolset | None = None
    done: trio.Event = attrs.field(factory=trio.Event)
    closed: trio.Event = attrs.field(factory=trio.Event)
    # shielded, because only `close` ends a model: a run that still stops at the end of the runtime may need the model
    scope: trio.CancelScope = attrs.field(factory=lambda: trio.CancelScope(shield=True))
    failure: BaseException | None = None


class OpenModels:
    """The models and toolsets of one runtime.

    Attributes:
        breakers: the circuits of these models.
    """

    def __init__(
        self, log: ErrorLog, redactor: Redactor, providers: Mapping[str, ModelFactory], tasks: trio.Nursery
    ) -> None:
        self._log, self._redactor = log, redactor
        self._providers = providers
        self._tasks = tasks
        self._closed = False
        self.breakers = Breakers()
        self._by_name: dict[str, Model] = {}
        # by identity, for models may compare equal as they like, and by the run of a toolset of that scope
        self._open: dict[tuple[int, str], _Opening] = {}
        self._of_runs: dict[str, list[_Opening]] = {}

    def __repr__(self) -> str:
        return f"<OpenModels {len(self._open)} open>"

    def named(self, name: str) -> Model:
        """Return the model for a name, the same object for each request of this runtime.

        Raises:
            AgentDefinitionError: no provider makes a model of this name.
        """
        model = self._by_name.get(name)
        if model is None:
            model = self._by_name[name] = resolve_model(name, self._providers)
        return model

    async def opened(self, model: Model) -> None:
        """Wait until a model is open; the first caller opens it.

        Raises:
            ModelError: a classified failure of opening it; the next caller tries again.
            RuntimeError: the runtime is closing.
        """
        await self._opened(model, "")

    async def toolset(self, toolset: Toolset, run_id: str) -> Toolset:
        """Wait until a toolset is open, and return the one to ask; the first caller opens it.

        Raises:
            Exception: it could not be opened; the next caller tries again.
            RuntimeError: the runtime is closing.
        """
        opening = await self._opened(toolset, run_id if toolset.scope == "run" else "")
        return toolset if opening is None or opening.source is None else opening.source

    def leave(self, run_id: str) -> None:
        """Let the toolsets of a run close, which leaves this process."""
        for opening in self._of_runs.pop(run_id, ()):
            opening.scope.cancel("the run leaves this process")

    async def _opened(self, part: Model | Toolset, run_id: str) -> _Opening | None:
        """Wait until it is open; None if there is nothing to open."""
        if type(part).open in _DEFAULTS:
            return None
        key = (id(part), run_id)
        opening = self._open.get(key)
        if opening is None or opening.scope.cancel_called:
            if self._closed:
                raise RuntimeError("the models are closed")
            opening = self._open[key] = _Opening(part, key)
            if run_id:
                self._of_runs.setdefault(run_id, []).append(opening)
            self._tasks.start_soon(self._keep, opening, name=f"open {part.name}")
        await opening.done.wait()
        if opening.failure is not None:
            raise opening.failure
        return opening

    async def body(self, ctx: ActorContext[object]) -> None:
        """Let models and toolsets be open until cancelled; then close them."""
        ctx.ready()
        try:
            await trio.sleep_forever()
        except trio.Cancelled:
            openings = tuple(self._open.values())
            self.close()
            with cleanup(CLOSING, what="close the models and toolsets"):
                for opening in openings:
                    await opening.closed.wait()  # noqa: ASYNC102 - bounded by the clean-up
            raise

    def close(self) -> None:
        """Let all models and toolsets close; no further one is opened."""
        self._closed = True
        for opening in self._open.values():
            opening.scope.cancel("the models are closed")

    async def _keep(self, opening: _Opening) -> None:
        REDACTOR.set(self._redactor)  # of this task and all that its toolset starts
        try:
            with opening.scope:
                async with opening.part.open() as source:
                    opening.source = source if isinstance(source, Toolset) else None
                    opening.done.set()
                    await trio.sleep_forever()
        except BaseException as error:  # noqa: BLE001, ASYNC103 - the model's own code; the border raises a cancel
            failure = failure_of(error)
            if opening.done.is_set():
                self._log.bug(MODEL, f"{opening.part.name} could not be closed", failure)
            opening.failure = failure
        finally:
            if self._open.get(opening.key) is opening:
                del self._open[opening.key]
            opening.failure = opening.failure or RuntimeError("the models are closed")
            opening.done.set()
            opening.closed.set()
