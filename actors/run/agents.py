"""`Agents`: the agents of a runtime, and the models and dependencies that their runs work with."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from typing import Any, Final

import attrs

from greenroom.supervision import failure_of
from greenroom.supervision.fields import did_you_mean

from ..abc import Model
from ..agent import Agent
from ..contract.codec import failure_text, message_of
from ..contract.ids import error_id
from ..contract.redaction import Redactor
from ..contract.rows import RunInfo
from ..errors import AgentDefinitionError, UnknownAgent, UsageError
from ..models import resolve_model
from .error_log import DEPS, ErrorLog
from .services import RunUnavailable

DepsProvider = Callable[[RunInfo], Any]
"""(RunInfo) -> deps, sync or async. Asked at every activation of a run without live deps.

One that raises leaves the run as it is, degraded(deps_missing). LookupError says that it has none: the run waits for a
command, for `resume`, or for the next start. Anything else is a failure that may pass: the provider is asked again,
after a second at first and after a minute at most.
"""

NO_PROVIDER: Final = "it was started with deps of its own and the runtime has no provider"


@attrs.define(eq=False, repr=False)
class Agents:
    """The agents of one runtime, by key, with the deps that `open_runtime` was given.

    Attributes:
        by_key: the agents. `find` adds those that a start brings along.
    """

    by_key: dict[str, Agent[object]]
    _deps: Any
    _redactor: Redactor
    _journal: ErrorLog
    _failing: set[str] = attrs.field(init=False, factory=set)

    def __repr__(self) -> str:
        return f"<Agents {', '.join(sorted(self.by_key)) or 'none'}>"

    def get(self, key: str) -> Agent[object] | None:
        """The agent of this key, or None."""
        return self.by_key.get(key)

    def find(self, wanted: Agent[object] | str) -> Agent[object]:
        """The agent that a caller has named, or has handed in: an agent of a new key becomes known.

        Raises:
            UnknownAgent: no agent has this key. UsageError: another agent has the key of the one that is handed in.
        """
        if isinstance(wanted, Agent):
            known = self.by_key.setdefault(wanted.key, wanted)
            if known.spec.digest != wanted.spec.digest:
                raise UsageError(f"another agent has the key {wanted.key!r} in this runtime; keys must be unique")
            return wanted
        agent = self.by_key.get(wanted) if isinstance(wanted, str) else None
        if agent is None:
            keys = ", ".join(sorted(self.by_key)) or "none"
            raise UnknownAgent(
                f"no agent has the key {wanted!r}; {did_you_mean(wanted, self.by_key)}this runtime knows: {keys}"
            )
        return agent

    def startable(self, wanted: Agent[object] | str) -> Agent[object]:
        """As `find`, of an agent that has a model.

        Raises:
            UnknownAgent, UsageError: as `find`. AgentDefinitionError: the agent has no model.
        """
        agent = self.find(wanted)
        self.model_for(agent)
        return agent

    def model_for(self, agent: Agent[object]) -> Model:
        """The model that an agent is to use.

        Raises:
            AgentDefinitionError: it has none.
        """
        model = agent.model
        if isinstance(model, Model):
            return model
        if model is None:
            raise AgentDefinitionError(f"agent {agent.key!r} has no model; give it one: Agent(..., model=...)")
        return resolve_model(model)

    def agent_for(self, info: RunInfo) -> Agent[object]:
        """The agent of a run that is taken up.

        Raises:
            Degraded: there is none, or it has no model.
        """
        agent = self.by_key.get(info.agent)
        if agent is None:
            raise RunUnavailable("agent_unknown", f"no agent has the key {info.agent!r}")
        try:
            self.model_for(agent)
        except AgentDefinitionError as error:
            raise RunUnavailable("agent_unknown", str(error)) from error
        return agent

    async def deps_for(self, info: RunInfo) -> Any:
        """The deps of a run that has no live ones: the runtime's own, or those that the provider gives.

        Raises:
            Degraded: there are none; `passing` if the provider has failed and is to be asked again.
        """
        if not callable(self._deps):
            if info.has_deps and self._deps is None:
                raise RunUnavailable("deps_missing", NO_PROVIDER)
            return self._deps
        try:
            deps = self._deps(info)
            if inspect.isawaitable(deps):
                deps = await deps
        except LookupError as error:
            raise RunUnavailable(
                "deps_missing", self._redactor.text(f"the provider has none: {message_of(error)}")
            ) from error
        except BaseException as error:  # noqa: BLE001 - user code: what it can not give now it may give in a while
            failure = failure_of(error)
            name = self._log_provider(info, failure)
            said = f"the provider failed, and is asked again: {failure_text(failure)} (error_id {name})"
            text = self._redactor.text(said)
            raise RunUnavailable("deps_missing", text, passing=True) from failure  # noqa: ASYNC104 - the border has raised what passes
        self._failing.discard(info.run_id)
        return deps

    def _log_provider(self, info: RunInfo, failure: BaseException) -> str:
        """The traceback once for each run, then a line for each time that the provider fails again; the error's id."""
        name, what = error_id(info.run_id, "deps"), f"the deps provider failed for run {info.run_id}"
        fields = {"error_id": name, "code": "deps_missing", "run_id": info.run_id, "agent": info.agent}
        if info.run_id in self._failing:
            self._journal.note(DEPS, logging.WARNING, f"{what} again: {failure_text(failure)}", **fields)
        else:
            self._failing.add(info.run_id)
            self._journal.bug(DEPS, what, failure, **fields)
        return name

    def can_revive(self, info: RunInfo) -> bool:
        """True if the run's live objects can be had again once it has left memory."""
        return info.agent in self.by_key and (not info.has_deps or callable(self._deps))

    def missing_requirement(self, info: RunInfo, *, has_agent: bool, has_deps: bool) -> tuple[str, str] | None:
        """What a run needs and does not have here, beside what its owner has already; None if nothing.

        A provider counts as having deps: it is asked only when the run is woken.
        """
        if not has_agent and info.agent not in self.by_key:
            return "agent_unknown", f"no agent has the key {info.agent!r}"
        given = has_deps or self._deps is not None
        return ("deps_missing", NO_PROVIDER) if info.has_deps and not given else None
