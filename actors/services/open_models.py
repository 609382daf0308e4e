"""`OpenModels`: the models of a runtime by name, and the models and toolsets that are open.

Theory of operation. `Model.open` is a context manager for what requests share, and `Toolset.open` for what steps share.
A context manager is entered and left in one task, so each open one has a task, in the nursery of the runtime's tasks. A
static child of the runtime's supervisor closes them: it is stopped after all runs, before the store. A crash of that
child closes nothing, because a closed model would fail the requests of runs. A model or toolset that keeps the default
`open` has no task.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs
import trio

from greenroom.supervision import ActorContext, cleanup, failure_of

from ..abc import Model
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
    """A model or toolset that is being opened, or is open. `failure` is set if it could not be opened."""

    part: Model | Toolset
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

    def __init__(self, log: ErrorLog, providers: Mapping[str, ModelFactory], tasks: trio.Nursery) -> None:
        self._log = log
        self._providers = providers
        self._tasks = tasks
        self._closed = False
        self.breakers = Breakers()
        self._by_name: dict[str, Model] = {}
        self._open: dict[int, _Opening] = {}  # by identity: models may compare equal as they like

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

    async def opened(self, part: Model | Toolset) -> None:
        """Wait until a model or toolset is open; the first caller opens it.

        Raises:
            ModelError: a classified failure of opening a model; the next caller tries again.
            Exception: a toolset could not be opened; the next caller tries again.
            RuntimeError: the runtime is closing.
        """
        if type(part).open in _DEFAULTS:
            return
        opening = self._open.get(id(part))
        if opening is None:
            if self._closed:
                raise RuntimeError("the models are closed")
            opening = self._open[id(part)] = _Opening(part)
            self._tasks.start_soon(self._keep, opening, name=f"open {part.name}")
        await opening.done.wait()
        if opening.failure is not None:
            raise opening.failure

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
        try:
            with opening.scope:
                async with opening.part.open():
                    opening.done.set()
                    await trio.sleep_forever()
        except BaseException as error:  # noqa: BLE001, ASYNC103 - the model's own code; the border raises a cancel
            failure = failure_of(error)
            self._open.pop(id(opening.part), None)
            if opening.done.is_set():
                self._log.bug(MODEL, f"{opening.part.name} could not be closed", failure)
            opening.failure = failure
        finally:
            opening.failure = opening.failure or RuntimeError("the models are closed")
            opening.done.set()
            opening.closed.set()
