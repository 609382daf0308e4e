"""An MCP server on standard streams for tests: standard library only, so that it starts in some 30 ms. Both eras.

    python mcp_program.py [modern | handshake] [LOG]

LOG gets a line for each call that it executes, and for each page of its list. What a tool does is in `TOOLS`.
"""

import json
import os
import sys
import threading

ERA = sys.argv[1] if len(sys.argv) > 1 else "modern"
LOG = sys.argv[2] if len(sys.argv) > 2 else None
MODERN = "2026-07-28"
HANDSHAKE = "2025-11-25"
TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
ANY = {"type": "object"}
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
writing = threading.Lock()
cancelled, answers = {}, {}


def send(message):
    with writing:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()


def text(value, **more):
    return {"content": [{"type": "text", "text": value}], **more}


def request(method, params):
    """Ask the client (handshake era), and return its answer."""
    number = f"s{len(answers)}"
    answers[number] = [threading.Event(), None]
    send({"id": number, "method": method, "params": params})
    answers[number][0].wait()
    return answers[number][1]


def echo(params, number):
    return text(params["arguments"]["text"])


def add(params, number):
    total = sum(params["arguments"]["numbers"])
    return text(str(total), structuredContent={"sum": total})


def wrong(params, number):
    return text("six", structuredContent={"sum": "six"})


def picture(params, number):
    parts = [{"type": "text", "text": "here"}, {"type": "image", "data": PNG, "mimeType": "image/png"}]
    link = {"type": "resource_link", "uri": "file:///a.txt", "name": "a.txt"}
    blob = {"type": "resource", "resource": {"uri": "file:///b.pdf", "blob": "JVBERg==", "mimeType": "application/pdf"}}
    return {"content": [*parts, link, blob]}


def fail(params, number):
    return text("no such issue", isError=True)


def slow(params, number):
    cancelled[number] = threading.Event()
    progress = {"progressToken": params["_meta"]["progressToken"], "progress": 1}
    send({"method": "notifications/progress", "params": progress})
    cancelled[number].wait(30)
    note("cancelled")


def die(params, number):
    os._exit(3)


def die_once(params, number):
    with open(LOG) as file:
        if file.read().split().count("die_once") == 1:
            os._exit(3)
    return text("alive")


def key(params, number):
    return text(params["_meta"]["greenroom/key"])


def secret(params, number):
    sys.stderr.write(f"stderr has {os.environ.get('CANARY')}\n")
    sys.stderr.flush()
    if params["arguments"].get("fail"):
        return text(f"the error has {os.environ.get('CANARY')}", isError=True)
    here = "; ".join(f"{name} is {name in os.environ}" for name in ("HOME", "OTHER"))
    return text(f"the result has {os.environ.get('CANARY')}; {here}")


def pid(params, number):
    return text(str(os.getpid()))


def rename(params, number):
    TOOLS["renamed"] = TOOLS.pop("echo")
    send({"method": "notifications/tools/list_changed"})
    return text("renamed")


def report(params, number):
    token = params["_meta"]["progressToken"]
    for step in (1, 2):
        progress = {"progressToken": token, "progress": step, "total": 4, "message": f"step {step}"}
        send({"method": "notifications/progress", "params": progress})
    send({"method": "notifications/message", "params": {"level": "info", "data": "half way"}})
    threading.Event().wait(0.1)  # a report that comes after the result is none
    return text("reported")


def ask(params, number):
    schema = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    form = {"mode": "form", "message": "Who are you?", "requestedSchema": schema}
    if ERA == "handshake":
        answer = request("elicitation/create", form)["result"]
    elif "inputResponses" not in params:
        requests = {"who": {"method": "elicitation/create", "params": form}}
        return {"resultType": "input_required", "inputRequests": requests, "requestState": "state-1"}
    else:
        assert params["requestState"] == "state-1"
        answer = params["inputResponses"]["who"]
    return text(json.dumps(answer))


TOOLS = {
    "echo": (echo, TEXT, {"annotations": {"readOnlyHint": True}}),
    "add": (
        add,
        {"type": "object", "properties": {"numbers": {"type": "array", "items": {"type": "number"}}}},
        {"outputSchema": {"type": "object", "properties": {"sum": {"type": "number"}}, "required": ["sum"]}},
    ),
    "wrong": (wrong, ANY, {"outputSchema": {"type": "object", "properties": {"sum": {"type": "number"}}}}),
    "picture": (picture, ANY, {}),
    "fail": (fail, ANY, {}),
    "slow": (slow, ANY, {}),
    "die": (die, ANY, {}),
    "die_once": (die_once, ANY, {"annotations": {"idempotentHint": True}}),
    "key": (key, ANY, {}),
    "secret": (secret, ANY, {"description": f"Do secret. {os.environ.get('CANARY', '')}"}),
    "ask": (ask, ANY, {}),
    "pid": (pid, ANY, {}),
    "rename": (rename, ANY, {}),
    "report": (report, ANY, {}),
    "odd.name/of a tool": (echo, TEXT, {}),
}


def note(line):
    if LOG:
        with open(LOG, "a") as file:
            file.write(f"{line}\n")


def call(params, number):
    name = params["name"]
    note(name)
    result = TOOLS[name][0](params, number)
    if result is not None:
        reply(number, result)


def reply(number, result):
    send({"id": number, "result": {"resultType": "complete", **result} if ERA == "modern" else result})


def tools(cursor):
    note("tools/list")
    made = [
        {"name": name, "description": f"Do {name}.", "inputSchema": schema, **more}
        for name, (_, schema, more) in TOOLS.items()
    ]
    pages = int(os.environ.get("PAGES", "1"))
    size, page = -(-len(made) // pages), int(cursor or 0)
    more = {"nextCursor": str(page + 1)} if page + 1 < pages else {}
    kept = {"ttlMs": 60_000, "cacheScope": "private"} if ERA == "modern" else {}
    return {"tools": made[page * size :][:size], **more, **kept}


def heed(message):
    method, number, params = message.get("method"), message.get("id"), message.get("params") or {}
    if method is None and number in answers:
        answers[number][1] = message
        answers[number][0].set()
    elif method == "server/discover" and ERA == "modern":
        reply(
            number, {"supportedVersions": [MODERN], "capabilities": {"tools": {}}, "ttlMs": 0, "cacheScope": "private"}
        )
    elif method == "initialize" and ERA == "handshake":
        info = {"name": "tests", "version": "1"}
        reply(number, {"protocolVersion": HANDSHAKE, "capabilities": {"tools": {}}, "serverInfo": info})
    elif method == "tools/list":
        reply(number, tools(params.get("cursor")))
    elif method == "tools/call":
        threading.Thread(target=call, args=(params, number), daemon=True).start()
    elif method == "notifications/cancelled":
        if params["requestId"] in cancelled:
            cancelled[params["requestId"]].set()
    elif number is not None:
        send({"id": number, "error": {"code": -32601, "message": f"no method {method}"}})


for line in sys.stdin:
    heed(json.loads(line))
