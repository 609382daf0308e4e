"""Extensions: plugins that an agent may have beside its own.

rules = [gr.ext.Rule("allow", effect="shell", where={"argv": ["git", "status", "*"]})]
agent = gr.Agent("coder", tools=[shell], plugins=[gr.ext.Permission(rules)])
"""

from greenroom.actors.permission.judgement import Judgement as Judgement
from greenroom.actors.permission.judgement import RuleMatch as RuleMatch
from greenroom.actors.permission.plugin import Permission as Permission
from greenroom.actors.permission.plugin import RuleMemory as RuleMemory
from greenroom.actors.permission.plugin import load_rules as load_rules
from greenroom.actors.permission.remembered import RememberedRule as RememberedRule
from greenroom.actors.permission.remembered import remember as remember
from greenroom.actors.permission.rules import Rule as Rule
from greenroom.actors.permission.subject import Subject as Subject
from greenroom.supervision.public import publish as _publish

__all__ = [
    "Judgement",
    "Permission",
    "RememberedRule",
    "Rule",
    "RuleMatch",
    "RuleMemory",
    "Subject",
    "load_rules",
    "remember",
]

_publish(__name__, globals(), __all__)
