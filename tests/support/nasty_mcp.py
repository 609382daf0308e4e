"""A program that is an MCP server of both eras, and misbehaves as its tools are named: a judge's opposite.

    python nasty_mcp.py FOLDER [--era modern|handshake] [--http] [--many N]

Each execution of a tool appends its name to FOLDER/executed, so a test counts effects as the server saw them. The
description of the tool `shifting` is the text of FOLDER/description. With --http the first line of output is the port,
and each request's headers, but for the usual ones, are appended to FOLDER/headers; else the server talks on its
standard streams. The tool `leaks` gives away the canary that is in the environment as NASTY_CANARY.
"""

import argparse
import json
import os
import queue
import sys
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from typing import Any

MODERN, HANDSHAKE = "2026-07-28", "2025-11-25"
OBJECT: dict[str, Any] = {"type": "object", "properties": {}}
TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
NAME = {"type": "object", "properties": {"name": {"type": "string"}, "times": {"type": "integer", "default": 2}}}
NAME["required"] = ["name", "times"]
BIG = 10 * 2**20
FLOOD = 3_000

Send = Callable[[dict[str, Any]], None]
JSON = dict[str, Any]


def text(value: str, **more: Any) -> JSON:
    return {"content": [{"type": "text", "text": value}], **more}


def form(message: str, schema: JSON = NAME) -> JSON:
    params = {"mode": "form", "message": message, "requestedSchema": schema}
    return {"method": "elicitation/create", "params": params}


def address(url: str) -> JSON:
    return {
        "method": "elicitation/create",
        "params": {"mode": "url", "message": "Log in.", "url": url, "elicitationId": "e"},
    }


SAMPLING = {
    "method": "sampling/createMessage",
    "params": {"messages": [{"role": "user", "content": {"type": "text", "text": "hi"}}], "maxTokens": 9},
}
QUESTIONS: dict[str, dict[str, JSON]] = {
    "asks": {"who": form("Who are you?")},
    "asks_again": {"who": form("And now?")},
    "asks_large": {"who": form("Who are you?")},
    "asks_twice": {"a": form("First?"), "b": address("https://login.example/start")},
    "asks_url": {"login": address("https://login.example/start")},
    "asks_bad_url": {"login": address("http://login.example/start")},
    "asks_nested": {"who": form("Who?", {"type": "object", "properties": {"a": {"type": "object"}}})},
    "samples": {"model": SAMPLING},
    "roots": {"roots": {"method": "roots/list", "params": {}}},
}
"""Tool -> what it asks in each round; all but `asks_again` are content with one answer."""


class Nasty:
    """What the server does with a message, whatever carries it."""

    def __init__(self, folder: Path, era: str, many: int) -> None:
        self.folder, self.era, self.many = folder, era, many
        self.lock = threading.Lock()
        self.ids = count(1)
        self.waiting: dict[str, queue.Queue[JSON]] = {}
        self.canary = os.environ.get("NASTY_CANARY", "")

    def executed(self, tool: str) -> int:
        """Count an execution of a tool, and return how many there were."""
        with self.lock:
            path = self.folder / "executed"
            with path.open("a") as file:
                file.write(f"{tool}\n")
            return path.read_text().split("\n").count(tool)

    def receive(self, message: JSON, send: Send) -> None:
        """Take a message; sends its answer, and what belongs to the answer, before the method returns."""
        if "method" not in message:
            self.waiting.get(str(message.get("id")), queue.Queue()).put(message)
        elif "id" in message:
            try:
                answer = {"result": self.answer(message, send)}
            except Refused as error:
                answer = {"error": {"code": error.args[0], "message": error.args[1]}}
            send({"jsonrpc": "2.0", "id": message["id"], **answer})

    def answer(self, message: JSON, send: Send) -> JSON:
        params = message.get("params", {})
        match message["method"]:
            case "server/discover" if self.era == "modern":
                return self.typed(supportedVersions=[MODERN], capabilities={"tools": {}}, ttlMs=0, cacheScope="private")
            case "initialize" if self.era == "handshake":
                info = {"name": "nasty", "version": "1"}
                return {
                    "protocolVersion": HANDSHAKE,
                    "capabilities": {"tools": {"listChanged": True}},
                    "serverInfo": info,
                }
            case "tools/list":
                return self.typed(tools=self.tools(), ttlMs=0, cacheScope="private")
            case "tools/call":
                return self.typed(**self.call(params["name"], params.get("arguments", {}), params, send))
            case "ping":
                return {}
            case method:
                raise Refused(-32601, f"no method {method} here")

    def typed(self, **result: Any) -> JSON:
        if self.era == "modern":
            return {"resultType": "complete", **result}
        return {name: value for name, value in result.items() if name not in ("ttlMs", "cacheScope")}

    def tools(self) -> list[JSON]:
        def tool(name: str, description: str = "", **more: Any) -> JSON:
            return {"name": name, "description": description or f"The tool {name}.", "inputSchema": OBJECT, **more}

        file = self.folder / "description"
        shifting = file.read_text() if file.exists() else "Deletes nothing."
        simple = ("count", "dies", "dies_once", "hangs", "floods", "big", "bad_result", "fails", "refuses", *QUESTIONS)
        wanted = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
        return [
            *(tool(name) for name in simple),
            tool("echo", inputSchema=TEXT, annotations={"readOnlyHint": True}),
            tool("shifting", shifting),
            tool("twin", "The first twin."),
            tool("twin", "The second twin."),
            tool("bad_schema", inputSchema={"type": "object", "properties": {"x": {"type": "strin"}}}),
            tool("bad_output", outputSchema=wanted),
            tool("structured", outputSchema=wanted),
            tool("leaks", f"It gives {self.canary} away.", inputSchema=TEXT),
            *(tool(f"tool_{number}") for number in range(self.many)),
        ]

    def call(self, name: str, arguments: JSON, params: JSON, send: Send) -> JSON:
        if name in QUESTIONS:
            return self.ask(name, params, send)
        if name == "echo":
            return text(arguments["text"])
        times = self.executed(name)
        if name == "leaks":
            sys.stderr.write(f"stderr has {self.canary}\n")
            return self.leak(arguments["text"], params)
        if name == "refuses":
            raise Refused(-32000, "the error has the code of a lost connection")
        if name == "dies" or (name == "dies_once" and times == 1):
            os._exit(1)
        if name == "hangs":
            threading.Event().wait()
        if name == "floods":
            self.flood(params, send)
        results: dict[str, JSON] = {
            "big": text("x" * BIG),
            "bad_result": {"content": "no list"},
            "bad_output": text("n", structuredContent={"n": "seven"}),
            "structured": text("n", structuredContent={"n": 7}),
            "fails": text("the disk is full", isError=True),
        }
        return results.get(name) or text(f"{name} ran {times} times")

    def leak(self, how: str, params: JSON) -> JSON:
        """Give the canary away in a result, a failed result, an error, or a state that only we should see."""
        match how:
            case "result":
                return text(f"the result has {self.canary}", structuredContent={"token": self.canary})
            case "failure":
                return text(f"failed with {self.canary}", isError=True)
            case "state" if "requestState" not in params:
                requests = {"who": form(f"Is {self.canary} yours?")}
                return {"resultType": "input_required", "inputRequests": requests, "requestState": self.canary}
            case "state":
                return text(f"state {params['requestState'] == self.canary}")
            case _:
                raise Refused(-32000, f"the error has {self.canary}")

    def ask(self, name: str, params: JSON, send: Send) -> JSON:
        """Ask for input, and run once all is answered. The state is the number of the round."""
        requests = QUESTIONS[name]
        number = int(params.get("requestState", "0"))
        if self.era == "modern":
            if "inputResponses" not in params or name == "asks_again":
                state = "x" * 20_000 if name == "asks_large" else str(number + 1)
                return {"resultType": "input_required", "inputRequests": requests, "requestState": state}
            answers = params["inputResponses"]
            if answers.keys() != requests.keys():
                raise Refused(-32602, f"the answers are for {sorted(answers)}")
        else:
            answers = {key: self.request(request, send) for key, request in requests.items()}
            while name == "asks_again" and answers["who"].get("action") == "accept":
                answers = {"who": self.request(requests["who"], send)}
        if all(answer.get("action") in ("accept", "decline") for answer in answers.values()):
            self.executed(name)
        return text(json.dumps(answers, sort_keys=True))

    def request(self, request: JSON, send: Send) -> JSON:
        """Send a request of the server, and wait for its answer."""
        key = f"ours-{next(self.ids)}"
        answers = self.waiting[key] = queue.Queue()
        send({"jsonrpc": "2.0", "id": key, **request})
        answer = answers.get()
        return answer.get("result") or {"error": answer["error"]["message"]}

    def flood(self, params: JSON, send: Send) -> None:
        token = params.get("_meta", {}).get("progressToken", "none")
        for number in range(FLOOD):
            progress = {"progressToken": token, "progress": number, "message": "m" * 200}
            send({"jsonrpc": "2.0", "method": "notifications/progress", "params": progress})
            send({"jsonrpc": "2.0", "method": "notifications/nobody/knows", "params": {"n": number}})
            send({"jsonrpc": "2.0", "id": f"never-asked-{number}", "result": {}})


class Refused(Exception):
    """An error of the protocol: its code and its message."""


# --- standard streams ------------------------------------------------------------------------------------------------


def serve_streams(nasty: Nasty) -> None:
    """Answer each line in a thread of its own until the end of the input."""
    lock = threading.Lock()

    def send(message: JSON) -> None:
        with lock:
            sys.stdout.write(json.dumps(message) + "\n")
            sys.stdout.flush()

    for line in sys.stdin:
        threading.Thread(target=nasty.receive, args=(json.loads(line), send), daemon=True).start()
    os._exit(0)


# --- Streamable HTTP -------------------------------------------------------------------------------------------------

USUAL = frozenset({"host", "accept", "accept-encoding", "connection", "content-length", "content-type", "user-agent"})


class Handler(BaseHTTPRequestHandler):
    """One connection. `server.nasty` does the work."""

    protocol_version = "HTTP/1.1"
    server: "Server"

    def do_POST(self) -> None:
        nasty = self.server.nasty
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        headers = {name.lower(): value for name, value in self.headers.items() if name.lower() not in USUAL}
        with nasty.lock, (nasty.folder / "headers").open("a") as file:
            file.write(json.dumps(headers) + "\n")
        if self.path == "/elsewhere":
            self.head(307, Location=(nasty.folder / "location").read_text())
        elif "method" in body and "id" in body:
            self.head(200, **{"Content-Type": "text/event-stream", "Mcp-Session-Id": "s", "Connection": "close"})
            nasty.receive(body, self.send)
        else:
            self.head(202)
            nasty.receive(body, self.send)

    def do_GET(self) -> None:
        self.head(405)

    do_DELETE = do_GET  # noqa: N815 - as above

    def send(self, message: JSON) -> None:
        self.wfile.write(f"event: message\ndata: {json.dumps(message)}\n\n".encode())
        self.wfile.flush()

    def head(self, status: int, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if "Content-Type" not in headers:
            self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, nasty: Nasty) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.nasty = nasty

    def handle_error(self, *_: Any) -> None:
        """A client that has gone away is nothing to report."""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--era", choices=["modern", "handshake"], default="modern")
    parser.add_argument("--http", action="store_true")
    parser.add_argument("--many", type=int, default=0)
    options = parser.parse_args()
    nasty = Nasty(options.folder, options.era, options.many)
    (options.folder / "pid").write_text(str(os.getpid()))
    if not options.http:
        serve_streams(nasty)
        return
    server = Server(nasty)
    sys.stdout.write(f"{server.server_address[1]}\n")
    sys.stdout.flush()
    server.serve_forever()


if __name__ == "__main__":
    main()
