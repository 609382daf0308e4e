"""Deterministic scheduling and fault injection for trio programs: find what a cancel or a crash at any step breaks."""

from greenroom.supervision.chaos._internals import TrioChangedError as TrioChangedError
from greenroom.supervision.chaos._internals import self_test as self_test
from greenroom.supervision.chaos.faults import CancelAt as CancelAt
from greenroom.supervision.chaos.faults import CrashAt as CrashAt
from greenroom.supervision.chaos.faults import StepHook as StepHook
from greenroom.supervision.chaos.faults import count_steps as count_steps
from greenroom.supervision.chaos.leaks import find_leaks as find_leaks
from greenroom.supervision.chaos.leaks import find_live_tasks as find_live_tasks
from greenroom.supervision.chaos.report import Report as Report
from greenroom.supervision.chaos.report import Token as Token
from greenroom.supervision.chaos.report import Violation as Violation
from greenroom.supervision.chaos.scheduling import DeadlockError as DeadlockError
from greenroom.supervision.chaos.scheduling import program_tasks as program_tasks
from greenroom.supervision.chaos.scheduling import run as run
from greenroom.supervision.chaos.sites import SiteRecorder as SiteRecorder
from greenroom.supervision.chaos.sites import Step as Step
from greenroom.supervision.chaos.sites import TraceRecorder as TraceRecorder
from greenroom.supervision.chaos.sites import operation_of as operation_of
from greenroom.supervision.chaos.sites import site_of as site_of
from greenroom.supervision.chaos.sites import tree_report as tree_report
from greenroom.supervision.chaos.sites import waits_for_children as waits_for_children
from greenroom.supervision.chaos.sites import waits_outside as waits_outside
from greenroom.supervision.chaos.sweep import InjectedCrashError as InjectedCrashError
from greenroom.supervision.chaos.sweep import sweep_cancel as sweep_cancel
from greenroom.supervision.chaos.sweep import sweep_crash as sweep_crash
from greenroom.supervision.chaos.sweep import sweep_schedules as sweep_schedules

__all__ = [
    "CancelAt",
    "CrashAt",
    "DeadlockError",
    "InjectedCrashError",
    "Report",
    "SiteRecorder",
    "Step",
    "StepHook",
    "Token",
    "TraceRecorder",
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
