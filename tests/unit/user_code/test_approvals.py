"""Whether a person must approve a call: everything but a clear no of the tool's predicate means yes."""

import pytest
import trio

from greenroom.actors.tools import ToolContext, tool
from greenroom.actors.user_code.approvals import wants_approval

from ...support.stray_cancels import ctrl_c, foreign_cancellation, to_its_end


@pytest.mark.parametrize(
    ("predicate", "needed"),
    [
        (True, True),
        (False, False),
        (lambda ctx, a: a["cents"] > 100, True),
        (lambda ctx, a: a["cents"] > 1000, False),
        (lambda ctx, a: a["nothing"], True),
        (lambda ctx, a: None, True),
        (lambda ctx, a: 0, True),
        (lambda ctx, a: a["limit"] != 9, False),
    ],
    ids=["always", "never", "yes", "no", "raises", "no answer", "no bool", "sees defaults"],
)
async def test_approval_is_needed_unless_the_predicate_clearly_says_no(predicate, needed):
    async def pay(cents: int, limit: int = 9) -> None: ...

    assert (await wants_approval(tool(pay, needs_approval=predicate), ToolContext(), {"cents": 500})).needed is needed


async def test_predicates_may_be_async_and_see_deps_and_malformed_arguments_need_approval():
    async def small(ctx: ToolContext, arguments) -> bool:
        await trio.lowlevel.checkpoint()
        return arguments["cents"] > ctx.deps

    @tool(needs_approval=small)
    async def pay(cents: int) -> None: ...

    assert not (await wants_approval(pay, ToolContext(deps=600), {"cents": 500})).needed
    assert (await wants_approval(pay, ToolContext(deps=400), {"cents": 500})).needed
    assert (await wants_approval(pay, ToolContext(deps=600), {"cents": "500"})).needed
    with trio.CancelScope() as scope:
        scope.cancel()
        await wants_approval(pay, ToolContext(deps=600), {"cents": 500})
    assert scope.cancelled_caught


@pytest.mark.rule("A-2")
@pytest.mark.parametrize("swallows", [False, True])
async def test_a_predicate_that_does_not_answer_means_approval(swallows, autojump_clock):
    """A call may not stand for ever before a question that no person can see; and a late no is none."""

    async def asks_a_dead_service(ctx: ToolContext, arguments) -> bool:
        try:
            await trio.sleep_forever()
        except trio.Cancelled:  # noqa: ASYNC103 - the rude one is what is tested
            if not swallows:
                raise
        return False

    async def body() -> None: ...

    began = trio.current_time()
    assert (await wants_approval(tool(body, needs_approval=asks_a_dead_service), ToolContext(), {})).needed
    assert trio.current_time() - began == 30


async def test_a_predicate_that_lets_a_foreign_cancellation_out_means_approval():
    async def hands_it_on(ctx: ToolContext, arguments) -> bool:
        raise await foreign_cancellation()

    async def body() -> None: ...

    async def scene() -> None:
        assert (await wants_approval(tool(body, needs_approval=hands_it_on), ToolContext(), {})).needed

    await to_its_end(scene)


async def test_a_real_interrupt_of_a_predicate_passes_and_a_raised_one_needs_approval():
    def interrupted(ctx, arguments) -> bool:
        ctrl_c()
        return False

    def pretends(ctx, arguments) -> bool:
        raise BaseExceptionGroup("both", [KeyboardInterrupt(), ValueError()])

    async def body() -> None: ...

    with pytest.raises(KeyboardInterrupt):
        await wants_approval(tool(body, needs_approval=interrupted), ToolContext(), {})
    assert (await wants_approval(tool(body, needs_approval=pretends), ToolContext(), {})).needed
