"""The failure catalogue: one table for code, events, user interfaces, documentation and tests.

Each row has the meaning of a code, a message that is safe to show, and the first thing to do, in English and Chinese.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs


@attrs.frozen(kw_only=True)
class FailureKind:
    """One row of the catalogue."""

    code: str
    meaning: str
    message: str
    recovery: str
    message_zh: str
    recovery_zh: str


def _row(code: str, meaning: str, en: tuple[str, str], zh: tuple[str, str]) -> FailureKind:
    return FailureKind(code=code, meaning=meaning, message=en[0], recovery=en[1], message_zh=zh[0], recovery_zh=zh[1])


_ROWS = (
    _row(
        "runtime_unavailable",
        "the program or server that should do the work is missing, not logged in, or of the wrong version",
        ("The runtime is not available.", "Check that it is installed, logged in and reachable, then start again."),
        ("运行时不可用。", "检查它是否已安装、已登录且可达,然后重新开始。"),
    ),
    _row(
        "runtime_failed",
        "the program or server that did the work has failed, or has stopped by itself",
        ("The runtime has failed.", "Read what it said at its end, then start again."),
        ("运行时已失败。", "查看它结束时的输出,然后重新开始。"),
    ),
    _row(
        "workspace_outside_allowlist",
        "the workspace is not below an allowed directory",
        ("The workspace is outside the allowed directories.", "Choose an allowed directory or extend the allowlist."),
        ("工作区不在允许的目录内。", "选择允许的目录,或扩充允许列表。"),
    ),
    _row(
        "permission_denied",
        "a policy or gate forbids the action",
        ("The action is not permitted.", "Read the reason; ask for another way or change the policy."),
        ("该操作不被允许。", "阅读原因;换一种方式,或修改策略。"),
    ),
    _row(
        "approval_rejected",
        "a reviewer denied the action and the policy ends the run",
        ("The approval was rejected.", "Read the reviewer's reason, adjust the task and start again."),
        ("审批被拒绝。", "阅读审批人的理由,调整任务后重新开始。"),
    ),
    _row(
        "run_timeout",
        "the run's deadline passed",
        ("The run took longer than its deadline.", "Start again with a later deadline or a smaller task."),
        ("运行超过了截止时间。", "用更晚的截止时间或更小的任务重新开始。"),
    ),
    _row(
        "schema_validation_failed",
        "data did not have the form that its schema demands",
        ("Some data did not have the expected form.", "Read the path in the detail and correct that value."),
        ("数据不符合约定的格式。", "查看详情中的路径并更正该值。"),
    ),
    _row(
        "target_offline",
        "the machine that holds the workspace is offline",
        ("The target is offline.", "Bring it online; the run can then be resumed."),
        ("目标离线。", "让目标上线;之后可以继续该运行。"),
    ),
    _row(
        "model_error",
        "the model could not be called; the detail names the class (rate_limited, overloaded, ...)",
        ("The model could not be called.", "Try again later or choose another model."),
        ("无法调用模型。", "稍后重试或选择其他模型。"),
    ),
    _row(
        "model_bug",
        "the model's own code raised an exception that is no ModelError",
        (
            "The model's code raised an error.",
            "Find the traceback in the log by the failure's error_id, and repair it.",
        ),
        ("模型代码抛出了异常。", "用该失败的 error_id 在日志中找到回溯信息,并修复它。"),
    ),
    _row(
        "model_behavior_error",
        "the model answered something that cannot be acted on",
        ("The model's answer could not be used.", "Start again, or make the instructions more precise."),
        ("模型的回答无法使用。", "重新开始,或让指令更明确。"),
    ),
    _row(
        "model_refusal",
        "the model refused to answer",
        ("The model refused.", "Rephrase the task."),
        ("模型拒绝回答。", "换一种方式描述任务。"),
    ),
    _row(
        "guardrail_tripped",
        "an input or output guardrail stopped the run",
        ("A guardrail stopped the run.", "Read what it found and change the input."),
        ("护栏终止了运行。", "查看其发现并修改输入。"),
    ),
    _row(
        "tool_error",
        "a tool failed and is declared to end the run",
        ("A tool failed.", "Read the tool's message; the log has a traceback under the failure's error_id."),
        ("工具执行失败。", "阅读工具的消息;回溯信息在日志中,以该失败的 error_id 标明。"),
    ),
    _row(
        "plugin_error",
        "a hook raised or took too long",
        (
            "A plugin failed.",
            "Repair or remove the plugin that is named; the log has a traceback under the failure's error_id.",
        ),
        ("插件失败。", "修复或移除所指的插件;回溯信息在日志中,以该失败的 error_id 标明。"),
    ),
    _row(
        "state_conflict",
        "two calls wrote the same exclusive state key",
        ("Two steps wrote the same value.", "Make the key commutative or the tools sequential."),
        ("两个步骤写入了同一个值。", "把该键设为可交换,或让工具顺序执行。"),
    ),
    _row(
        "budget_exhausted",
        "a token or cost budget is used up",
        ("The budget is used up.", "Raise the budget or shorten the task."),
        ("预算已用完。", "提高预算或缩短任务。"),
    ),
    _row(
        "lease_lost",
        "another process owns the run now",
        ("Another process has taken over the run.", "Nothing to do: follow the run where it is."),
        ("另一个进程已接管该运行。", "无需操作:在新位置关注该运行。"),
    ),
    _row(
        "outcome_unknown",
        "a call was in flight when the process ended; it is unknown whether it took effect",
        ("It is not known whether the action took effect.", "Check the world, then give the result, repeat or cancel."),
        ("无法确定该操作是否已生效。", "先检查实际情况,再给出结果、重试或取消。"),
    ),
    _row(
        "internal_error",
        "Greenroom itself failed; a bug",
        ("An internal error ended the run.", "Report it with the run's id."),
        ("内部错误终止了运行。", "请附上运行编号报告此问题。"),
    ),
)

FAILURES: Final[Mapping[str, FailureKind]] = {row.code: row for row in _ROWS}
"""Code -> row."""


_OF_KINDS: Final[Mapping[str, tuple[str, str]]] = {
    "unauthorized": ("Check the model's key and what it may be used for.", "检查模型的密钥及其权限。"),
    "model_not_found": ("Check the model's name.", "检查模型名称。"),
    "invalid_request": (
        "Read what the provider refused, and correct the settings.",
        "查看提供方拒绝的内容,并更正设置。",
    ),
    "context_overflow": ("Shorten the thread, or choose a model that reads more.", "缩短会话,或选择上下文更大的模型。"),
    "content_filtered": ("Rephrase the task.", "换一种方式描述任务。"),
}
"""Kind of a model_error, with which its detail begins -> the first thing to do, where a retry would not help."""


def advice(code: str, detail: str | None = None) -> tuple[str, str] | None:
    """Return the first thing to do about a failure, in English and Chinese; None if the code is not in the catalogue.

    Args:
        code: The code of the failure.
        detail: its message; for a model_error it begins with the kind of the error.
    """
    row = FAILURES.get(code)
    if row is None:
        return None
    kind = (detail or "").partition(":")[0] if code == "model_error" else ""
    return _OF_KINDS.get(kind, (row.recovery, row.recovery_zh))
