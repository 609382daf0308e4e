"""A coding agent that plays what its prompt says, for tests: `python scripted_program.py acp|claude [FILE]`.

The prompt is a JSON list of steps, played in order:

    ["say", TEXT]             a message
    ["ask", NAME]             ask for a command; if it is allowed, write NAME (or the edited command) to FILE
    ["ask_all", NAME, ...]    the same for several that are open together, in the order of the answers
    ["quietly", NAME]         as "ask", and report no end
    ["run", NAME]             do it unasked, and say so
    ["write", PATH, TEXT]     write a file of its folder, and say nothing about it
    ["read", PATH]            say what a file has, "nothing" if it is not there
    ["instructions"]          claude: say what came with the system prompt
    ["prompt"]                say the whole prompt
    ["where"]                 say its folder, on both streams
    ["session"]               say the id of the session, and whether it was continued
    ["question", TEXT, SCHEMA] ask a person, and say the answer; SCHEMA may be left out
    ["noise", TEXT]           a line that is not of the protocol
    ["sleep", SECONDS], ["errors", TEXT], ["exit", STATUS], ["hang"], ["deaf"]
    ["after", NAME]           claude: a result line, then a sub-agent asks

The result is the newest message. A step that is cancelled ends the prompt as cancelled. The program imports nothing of
Greenroom.
"""

import json
import os
import select
import signal
import sys
from pathlib import Path
from typing import Any

FORM = sys.argv[1]
FILE = Path(sys.argv[2]) if len(sys.argv) > 2 else None
Fields = dict[str, Any]


class Cancelled(Exception):
    """The other side has asked to stop."""


def send(**fields: Any) -> None:
    sys.stdout.write(json.dumps(fields) + "\n")
    sys.stdout.flush()


def receive() -> Fields:
    line = sys.stdin.readline()
    if not line:
        sys.exit(0)
    return json.loads(line)


def script_of(text: str) -> list[list[Any]]:
    """The last script in a prompt; a prompt without one is repeated."""
    return json.loads(text[text.rindex('[["') :]) if '[["' in text else [["say", f"I did: {text}"]]


def lost() -> bool:
    """Whether sessions are gone: a test has put a file named lost beside FILE."""
    return FILE is not None and FILE.with_name("lost").exists()


def pause(seconds: float) -> None:
    """Do nothing, in a program that has no event loop."""
    select.select((), (), (), seconds)


def act(what: str) -> None:
    """Do what was allowed: the effect that tests count."""
    if FILE is not None:
        with FILE.open("a") as file:
            file.write(what + "\n")


class Program:
    """What both forms share."""

    def __init__(self) -> None:
        self.newest = self.session = self.text = ""
        self.number = 0

    def play(self, steps: list[list[Any]]) -> None:
        for step in steps:
            getattr(self, f"step_{step[0]}")(*step[1:])

    def step_say(self, text: str) -> None:
        self.newest = text
        self.say(text)

    def step_ask(self, name: str) -> None:
        self.asked(name)

    def asked(self, name: str, *, report: bool = True) -> None:
        call = self.next_call(name)
        command = self.permission(call, name)
        if command is not None:
            act(command)
        if report:
            self.end(call, f"ran {command}" if command is not None else "denied", failed=command is None)

    def step_quietly(self, name: str) -> None:
        self.asked(name, report=False)

    def step_ask_all(self, *names: str) -> None:
        calls = {self.request(call, name): (call, name) for name in names for call in [self.next_call(name)]}
        while calls:
            ask, command = self.answer()
            if ask in calls:
                call, _ = calls.pop(ask)
                if command is not None:
                    act(command)
                self.end(call, f"ran {command}" if command is not None else "denied", failed=command is None)

    def step_run(self, name: str) -> None:
        call = self.next_call(name)
        act(name)
        self.end(call, f"ran {name}", failed=False)

    def step_write(self, path: str, text: str) -> None:
        Path(path).write_text(text)

    def step_read(self, path: str) -> None:
        self.step_say(Path(path).read_text() if Path(path).exists() else "nothing")

    def step_session(self) -> None:
        self.step_say(self.session)

    def step_prompt(self) -> None:
        self.step_say(self.text)

    def step_where(self) -> None:
        self.step_errors(f"in {os.getcwd()}\n")
        self.step_say(os.getcwd())

    def step_noise(self, text: str) -> None:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()

    def step_errors(self, text: str) -> None:
        sys.stderr.write(text)
        sys.stderr.flush()

    def step_sleep(self, seconds: float) -> None:
        pause(seconds)

    def step_exit(self, status: int) -> None:
        os._exit(status)

    def step_hang(self) -> None:
        while True:
            pause(60)

    def step_deaf(self) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        self.step_hang()

    def next_call(self, name: str) -> str:
        self.number += 1
        call = f"call{self.number}"
        self.begin(call, name)
        return call

    def permission(self, call: str, name: str) -> str | None:
        ask = self.request(call, name)
        while True:
            found, command = self.answer()
            if found == ask:
                return command

    def begin(self, call: str, name: str) -> None:
        raise NotImplementedError

    def request(self, call: str, name: str) -> Any:
        raise NotImplementedError

    def answer(self) -> tuple[Any, str | None]:
        raise NotImplementedError

    def say(self, text: str) -> None:
        raise NotImplementedError

    def end(self, call: str, text: str, *, failed: bool) -> None:
        raise NotImplementedError


class Acp(Program):
    """The Agent Client Protocol."""

    def serve(self) -> None:
        while True:
            message = receive()
            match message.get("method"):
                case "initialize":
                    self.respond(message, {"protocolVersion": 1, "agentCapabilities": {"loadSession": True}})
                case "session/new":
                    self.session = f"session-{os.getpid()}"
                    self.respond(message, {"sessionId": self.session})
                case "session/load" if lost():
                    send(jsonrpc="2.0", id=message["id"], error={"code": -32603, "message": "Internal error"})
                case "session/load":
                    self.session = f"continued {message['params']['sessionId']}"
                    self.respond(message, {})
                case "session/prompt":
                    self.prompt(message)

    def prompt(self, message: Fields) -> None:
        text = message["params"]["prompt"][0]["text"]
        reason = "end_turn"
        try:
            self.text = text
            self.play(script_of(text))
        except Cancelled:
            reason = "cancelled"
        self.respond(message, {"stopReason": reason})

    def respond(self, message: Fields, result: Fields) -> None:
        send(jsonrpc="2.0", id=message["id"], result=result)

    def update(self, kind: str, /, **fields: Any) -> None:
        send(
            jsonrpc="2.0",
            method="session/update",
            params={"sessionId": "s", "update": {"sessionUpdate": kind, **fields}},
        )

    def say(self, text: str) -> None:
        self.update("agent_message_chunk", content={"type": "text", "text": text})
        self.update("plan", entries=[{"content": "go on", "status": "pending"}])

    def begin(self, call: str, name: str) -> None:
        self.update("tool_call", toolCallId=call, kind="execute", title=name, status="pending")

    def request(self, call: str, name: str) -> Any:
        options = [
            {"optionId": kind, "kind": kind, "name": kind} for kind in ("allow_always", "allow_once", "reject_once")
        ]
        tool = {"toolCallId": call, "kind": "execute", "title": name, "rawInput": {"command": name}}
        send(
            jsonrpc="2.0",
            id=call,
            method="session/request_permission",
            params={"sessionId": "s", "toolCall": tool, "options": options},
        )
        self.commands = {**getattr(self, "commands", {}), call: name}
        return call

    def answer(self) -> tuple[Any, str | None]:
        message = receive()
        if message.get("method") == "session/cancel":
            raise Cancelled
        outcome = message.get("result", {}).get("outcome", {})
        if outcome.get("outcome") == "cancelled":
            raise Cancelled
        return message["id"], self.commands[message["id"]] if outcome.get("optionId") == "allow_once" else None

    def step_question(self, text: str, schema: Fields | None = None) -> None:
        schema = schema or {"type": "object", "properties": {"answer": {"type": "string"}}, "required": ["answer"]}
        send(jsonrpc="2.0", id="q", method="elicitation/create", params={"message": text, "requestedSchema": schema})
        result = receive()["result"]
        self.step_say(result.get("content", {}).get("answer", result["action"]))

    def step_plan(self, count: int, text: str) -> None:
        self.update("plan", entries=[{"content": text, "status": text}] * count)

    def step_reads(self, path: str) -> None:
        self.update("tool_call", toolCallId="r", kind="read", title="read", locations=[{"path": path}])
        self.update("tool_call_update", toolCallId="r", status="completed")

    def step_asks_for(self, arguments: Fields, count: int = 1) -> None:
        if "size" in arguments:
            arguments = {"rawInput": {"command": "x" * arguments["size"]}}
        for number in range(count):
            tool = {"toolCallId": f"a{number}", "kind": "execute", **arguments}
            options = [
                {"optionId": "y", "kind": "allow_once", "name": "y"},
                {"optionId": "n", "kind": "reject_once", "name": "n"},
            ]
            send(
                jsonrpc="2.0",
                id=f"a{number}",
                method="session/request_permission",
                params={"toolCall": tool, "options": options},
            )
        answers = [receive()["result"]["outcome"]["optionId"] for _ in range(count)]
        self.step_say(f"{answers.count('y')} of {count}")

    def end(self, call: str, text: str, *, failed: bool) -> None:
        content = [{"type": "content", "content": {"type": "text", "text": text}}]
        self.update("tool_call_update", toolCallId=call, status="failed" if failed else "completed", content=content)


class Claude(Program):
    """stream-json, as Claude Code speaks it."""

    def serve(self) -> None:
        while True:
            message = receive()
            if message["type"] == "control_request":
                self.system = message["request"].get("appendSystemPrompt", "")
            if message["type"] == "user":
                words = sys.argv
                if "--resume" in words and lost():
                    errors = ["No conversation found with session ID: x"]
                    send(type="result", subtype="error_during_execution", is_error=True, errors=errors)
                    sys.exit(1)
                self.session = f"session-{os.getpid()}"
                if "--resume" in words:
                    self.session = words[words.index("--resume") + 1]
                send(type="system", subtype="init", session_id=self.session)
                self.session = f"continued {self.session}" if "--resume" in words else self.session
                text = message["message"]["content"]
                self.text = text
                self.play(script_of(text))
                self.result()

    def result(self) -> None:
        usage = {"input_tokens": 3, "output_tokens": 4}
        send(type="result", subtype="success", is_error=False, result=self.newest, usage=usage, num_turns=1)

    def block(self, kind: str, /, **block: Any) -> None:
        send(type=kind, message={"role": kind, "content": [block]}, parent_tool_use_id=None)

    def say(self, text: str) -> None:
        self.block("assistant", type="text", text=text)

    def begin(self, call: str, name: str) -> None:
        self.block("assistant", type="tool_use", id=call, name="Bash", input={"command": name})

    def request(self, call: str, name: str) -> Any:
        given = {"tool_name": "Bash", "tool_use_id": call, "tool_input": {"command": name}}
        request = {"subtype": "hook_callback", "callback_id": "gate", "input": given}
        send(type="control_request", request_id=f"hook-{call}", request=request)
        self.commands = {**getattr(self, "commands", {}), f"hook-{call}": name}
        return f"hook-{call}"

    def answer(self) -> tuple[Any, str | None]:
        message = receive()
        if message["type"] == "control_request":
            self.newest = "[Request interrupted by user]"
            send(type="result", subtype="error_during_execution", is_error=True, errors=["interrupted"])
            os._exit(1)
        response = message["response"]
        output = response["response"].get("hookSpecificOutput", {})
        if output.get("permissionDecision") != "allow":
            self.newest = output.get("permissionDecisionReason", "")
            return response["request_id"], None
        command = output.get("updatedInput", {}).get("command", self.commands[response["request_id"]])
        return response["request_id"], command

    def step_instructions(self) -> None:
        self.step_say(self.system)

    def step_after(self, name: str) -> None:
        send(type="system", subtype="background_tasks_changed", tasks=[{"id": "t"}])
        self.result()
        self.asked(name)
        send(type="system", subtype="background_tasks_changed", tasks=[])
        send(type="system", subtype="init", session_id=self.session)

    def end(self, call: str, text: str, *, failed: bool) -> None:
        self.block("user", type="tool_result", tool_use_id=call, content=text, is_error=failed)


if __name__ == "__main__":
    {"acp": Acp, "claude": Claude}[FORM]().serve()
