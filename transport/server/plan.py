"""The options of a gateway that do not depend on how it is reached."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import get_args

import greenroom as gr
from greenroom.actors.options import unknown_value

from ..frontends.mcp.tools import check_exposed
from ..gateway.access import OriginPolicy, Principal, TokenTable
from ..gateway.exposed import Cards, a2a_options
from ..gateway.gateway import Gateway, OnAbort
from ..gateway.prices import checked_prices
from ..gateway.sign_ins.sign_in import Authenticate, SignIn
from ..protocol.limits import Limits
from .routes import routes_with


def all_principals(principals: Iterable[Principal], token: str | None) -> tuple[Principal, ...]:
    """Return the principals, with the operator if there is a token.

    Raises:
        UsageError: Two have one name or one token.
    """
    who = tuple(principals)
    if token is not None:
        who = (*who, Principal(name="operator", token=token))
    _check(who)
    return who


def all_sign_ins(authenticate: Authenticate | SignIn | Iterable[SignIn]) -> tuple[SignIn, ...]:
    """Return the sign-ins of an option.

    Raises:
        UsageError: It is something else.
    """
    if isinstance(authenticate, SignIn):
        return (authenticate,)
    if not isinstance(authenticate, Iterable):
        return (SignIn(authenticate),)
    sign_ins = tuple(authenticate)
    wrong = [one for one in sign_ins if not isinstance(one, SignIn)]
    if wrong:
        raise gr.UsageError(f"authenticate has {wrong[0]!r:.100}; give an async function, a SignIn, or several SignIns")
    return sign_ins


async def plan_gateway(
    runtime: gr.Runtime,
    principals: Iterable[Principal],
    *,
    limits: Limits | None,
    on_abort: OnAbort,
    a2a: Iterable[str] | None,
    a2a_default: str | None,
    a2a_cards: Cards,
    mcp: Iterable[str] | None,
    sign_ins: Sequence[SignIn],
    prices: Mapping[str, gr.Price] | None,
) -> Callable[[OriginPolicy], Gateway]:
    """Check the options of a gateway, as in `serve`; return a function that makes it.

    Raises:
        UsageError: An option is invalid.
    """
    if on_abort not in get_args(OnAbort):
        raise unknown_value("on_abort", on_abort, get_args(OnAbort))
    tools, price_table = check_exposed(runtime.agents, mcp), checked_prices(prices)
    agents = {*runtime.agents, *await runtime.store.agents()}
    offers = a2a_options(a2a, a2a_default, a2a_cards, agents)

    def make(doorway: OriginPolicy) -> Gateway:
        return Gateway(
            runtime=runtime,
            keyring=TokenTable(principals),
            doorway=doorway,
            limits=limits or Limits(),
            routes=routes_with(offers),
            on_abort=on_abort,
            a2a=offers,
            mcp=tools,
            sign_ins=sign_ins,
            prices=price_table,
        )

    return make


def _check(who: Sequence[Principal]) -> None:
    names = [principal.name for principal in who]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise gr.UsageError(f"two principals have the name {twice[0]!r}; events name them, so names must be unique")
    by_token = {principal.token: principal.name for principal in who}
    for principal in who:
        if by_token[principal.token] != principal.name:
            raise gr.UsageError(
                f"{principal.name!r} and {by_token[principal.token]!r} have the same token; give each one of its own"
            )
