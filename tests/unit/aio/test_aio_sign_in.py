"""A sign-in of asyncio: the function runs in the loop of the host, and a person is revoked there."""

import asyncio  # noqa: TID251 - the host of the tests

import httpx
from tests.support.in_asyncio import in_asyncio

from greenroom import aio
from greenroom.transport import Principal, SignIn, SignInRefusal


@in_asyncio
async def test_a_function_of_asyncio_says_who_a_request_is_from_and_the_host_revokes() -> None:
    loop, people = asyncio.get_running_loop(), {"token of ann": "ann"}

    @aio.in_host
    async def authenticate(request):
        assert asyncio.get_running_loop() is loop
        await asyncio.sleep(0)
        name = people.get(request.token)
        return SignInRefusal(message="signed out") if name is None else Principal(name=name)

    sign_in = SignIn(authenticate)
    async with aio.open_runtime() as runtime, aio.asgi_app(runtime, authenticate=sign_in) as app:
        transport, headers = httpx.ASGITransport(app), {"authorization": "Bearer token of ann"}
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost:8765", headers=headers) as client:
            assert (await client.get("/v1/me")).json()["principal"] == "ann"
            del people["token of ann"]
            assert (await client.get("/v1/me")).json()["principal"] == "ann", "the answer still counts"
            assert sign_in.revoke("ann") == 0
            reply = await client.get("/v1/me")
            assert (reply.status_code, reply.json()["error"]["message"]) == (401, "signed out")
