"""Prepare a run: its surroundings, then the tools of its agents that prepare themselves, one after the other.

Theory of operation. A preparation is user code at a border: `PreparationError` is its way to say that the run cannot
work, any other exception is a bug, and both end the run from the stage preparing. A cancel of the run cancels the child
that prepares.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Any, Final

import attrs
import msgspec

from greenroom.supervision import Raised, Returned

from ..contract.codec import failure_text, message_of, normalise
from ..contract.ids import error_id
from ..contract.preparation import MOST_FACTS, Preparation
from ..engine.inputs import Prepared
from ..errors import PreparationError
from ..services.children import Child
from ..services.error_log import RUN, TOOL
from ..services.sanitize import text_of
from ..tools.preparing import PreparationContext
from ..user_code.calls import Late, call_user
from .run_context import RunContext

TIMEOUT: Final = 300.0
"""Seconds for each preparation: the copy of a large folder takes a minute."""


def prepare(run: RunContext) -> None:
    """Prepare a run in a child, which submits `Prepared`."""
    preparing = Preparing(run)
    run.children.start("prepare", preparing.body, broke=preparing.broke)


@attrs.frozen(eq=False)
class Preparing:
    """Prepares a run once."""

    run: RunContext

    def __repr__(self) -> str:
        return f"<Preparing {self.run.info.run_id}>"

    def broke(self, error: BaseException) -> Prepared:
        """Return the answer of a preparation that has crashed."""
        return self._bug("", error)

    async def body(self, child: Child) -> None:
        """The body of the child."""
        facts, doubts, answer = dict[str, object](), list[tuple[str, str]](), Prepared()
        for name, step in self._steps():
            outcome = await call_user(step, limit=TIMEOUT)
            result = self._read(name, outcome)
            if isinstance(result, Prepared):
                answer = result
                break
            facts |= result.facts
            doubts += ((reason, text_of(text)) for reason, text in result.doubts.items())
        if not child.muted:
            answer = msgspec.structs.replace(answer, facts=facts, doubts=tuple(doubts))
            self.run.children.submit_input(answer)

    def _steps(self) -> Iterator[tuple[str, Callable[[], Awaitable[object]]]]:
        """Yield what prepares the run, each with the name of its tool ("" for the surroundings)."""
        run, workspace = self.run, None
        surroundings = run.services.agents.surroundings
        if run.info.place is not None and surroundings is not None:
            yield "", partial(surroundings.prepare, run.info)
            workspace = surroundings.of(run.info)
        ctx = PreparationContext(deps=run.deps, info=run.info, workspace=workspace)
        tools = {
            id(tool): tool for agent in run.services.agents.graph(run.need_agent()).values() for tool in agent.tools
        }
        for tool in tools.values():
            if tool.prepare is not None:
                yield tool.name, partial(tool.prepare, ctx)

    def _read(self, name: str, outcome: Returned[object] | Raised | Late) -> Preparation | Prepared:
        """Return a preparation with its facts as JSON, or the failure."""
        match outcome:
            case Returned(None):
                return Preparation()
            case Returned(Preparation() as result):
                facts, why = normalise(result.facts)
                if why is None and len(msgspec.json.encode(facts)) <= MOST_FACTS:
                    return attrs.evolve(result, facts=facts)
                why = why or f"they have more than {MOST_FACTS} bytes as JSON"
                return self._bug(name, ValueError(f"the facts of its Preparation cannot be stored: {why}"))
            case Returned(value):
                text = f"it returned {type(value).__name__}; return gr.Preparation(...) or None"
                return self._bug(name, TypeError(text))
            case Raised(PreparationError() as error):
                return self._fault(name, error.code, message_of(error), reason=text_of(error.reason))
            case Raised(error):
                return self._bug(name, error)
            case Late():
                text = f"{_named(name)} was not prepared {outcome}"
                return self._fault(name, "runtime_unavailable", text, reason="timeout")

    def _bug(self, name: str, error: BaseException) -> Prepared:
        run_id, code = self.run.info.run_id, "tool_error" if name else "internal_error"
        log_id, what = error_id(run_id, f"prepare:{name}"), f"{_named(name)} of run {run_id} could not be prepared"
        self.run.log.bug(TOOL if name else RUN, what, error, error_id=log_id, code=code)
        return self._fault(name, code, f"{_named(name)}: {failure_text(error)}", error_id=log_id)

    @staticmethod
    def _fault(name: str, code: str, text: str, **more: Any) -> Prepared:
        return Prepared(code=code, text=text_of(text), runtime=name or "workspace", **more)


def _named(name: str) -> str:
    return f"tool {name!r}" if name else "the workspace"
