"""DBOS Transact: a workflow of steps; messages from a client in another process to waiting workflows."""

import subprocess
import sys
import threading
import time

from dbos import DBOS, DBOSClient
from spending import CONTENT, COUNT, LIVE, MODE, PAUSE, PORT, STEPS, Spent, latencies, say, say_steps, url

if MODE != "send":
    DBOS(
        config={
            "name": "bench",
            "system_database_url": url("dbos_sys"),
            "log_level": "ERROR",
            "run_admin_server": False,
        }
    )


@DBOS.step()
def step(number: int) -> str:
    """One step."""
    return CONTENT


@DBOS.workflow()
def steps(count: int) -> None:
    """So many steps."""
    for number in range(count):
        step(number)


@DBOS.workflow()
def waiter(messages: int) -> list[float]:
    """The moments at which messages came."""
    came = []
    for _ in range(messages):
        DBOS.recv("decision", timeout_seconds=60)
        came.append(time.monotonic())
    return came


def play(mode: str) -> None:
    """Modes `one` and `many`."""
    DBOS.launch()
    steps(5)
    with Spent() as cost:
        if mode == "one":
            steps(COUNT)
        else:
            for handle in [DBOS.start_workflow(steps, STEPS) for _ in range(COUNT)]:
                handle.get_result()
    say_steps(cost, COUNT if mode == "one" else COUNT * STEPS)
    DBOS.destroy()


def wait() -> None:
    """The other process of `send`: workflows that wait; the moments at which each message came."""
    DBOS.launch()
    each, more = divmod(COUNT, LIVE)
    handles = [DBOS.start_workflow(waiter, each + (number < more)) for number in range(LIVE)]
    print(" ".join(handle.workflow_id for handle in handles), flush=True)
    for handle in handles:
        print(" ".join(map(str, handle.get_result())), flush=True)
    DBOS.destroy()


def send() -> None:
    """Messages to the workflows in turn."""
    command = [sys.executable, __file__, str(PORT), "wait", str(COUNT)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603 - this script
        assert process.stdout is not None
        workflows = process.stdout.readline().split()
        threading.Event().wait(2.0)
        client = DBOSClient(system_database_url=url("dbos_sys"))
        send_times: list[list[float]] = [[] for _ in workflows]
        accept_seconds = []
        for number in range(COUNT):
            threading.Event().wait(PAUSE)
            began = time.monotonic()
            client.send(workflows[number % LIVE], "yes", "decision")
            accept_seconds.append(time.monotonic() - began)
            send_times[number % LIVE].append(began)
        came = [list(map(float, process.stdout.readline().split())) for _ in workflows]
    act_seconds = [
        moment - began
        for one, other in zip(send_times, came, strict=True)
        for began, moment in zip(one, other, strict=True)
    ]
    say(**latencies(accepted=accept_seconds, acted=act_seconds))


if MODE == "send":
    send()
elif MODE == "wait":
    wait()
else:
    play(MODE)
