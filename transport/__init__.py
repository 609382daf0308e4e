"""The transport layer: gateway, client, command line, terminal.

The package exports `serve` and `Address`, `asgi_app` and `AsgiApp`, `connect` and `Client`, `Principal` and `Limits`,
and for the sign-in of people `SignIn`, `SignInRequest`, `SignInRefusal`, `token_file` and `trusted_proxy`; each is
loaded at its first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from greenroom.supervision.public import publish

if TYPE_CHECKING:
    from .client import Client as Client
    from .client import connect as connect
    from .gateway.access import Principal as Principal
    from .gateway.sign_ins.sign_in import SignIn as SignIn
    from .gateway.sign_ins.sign_in import SignInRefusal as SignInRefusal
    from .gateway.sign_ins.sign_in import SignInRequest as SignInRequest
    from .gateway.sign_ins.token_file import token_file as token_file
    from .gateway.sign_ins.trusted_proxy import trusted_proxy as trusted_proxy
    from .protocol.limits import Limits as Limits
    from .server.asgi_app import AsgiApp as AsgiApp
    from .server.asgi_app import asgi_app as asgi_app
    from .server.serve import Address as Address
    from .server.serve import serve as serve

__all__ = [
    "Address",
    "AsgiApp",
    "Client",
    "Limits",
    "Principal",
    "SignIn",
    "SignInRefusal",
    "SignInRequest",
    "asgi_app",
    "connect",
    "serve",
    "token_file",
    "trusted_proxy",
]

_HOMES = {
    "Address": "server.serve",
    "AsgiApp": "server.asgi_app",
    "Client": "client",
    "Limits": "protocol.limits",
    "Principal": "gateway.access",
    "SignIn": "gateway.sign_ins.sign_in",
    "SignInRefusal": "gateway.sign_ins.sign_in",
    "SignInRequest": "gateway.sign_ins.sign_in",
    "asgi_app": "server.asgi_app",
    "connect": "client",
    "serve": "server.serve",
    "token_file": "gateway.sign_ins.token_file",
    "trusted_proxy": "gateway.sign_ins.trusted_proxy",
}


def __getattr__(name: str) -> Any:
    import importlib  # noqa: PLC0415 - the command line imports this package for every command

    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f".{home}", __name__)
    publish(__name__, vars(module), [name])
    return getattr(module, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})  # with the names that are loaded on demand, because `help` looks here
