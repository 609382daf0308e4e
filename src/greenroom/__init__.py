"""Greenroom: an actor-model runtime for AI-agent runs on trio.

    async with greenroom.open_runtime("greenroom.db", agents=[support]) as runtime:
        run = await runtime.start(support, "refund order 7")
        outcome = await run.wait()                       # Completed | Waiting(tickets) | Failed | Cancelled
        await run.decide(outcome.tickets[0].approve(reason="ok"))
        outcome = await run.result()

Every public name is re-exported here, explicitly.
"""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING as _TYPE_CHECKING

from greenroom.actors.abc import Model as Model
from greenroom.actors.abc import ModelDelta as ModelDelta
from greenroom.actors.abc import ModelEvent as ModelEvent
from greenroom.actors.abc import CallDelta as CallDelta
from greenroom.actors.abc import ReasoningDelta as ReasoningDelta
from greenroom.actors.abc import Pruned as Pruned
from greenroom.actors.abc import Store as Store
from greenroom.actors.abc import Surroundings as Surroundings
from greenroom.actors.abc import TextDelta as TextDelta
from greenroom.actors.abc import UsageReport as UsageReport
from greenroom.actors.agents.agent import Agent as Agent
from greenroom.actors.agents.agent import stop_at_tools as stop_at_tools
from greenroom.actors.agents.tool_agent import tool_agent as tool_agent
from greenroom.actors.agents.attachments import File as File
from greenroom.actors.agents.attachments import Image as Image
from greenroom.actors.agents import filters as filters
from greenroom.actors.contract import stop as stop
from greenroom.actors.contract.ticket_lists import TicketSummary as TicketSummary
from greenroom.actors.contract.calls import CallStatus as CallStatus
from greenroom.actors.contract.decisions import Allow as Allow
from greenroom.actors.contract.decisions import CommandResult as CommandResult
from greenroom.actors.contract.decisions import Block as Block
from greenroom.actors.contract.decisions import Deny as Deny
from greenroom.actors.contract.decisions import Decision as Decision
from greenroom.actors.contract.decisions import Reject as Reject
from greenroom.actors.contract.decisions import SetResult as SetResult
from greenroom.actors.contract.decisions import Suspend as Suspend
from greenroom.actors.contract.decisions import Ticket as Ticket
from greenroom.actors.contract.decisions import Trip as Trip
from greenroom.actors.contract.decisions import Verdict as Verdict
from greenroom.actors.contract.envelope import Event as Event
from greenroom.actors.contract.facts import CallFacts as CallFacts
from greenroom.actors.contract.facts import FinalOutput as FinalOutput
from greenroom.actors.contract.failures import FAILURES as FAILURES
from greenroom.actors.contract.lifecycle import RunStatus as RunStatus
from greenroom.actors.contract.lifecycle import Stage as Stage
from greenroom.actors.contract.lifecycle import Termination as Termination
from greenroom.actors.contract.lifecycle import TerminationKind as TerminationKind
from greenroom.actors.contract.messages import CallRequest as CallRequest
from greenroom.actors.contract.messages import FinishReason as FinishReason
from greenroom.actors.contract.messages import Message as Message
from greenroom.actors.contract.messages import ModelRequest as ModelRequest
from greenroom.actors.contract.messages import ModelResponse as ModelResponse
from greenroom.actors.contract.messages import ToolInfo as ToolInfo
from greenroom.actors.contract.messages import Usage as Usage
from greenroom.actors.contract.outcomes import Cancelled as Cancelled
from greenroom.actors.contract.outcomes import Completed as Completed
from greenroom.actors.contract.outcomes import Failed as Failed
from greenroom.actors.contract.outcomes import OutcomeError as OutcomeError
from greenroom.actors.contract.outcomes import RunCancelledError as RunCancelledError
from greenroom.actors.contract.outcomes import RunFailedError as RunFailedError
from greenroom.actors.contract.outcomes import RunWaitingError as RunWaitingError
from greenroom.actors.contract.outcomes import Stopped as Stopped
from greenroom.actors.contract.outcomes import Waiting as Waiting
from greenroom.actors.contract.artifacts import Artifact as Artifact
from greenroom.actors.contract.parts import Part as Part
from greenroom.actors.contract.phases import Phase as Phase
from greenroom.actors.contract.preparation import Preparation as Preparation
from greenroom.actors.contract.rows import RunInfo as RunInfo
from greenroom.actors.contract.run_lists import RunCounts as RunCounts
from greenroom.actors.contract.run_lists import RunPage as RunPage
from greenroom.actors.contract.run_lists import RunQuery as RunQuery
from greenroom.actors.contract.run_lists import RunSummary as RunSummary
from greenroom.actors.contract.spec import ExecutionMode as ExecutionMode
from greenroom.actors.contract.tasks import TaskView as TaskView
from greenroom.actors.contract.threads.lists import HistoryQuery as HistoryQuery
from greenroom.actors.contract.threads.lists import ThreadPage as ThreadPage
from greenroom.actors.contract.threads.lists import ThreadQuery as ThreadQuery
from greenroom.actors.contract.threads.lists import ThreadSummary as ThreadSummary
from greenroom.actors.contract.threads.messages import ThreadMessage as ThreadMessage
from greenroom.actors.contract.threads.messages import ThreadMessages as ThreadMessages
from greenroom.actors.environment import env as env
from greenroom.actors.errors import AgentDefinitionError as AgentDefinitionError
from greenroom.actors.errors import GreenroomError as GreenroomError
from greenroom.actors.errors import LeaseLost as LeaseLost
from greenroom.actors.errors import LogReplaced as LogReplaced
from greenroom.actors.errors import ModelError as ModelError
from greenroom.actors.errors import ModelErrorKind as ModelErrorKind
from greenroom.actors.errors import AgentLoadError as AgentLoadError
from greenroom.actors.errors import InvalidAttachment as InvalidAttachment
from greenroom.actors.errors import PreparationError as PreparationError
from greenroom.actors.errors import RunDegradedError as RunDegradedError
from greenroom.actors.errors import RunExists as RunExists
from greenroom.actors.errors import RunPruned as RunPruned
from greenroom.actors.errors import RuntimeClosed as RuntimeClosed
from greenroom.actors.errors import RuntimeFailed as RuntimeFailed
from greenroom.actors.errors import StateError as StateError
from greenroom.actors.errors import StoreDown as StoreDown
from greenroom.actors.errors import StoreError as StoreError
from greenroom.actors.errors import StoreOpenError as StoreOpenError
from greenroom.actors.errors import StoreUnavailable as StoreUnavailable
from greenroom.actors.errors import ThreadBusy as ThreadBusy
from greenroom.actors.errors import ThreadForbidden as ThreadForbidden
from greenroom.actors.errors import ToolDefinitionError as ToolDefinitionError
from greenroom.actors.errors import ToolError as ToolError
from greenroom.actors.errors import UnknownAgent as UnknownAgent
from greenroom.actors.errors import UnknownArtifact as UnknownArtifact
from greenroom.actors.errors import UnknownPart as UnknownPart
from greenroom.actors.errors import UnknownRun as UnknownRun
from greenroom.actors.errors import UnknownThread as UnknownThread
from greenroom.actors.errors import UsageError as UsageError
from greenroom.actors.errors import WorkspaceRefused as WorkspaceRefused
from greenroom.actors.agents.handoff import Handoff as Handoff
from greenroom.actors.agents.handoff import handoff as handoff
from greenroom.actors.plugins.contexts import GateContext as GateContext
from greenroom.actors.plugins.contexts import PhaseContext as PhaseContext
from greenroom.actors.plugins.guardrails import input_guardrail as input_guardrail
from greenroom.actors.plugins.guardrails import output_guardrail as output_guardrail
from greenroom.actors.plugins.guardrails import tool_input_guardrail as tool_input_guardrail
from greenroom.actors.plugins.guardrails import tool_output_guardrail as tool_output_guardrail
from greenroom.actors.plugins.mutation import Mutation as Mutation
from greenroom.actors.plugins.mutation import MutationError as MutationError
from greenroom.actors.plugins.plugin import Plugin as Plugin
from greenroom.actors.contract.policies import Price as Price
from greenroom.actors.plugins.compaction import Compaction as Compaction
from greenroom.actors.plugins.policies import Budget as Budget
from greenroom.actors.plugins.policies import CircuitBreaker as CircuitBreaker
from greenroom.actors.plugins.policies import ContinueTruncated as ContinueTruncated
from greenroom.actors.plugins.policies import Fallback as Fallback
from greenroom.actors.plugins.policies import IdleTimeout as IdleTimeout
from greenroom.actors.plugins.policies import Recovery as Recovery
from greenroom.actors.plugins.policies import Retry as Retry
from greenroom.actors.plugins.window import ContextWindow as ContextWindow
from greenroom.actors.evidence.account import RunEvidence as RunEvidence
from greenroom.actors.replay.report import Difference as Difference
from greenroom.actors.replay.report import ReplayReport as ReplayReport
from greenroom.actors.replay.report import Unreplayable as Unreplayable
from greenroom.actors.runtime.commands import RunCommands as RunCommands
from greenroom.actors.services.follow import Follower as Follower
from greenroom.actors.runtime.handle import Run as Run
from greenroom.actors.runtime.open_runtime import open_runtime as open_runtime
from greenroom.actors.runtime.open_runtime import run as run
from greenroom.actors.runtime.reader import RunReader as RunReader
from greenroom.actors.runtime.run_access import RunAccess as RunAccess
from greenroom.actors.runtime.reader import RuntimeStatistics as RuntimeStatistics
from greenroom.actors.runtime.runtime import Runtime as Runtime
from greenroom.actors.services.event_buffer import EventSlice as EventSlice
from greenroom.actors.run.view import RunView as RunView
from greenroom.actors.contract.waiting_for import WaitingFor as WaitingFor
from greenroom.actors.state.access import State as State
from greenroom.actors.state.access import WritableState as WritableState
from greenroom.actors.state.keys import StateKey as StateKey
from greenroom.actors.state.keys import commutative as commutative
from greenroom.actors.stores.memory.store import MemoryStore as MemoryStore
from greenroom.actors.stores.sqlite.store import SQLiteStore as SQLiteStore
from greenroom.actors.tools.context import SyncToolContext as SyncToolContext
from greenroom.actors.tools.context import ToolContext as ToolContext
from greenroom.actors.tools.definition import Tool as Tool
from greenroom.actors.tools.definition import tool as tool
from greenroom.actors.tools.preparing import PreparationContext as PreparationContext
from greenroom.actors.tools.toolset import Toolset as Toolset
from greenroom.supervision.public import publish as _publish

__version__ = "0.1.0"

if _TYPE_CHECKING:
    from greenroom import backends as backends
    from greenroom import ext as ext
    from greenroom import mcp as mcp
else:

    def __getattr__(name: str) -> object:
        """Import a module at its first use: most programs have neither rules nor workspaces, programs nor servers."""
        if name in ("backends", "ext", "mcp"):
            return _import_module(f"greenroom.{name}")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "__version__",
    "Agent",
    "AgentDefinitionError",
    "Artifact",
    "Allow",
    "CommandResult",
    "TicketSummary",
    "Block",
    "CallFacts",
    "CallRequest",
    "CallStatus",
    "Budget",
    "CallDelta",
    "Cancelled",
    "CircuitBreaker",
    "ContinueTruncated",
    "Compaction",
    "Completed",
    "ContextWindow",
    "Decision",
    "Deny",
    "Difference",
    "Event",
    "ExecutionMode",
    "FAILURES",
    "Failed",
    "Fallback",
    "File",
    "FinishReason",
    "FinalOutput",
    "Follower",
    "GateContext",
    "GreenroomError",
    "Handoff",
    "HistoryQuery",
    "IdleTimeout",
    "Image",
    "InvalidAttachment",
    "LeaseLost",
    "LogReplaced",
    "MemoryStore",
    "Message",
    "Model",
    "ModelDelta",
    "ModelError",
    "ModelErrorKind",
    "ModelEvent",
    "ModelRequest",
    "ModelResponse",
    "Mutation",
    "MutationError",
    "AgentLoadError",
    "OutcomeError",
    "Part",
    "Phase",
    "Preparation",
    "PreparationContext",
    "PreparationError",
    "PhaseContext",
    "Plugin",
    "Price",
    "Pruned",
    "ReasoningDelta",
    "Reject",
    "Recovery",
    "ReplayReport",
    "Retry",
    "Run",
    "RunCancelledError",
    "RunCommands",
    "RunCounts",
    "RunDegradedError",
    "RunEvidence",
    "RunExists",
    "RunFailedError",
    "RunInfo",
    "RunPage",
    "RunPruned",
    "RunQuery",
    "RunAccess",
    "RunReader",
    "RunStatus",
    "RunSummary",
    "RunView",
    "RunWaitingError",
    "Runtime",
    "RuntimeClosed",
    "RuntimeFailed",
    "RuntimeStatistics",
    "SQLiteStore",
    "SetResult",
    "EventSlice",
    "Stage",
    "State",
    "StateError",
    "StateKey",
    "Stopped",
    "Store",
    "Surroundings",
    "StoreDown",
    "StoreError",
    "StoreOpenError",
    "StoreUnavailable",
    "Suspend",
    "SyncToolContext",
    "TaskView",
    "Termination",
    "TerminationKind",
    "TextDelta",
    "ThreadBusy",
    "ThreadForbidden",
    "ThreadMessage",
    "ThreadMessages",
    "ThreadPage",
    "ThreadQuery",
    "ThreadSummary",
    "Ticket",
    "Tool",
    "ToolContext",
    "ToolDefinitionError",
    "ToolError",
    "ToolInfo",
    "Toolset",
    "Trip",
    "UnknownAgent",
    "UnknownArtifact",
    "UnknownPart",
    "UnknownRun",
    "UnknownThread",
    "Unreplayable",
    "Usage",
    "UsageError",
    "WorkspaceRefused",
    "UsageReport",
    "Verdict",
    "Waiting",
    "WaitingFor",
    "WritableState",
    "commutative",
    "env",
    "ext",
    "filters",
    "handoff",
    "input_guardrail",
    "open_runtime",
    "output_guardrail",
    "run",
    "stop",
    "stop_at_tools",
    "tool",
    "tool_agent",
    "tool_input_guardrail",
    "tool_output_guardrail",
]

_publish(__name__, globals(), [name for name in __all__ if name != "ext"])
