"""Actors and supervisors on trio. Knows nothing of agents."""

from greenroom.supervision.actor import ActorContext as ActorContext
from greenroom.supervision.ask import Reply as Reply
from greenroom.supervision.ask import ask as ask
from greenroom.supervision.border import failure_of as failure_of
from greenroom.supervision.border import failure_of_call as failure_of_call
from greenroom.supervision.border import is_interrupt as is_interrupt
from greenroom.supervision.border import passes_through as passes_through
from greenroom.supervision.cleanup import Overrun as Overrun
from greenroom.supervision.cleanup import cleanup as cleanup
from greenroom.supervision.cleanup import report_overrun as report_overrun
from greenroom.supervision.errors import ActorExited as ActorExited
from greenroom.supervision.errors import DuplicateChild as DuplicateChild
from greenroom.supervision.errors import MailboxEmpty as MailboxEmpty
from greenroom.supervision.errors import MailboxFull as MailboxFull
from greenroom.supervision.errors import NameTaken as NameTaken
from greenroom.supervision.errors import StartFailed as StartFailed
from greenroom.supervision.errors import SupervisionError as SupervisionError
from greenroom.supervision.errors import SupervisorGaveUp as SupervisorGaveUp
from greenroom.supervision.errors import SupervisorStopping as SupervisorStopping
from greenroom.supervision.errors import TooManyChildren as TooManyChildren
from greenroom.supervision.errors import UnknownChild as UnknownChild
from greenroom.supervision.exits import Cancelled as Cancelled
from greenroom.supervision.exits import Crashed as Crashed
from greenroom.supervision.exits import Exit as Exit
from greenroom.supervision.exits import GaveUp as GaveUp
from greenroom.supervision.exits import Normal as Normal
from greenroom.supervision.exits import Shutdown as Shutdown
from greenroom.supervision.exits import Stubborn as Stubborn
from greenroom.supervision.exits import flatten as flatten
from greenroom.supervision.exits import leaves as leaves
from greenroom.supervision.exits import sole_cancellation as sole_cancellation
from greenroom.supervision.intensity import Intensity as Intensity
from greenroom.supervision.intensity import Window as Window
from greenroom.supervision.mailbox import CAPACITY as CAPACITY
from greenroom.supervision.mailbox import Mailbox as Mailbox
from greenroom.supervision.nursery import open_collapsing_nursery as open_collapsing_nursery
from greenroom.supervision.ref import Monitor as Monitor
from greenroom.supervision.ref import Ref as Ref
from greenroom.supervision.registry import Registry as Registry
from greenroom.supervision.spec import Backoff as Backoff
from greenroom.supervision.spec import ChildSpec as ChildSpec
from greenroom.supervision.spec import OnGiveUp as OnGiveUp
from greenroom.supervision.spec import RestartKind as RestartKind
from greenroom.supervision.strategy import Decision as Decision
from greenroom.supervision.strategy import Escalate as Escalate
from greenroom.supervision.strategy import Restart as Restart
from greenroom.supervision.strategy import Stop as Stop
from greenroom.supervision.strategy import decide as decide
from greenroom.supervision.supervisor import Supervisor as Supervisor
from greenroom.supervision.supervisor import open_supervisor as open_supervisor
from greenroom.supervision.views import ChildCount as ChildCount
from greenroom.supervision.views import ChildInfo as ChildInfo
from greenroom.supervision.views import SupervisorStatistics as SupervisorStatistics

__all__ = [
    "CAPACITY",
    "ActorContext",
    "ActorExited",
    "Backoff",
    "Cancelled",
    "ChildCount",
    "ChildInfo",
    "ChildSpec",
    "Crashed",
    "Decision",
    "DuplicateChild",
    "Escalate",
    "Exit",
    "GaveUp",
    "Intensity",
    "Mailbox",
    "MailboxEmpty",
    "MailboxFull",
    "Monitor",
    "NameTaken",
    "Normal",
    "OnGiveUp",
    "Overrun",
    "Ref",
    "Registry",
    "Reply",
    "Restart",
    "RestartKind",
    "Shutdown",
    "StartFailed",
    "Stop",
    "Stubborn",
    "SupervisionError",
    "Supervisor",
    "SupervisorGaveUp",
    "SupervisorStatistics",
    "SupervisorStopping",
    "TooManyChildren",
    "UnknownChild",
    "Window",
    "ask",
    "cleanup",
    "decide",
    "failure_of",
    "failure_of_call",
    "flatten",
    "is_interrupt",
    "leaves",
    "open_collapsing_nursery",
    "open_supervisor",
    "passes_through",
    "report_overrun",
    "sole_cancellation",
]
