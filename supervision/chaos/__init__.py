"""Deterministic scheduling and fault injection for trio programs: find what a cancel or a crash at any step breaks."""

from ..public import publish
from ._internals import TrioChangedError as TrioChangedError
from ._internals import self_test as self_test
from .faults import CancelAt as CancelAt
from .faults import CrashAt as CrashAt
from .faults import StepHook as StepHook
from .faults import count_steps as count_steps
from .leaks import find_leaks as find_leaks
from .leaks import find_live_tasks as find_live_tasks
from .report import CaseToken as CaseToken
from .report import Report as Report
from .report import Violation as Violation
from .scheduling import DeadlockError as DeadlockError
from .scheduling import program_tasks as program_tasks
from .scheduling import run as run
from .sites import SiteRecorder as SiteRecorder
from .sites import TraceRecorder as TraceRecorder
from .sites import TraceStep as TraceStep
from .sites import operation_of as operation_of
from .sites import site_of as site_of
from .sites import tree_report as tree_report
from .sites import waits_for_children as waits_for_children
from .sites import waits_outside as waits_outside
from .sweep import InjectedCrashError as InjectedCrashError
from .sweep import sweep_cancel as sweep_cancel
from .sweep import sweep_crash as sweep_crash
from .sweep import sweep_schedules as sweep_schedules

__all__ = [
    "CancelAt",
    "CaseToken",
    "CrashAt",
    "DeadlockError",
    "InjectedCrashError",
    "Report",
    "SiteRecorder",
    "StepHook",
    "TraceRecorder",
    "TraceStep",
    "TrioChangedError",
    "Violation",
    "count_steps",
    "find_leaks",
    "find_live_tasks",
    "operation_of",
    "program_tasks",
    "run",
    "self_test",
    "site_of",
    "sweep_cancel",
    "sweep_crash",
    "sweep_schedules",
    "tree_report",
    "waits_for_children",
    "waits_outside",
]

publish(__name__, globals(), __all__)
