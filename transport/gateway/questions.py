"""`QuestionBoard`: tells the open streams of this process what their clients have answered.

A protocol whose answers arrive in requests of their own needs this for what is in no row: that an answer was this
client's own, and that it decided nothing. What the board forgets at a restart costs a notification or a repeated
question, and no decision.
"""

from __future__ import annotations

from collections.abc import Callable

from .access import Principal

Listener = Callable[[str, str | None], None]
"""Called with a ticket's id and why its answer decided nothing; None: the answer is a decision."""


class QuestionBoard:
    """The open streams that put questions, by principal and run."""

    def __init__(self) -> None:
        self._listeners: dict[tuple[str, str], set[Listener]] = {}

    def __repr__(self) -> str:
        return f"<QuestionBoard of {len(self._listeners)} runs>"

    def listen(self, who: Principal, run_id: str, listener: Listener) -> Callable[[], None]:
        """Call a listener, which must not raise, for each answer of a principal to a question of a run.

        Returns a function that removes the listener.
        """
        key = who.name, run_id
        self._listeners.setdefault(key, set()).add(listener)

        def end() -> None:
            listeners = self._listeners.get(key, set())
            listeners.discard(listener)
            if not listeners:
                self._listeners.pop(key, None)

        return end

    def answered(self, who: Principal, run_id: str, ticket_id: str, why_not: str | None = None) -> None:
        """Tell the principal's streams of a run about an answer; `why_not`: the reason that it decided nothing."""
        for listener in tuple(self._listeners.get((who.name, run_id), ())):
            listener(ticket_id, why_not)
