"""Extensions: plugins and tools that an agent may have beside its own, and workspaces for the tools.

rules = [gr.ext.Rule("allow", effect="shell", where={"argv": ["git", "status", "*"]})]
agent = gr.Agent("coder", tools=[shell], plugins=[gr.ext.Permission(rules)])
"""

from greenroom.actors.backends.workspace_tools import workspace_tools as workspace_tools
from greenroom.actors.permission.judgement import Judgement as Judgement
from greenroom.actors.permission.judgement import RuleMatch as RuleMatch
from greenroom.actors.permission.plugin import Permission as Permission
from greenroom.actors.permission.plugin import load_rules as load_rules
from greenroom.actors.permission.remembered import Always as Always
from greenroom.actors.permission.remembered import RememberedRule as RememberedRule
from greenroom.actors.permission.rules import Rule as Rule
from greenroom.actors.permission.subject import Subject as Subject
from greenroom.actors.workspaces.difference import ChangedFile as ChangedFile
from greenroom.actors.workspaces.errors import WorkspaceError as WorkspaceError
from greenroom.actors.workspaces.proposals import Proposal as Proposal
from greenroom.actors.workspaces.records import ApplyResult as ApplyResult
from greenroom.actors.workspaces.service import Workspaces as Workspaces
from greenroom.actors.workspaces.service import open_workspaces as open_workspaces
from greenroom.actors.workspaces.workspace import Workspace as Workspace
from greenroom.actors.workspaces.worktree import Worktree as Worktree
from greenroom.supervision.public import publish as _publish

__all__ = [
    "Always",
    "ApplyResult",
    "ChangedFile",
    "Judgement",
    "Permission",
    "Proposal",
    "RememberedRule",
    "Rule",
    "RuleMatch",
    "Subject",
    "Workspace",
    "WorkspaceError",
    "Workspaces",
    "Worktree",
    "load_rules",
    "open_workspaces",
    "workspace_tools",
]

_publish(__name__, globals(), __all__)
