"""`Mutation`: the requests of a hook, as a value. The runtime merges the mutations of a phase and applies them."""

from __future__ import annotations

from typing import Any, Final, Literal, TypeVar

import attrs

from ..contract.codec import normalise
from ..contract.decisions import Suspend
from ..contract.inference import ContextMessage, RequestChanges
from ..contract.messages import Usage
from ..contract.phases import Phase
from ..contract.plain import JSONObject
from ..contract.state import KeyId, Write
from ..engine.inputs import CallEdit
from ..errors import UsageError
from ..state.access import updated
from ..state.keys import StateKey
from ..state.values import shown

T = TypeVar("T")
PLACEMENTS: Final = ("system", "session", "conversation", "suffix")
Effort = Literal["exclusive", "shared"]


class MutationError(UsageError):
    """A request of a hook is invalid; the message names it and says what to give."""


@attrs.frozen
class Mutation:
    """The requests of a hook, as a value: each method returns a new mutation with one more request.

        return gr.Mutation().set(counter, 3).add_message("Be brief.").exclude_tools("shell")

    In every phase: `set`, `update`, `end`. Between steps (run_start, step_start, step_end): `hold`. For the request of
    this step only, in before_inference: `add_message`, `hide_messages`, `include_tools`, `exclude_tools`, `override`.
    In after_inference: `edit_call`, `drop_call`. In every phase whose hook asks a model: `spend`.

    Attributes:
        writes: to state keys, in order.
        request: changes of the model request.
        edits: The edits of calls.
        reason: why the run is to end.
        ticket_requests: tickets that are to hold the run.
        spent: what models of the hook's own have used, with their names.
    """

    writes: tuple[tuple[StateKey[Any], Write], ...] = ()
    request: RequestChanges = attrs.field(factory=RequestChanges)
    edits: tuple[CallEdit, ...] = ()
    reason: str | None = None
    ticket_requests: tuple[Suspend, ...] = ()
    spent: tuple[tuple[str, Usage], ...] = ()

    def set(self, key: StateKey[T], value: T) -> Mutation:
        """Replace the value of a state key.

        Raises:
            MutationError: `key` is not a StateKey.
            StateError: the value does not have the key's type.
        """
        _check_key(key)
        data = key.encode(value)
        write = Write(name=key.name, scope=key.scope, persistent=key.persistent, value=data, result=data)
        return attrs.evolve(self, writes=(*self.writes, (key, write)))

    def update(self, key: StateKey[Any], update: object) -> Mutation:
        """Update a commutative state key.

        Raises:
            MutationError: `key` is not a StateKey.
            StateError: the key is exclusive, or the update does not have its type.
        """
        _check_key(key)
        return attrs.evolve(self, writes=(*self.writes, (key, updated(key, update))))

    def end(self, reason: str) -> Mutation:
        """End the run as completed with the termination behavior_requested; the newest answer is its output.

        Raises:
            MutationError: the reason is not a str.
        """
        return attrs.evolve(self, reason=_text(reason, "end(reason)"))

    def hold(self, suspend: Suspend) -> Mutation:
        """Hold the run with a ticket until it is decided, by a person or a program.

        The current step finishes; no other begins. Resume continues the run, and a result joins the thread as a user
        message; cancel ends the run as cancelled. `resume_mode` has no meaning here.

        Raises:
            MutationError: `suspend` is not a Suspend.
        """
        value: Any = suspend
        if not isinstance(value, Suspend):
            raise MutationError(f"hold({suspend!r:.80}): give a gr.Suspend(message=..., ...)")
        return attrs.evolve(self, ticket_requests=(*self.ticket_requests, suspend))

    def spend(self, usage: Usage, *, model: str = "") -> Mutation:
        """Count what a model that the hook itself asked has used, in `usage` of the run and for its budget.

        Args:
            usage: its tokens and requests.
            model: its name, for the prices of a budget.

        Raises:
            MutationError: `usage` is not a Usage.
        """
        value: Any = usage
        if not isinstance(value, Usage):
            raise MutationError(f"spend({usage!r:.80}): give a gr.Usage")
        return attrs.evolve(self, spent=(*self.spent, (_text(model, "spend(model)"), usage)))

    # --- before_inference --------------------------------------------------------------------------------------------

    def add_message(
        self,
        content: str,
        *,
        role: Literal["system", "user"] = "system",
        placement: Literal["system", "session", "conversation", "suffix"] = "suffix",
        priority: int = 0,
    ) -> Mutation:
        """Add a message to the request of this step; it does not join the thread.

        Args:
            content: the text.
            role: "system" or "user".
            placement: "system" (after the instructions), "session" (before the thread), "conversation" (before the
                newest user message) or "suffix" (last).
            priority: within a placement the lower priority comes first; equal ones in the plugins' order.

        Raises:
            MutationError: a value is invalid.
        """
        if role not in ("system", "user"):
            raise MutationError(f"add_message(role={role!r}): use 'system' or 'user'")
        if placement not in PLACEMENTS:
            raise MutationError(f"add_message(placement={placement!r}): use one of {', '.join(PLACEMENTS)}")
        if type(priority) is not int:
            raise MutationError(f"add_message(priority={priority!r}): give a whole number")
        content = _text(content, "add_message(content)")
        message = ContextMessage(content=content, role=role, placement=placement, priority=priority)
        return self._changed(RequestChanges(messages=(message,)))

    def hide_messages(self, *ids: str) -> Mutation:
        """Leave messages of the thread out of the request of this step; they stay in the thread.

        A message with calls goes with the answers to them, and the other way round.

        Raises:
            MutationError: an id is not a str.
        """
        return self._changed(RequestChanges(hidden=tuple(_text(name, "hide_messages") for name in ids)))

    def include_tools(self, *names: str) -> Mutation:
        """Offer only these tools in this step; the tools that several hooks include are offered together.

        Raises:
            MutationError: a name is not a str.
        """
        return self._changed(RequestChanges(include=tuple(_text(name, "include_tools") for name in names)))

    def exclude_tools(self, *names: str) -> Mutation:
        """Do not offer these tools in this step, even if another hook includes them. A call of one is refused.

        Raises:
            MutationError: a name is not a str.
        """
        return self._changed(RequestChanges(exclude=tuple(_text(name, "exclude_tools") for name in names)))

    def override(self, *, model: str | None = None, **settings: object) -> Mutation:
        """Use another model or other settings in this step. Of two hooks the later registered one wins.

        Args:
            model: as "provider:name".
            **settings: plain JSON data, such as temperature=0.

        Raises:
            MutationError: a value is not plain JSON data.
        """
        if model is not None:
            _text(model, "override(model)")
        for name, value in settings.items():
            why = normalise(value)[1]
            if why is not None:
                raise MutationError(f"override({name}={shown(value)}): give plain JSON data ({why})")
        clean = {name: normalise(value)[0] for name, value in settings.items()}
        return self._changed(RequestChanges(model=model, settings=clean))

    def _changed(self, more: RequestChanges) -> Mutation:
        return attrs.evolve(self, request=self.request.joined(more))

    # --- after_inference ---------------------------------------------------------------------------------------------

    def edit_call(self, call_id: str, arguments: JSONObject) -> Mutation:
        """Replace the arguments of a call. The gates see the new ones; the model reads that they were changed.

        Raises:
            MutationError: the arguments are not a JSON object.
        """
        data, why = normalise(arguments)
        if why is not None or not isinstance(data, dict):
            way = "give a JSON object as arguments" if why is None else f"give a JSON object as arguments ({why})"
            raise MutationError(f"edit_call({call_id!r}, {shown(arguments)}): {way}")
        return self._edited(CallEdit(call_id=_text(call_id, "edit_call(call_id)"), by="", arguments=data))

    def drop_call(self, call_id: str, text: str = "This call was dropped before it ran.") -> Mutation:
        """Drop a call: it ends as cancelled, and the model reads `text`.

        Raises:
            MutationError: a value is not a str.
        """
        text = _text(text, "drop_call(text)")
        return self._edited(CallEdit(call_id=_text(call_id, "drop_call(call_id)"), by="", text=text))

    def _edited(self, edit: CallEdit) -> Mutation:
        return attrs.evolve(self, edits=(*self.edits, edit))

    # --- merging
    # -------------------------------------------------------------------------------------------------------

    def touched(self) -> dict[KeyId | str, Effort]:
        """Return what two hooks must not both change: a key (updates of one may be merged), a call."""
        out: dict[KeyId | str, Effort] = {edit.call_id: "exclusive" for edit in self.edits}
        for key, write in self.writes:
            alone = write.op == "set" or out.get(key.id) == "exclusive"
            out[key.id] = "exclusive" if alone else "shared"
        return out

    def misplaced(self, phase: Phase) -> str | None:
        """Return what is not allowed in this phase, or None."""
        if self.request != RequestChanges() and phase is not Phase.BEFORE_INFERENCE:
            return "asks to change the request; only before_inference can"
        if self.ticket_requests and phase not in (Phase.RUN_START, Phase.STEP_START, Phase.STEP_END):
            return "asks to hold the run; only run_start, step_start and step_end can"
        if self.edits and phase is not Phase.AFTER_INFERENCE:
            return "asks to change calls; only after_inference can"
        return None


def _check_key(key: object) -> None:
    if not isinstance(key, StateKey):
        raise MutationError(f"{key!r} is no state key; make one with gr.StateKey(name, type)")


def _text(value: object, where: str) -> str:
    if not isinstance(value, str):
        raise MutationError(f"{where}: {shown(value)} is no str")
    text, why = normalise(value)
    if why is not None:
        raise MutationError(f"{where}: {why}")
    return str(text)
