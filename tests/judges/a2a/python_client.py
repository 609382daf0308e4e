"""The official A2A client in Python (asyncio) as a judge, in a process of its own: python_client.py URL BINDING TOKEN

Reads a JSON line {do, params} and writes lines: {item} for each item of a stream, then {end: null}; {result}; or
{error: {name, message}}. Requests and answers are the JSON of the protocol: the client's own codec is between.
"""

import asyncio  # noqa: TID251 - the official client runs on it
import json
import sys

import httpx
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.types import a2a_pb2 as pb
from google.protobuf.json_format import MessageToDict, ParseDict


def say(line):
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


async def performed(client, card, name, params):
    match name:
        case "card":
            say({"result": MessageToDict(card)})
        case "stream" | "send":
            request = ParseDict(params, pb.SendMessageRequest())
            async for item in client.send_message(request):
                say({"item": MessageToDict(item)})
            say({"end": None})
        case "subscribe":
            async for item in client.subscribe(ParseDict(params, pb.SubscribeToTaskRequest())):
                say({"item": MessageToDict(item)})
            say({"end": None})
        case "get":
            say({"result": MessageToDict(await client.get_task(ParseDict(params, pb.GetTaskRequest())))})
        case "list":
            say({"result": MessageToDict(await client.list_tasks(ParseDict(params, pb.ListTasksRequest())))})
        case "cancel":
            say({"result": MessageToDict(await client.cancel_task(ParseDict(params, pb.CancelTaskRequest())))})


async def main(url, binding, token):
    headers = {"Authorization": f"Bearer {token}"}
    card = None
    async with httpx.AsyncClient(headers=headers, timeout=60) as http:
        clients = {}
        while line := await asyncio.to_thread(sys.stdin.readline):
            asked = json.loads(line)
            try:
                card = card or await A2ACardResolver(http, url).get_agent_card()
                for streaming in (True, False):
                    config = ClientConfig(httpx_client=http, supported_protocol_bindings=[binding], streaming=streaming)
                    clients.setdefault(streaming, ClientFactory(config).create(card))
                await performed(clients[asked["do"] != "send"], card, asked["do"], asked.get("params") or {})
            except Exception as error:  # noqa: BLE001 - whatever the client raises is its answer
                say({"error": {"name": type(error).__name__, "message": str(error)}})


asyncio.run(main(*sys.argv[1:]))
