"""Actors and supervisors on trio. This layer knows nothing about agents."""

from .ask import ask as ask
from .async_border import acapture as acapture
from .border import Raised as Raised
from .border import Returned as Returned
from .border import capture as capture
from .border import failure_of as failure_of
from .border import failure_of_call as failure_of_call
from .border import is_interrupt as is_interrupt
from .border import passes_through as passes_through
from .cleanup import Overrun as Overrun
from .cleanup import cleanup as cleanup
from .cleanup import report_overrun as report_overrun
from .context import ActorContext as ActorContext
from .errors import ActorExited as ActorExited
from .errors import DuplicateChild as DuplicateChild
from .errors import InvalidSpec as InvalidSpec
from .errors import MailboxEmpty as MailboxEmpty
from .errors import MailboxFull as MailboxFull
from .errors import NameTaken as NameTaken
from .errors import StartFailed as StartFailed
from .errors import SupervisionError as SupervisionError
from .errors import SupervisorGaveUp as SupervisorGaveUp
from .errors import SupervisorStopping as SupervisorStopping
from .errors import TooManyChildren as TooManyChildren
from .errors import UnknownChild as UnknownChild
from .exits import ActorCancelled as ActorCancelled
from .exits import Crashed as Crashed
from .exits import Exit as Exit
from .exits import GaveUp as GaveUp
from .exits import Normal as Normal
from .exits import Shutdown as Shutdown
from .exits import Unresponsive as Unresponsive
from .exits import flatten as flatten
from .exits import leaves as leaves
from .exits import sole_cancellation as sole_cancellation
from .intensity import Intensity as Intensity
from .intensity import Window as Window
from .mailbox import CAPACITY as CAPACITY
from .mailbox import Mailbox as Mailbox
from .nursery import open_collapsing_nursery as open_collapsing_nursery
from .public import publish
from .recent_crashes import RecentCrashes as RecentCrashes
from .ref import Monitor as Monitor
from .ref import Ref as Ref
from .registry import Registry as Registry
from .reply import Reply as Reply
from .spec import Backoff as Backoff
from .spec import ChildSpec as ChildSpec
from .spec import OnGiveUp as OnGiveUp
from .spec import RestartKind as RestartKind
from .strategy import Decision as Decision
from .strategy import Escalate as Escalate
from .strategy import Restart as Restart
from .strategy import Stop as Stop
from .strategy import decide as decide
from .supervisor import Supervisor as Supervisor
from .supervisor import open_supervisor as open_supervisor
from .views import ChildCount as ChildCount
from .views import ChildInfo as ChildInfo
from .views import SupervisorStatistics as SupervisorStatistics

__all__ = [
    "CAPACITY",
    "ActorCancelled",
    "ActorContext",
    "ActorExited",
    "Backoff",
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
    "InvalidSpec",
    "Mailbox",
    "MailboxEmpty",
    "MailboxFull",
    "Monitor",
    "NameTaken",
    "Normal",
    "OnGiveUp",
    "Overrun",
    "Raised",
    "RecentCrashes",
    "Ref",
    "Registry",
    "Reply",
    "Restart",
    "RestartKind",
    "Returned",
    "Shutdown",
    "StartFailed",
    "Stop",
    "SupervisionError",
    "Supervisor",
    "SupervisorGaveUp",
    "SupervisorStatistics",
    "SupervisorStopping",
    "TooManyChildren",
    "UnknownChild",
    "Unresponsive",
    "Window",
    "acapture",
    "ask",
    "capture",
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

publish(__name__, globals(), __all__)
