"""The files of docs/deploy.md, each tried by its program: the unit, the image's commands, nginx, the shell."""

import json
import re
import shlex
import ssl
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
import trio
import trio_websocket
from tests.support.judges import need_program
from tests.support.ports import free_port
from tests.support.tls import CERTIFICATE, KEY
from tests.support.wait_for_port import wait_for_port

from greenroom.transport.protocol.codes import PATH, SUBPROTOCOL

pytestmark = [pytest.mark.slow, pytest.mark.no_cover]

PAGE = Path("docs/deploy.md")
GREENROOM = Path(sys.executable).parent / "greenroom"


def block(language, *, first=""):
    """The block of this language that begins so."""
    match = re.search(rf"^```{language}\n({re.escape(first)}.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    assert match, (language, first)
    return match[1]


def instructions():
    """(word, rest) of the Dockerfile."""
    return [tuple(line.split(" ", 1)) for line in block("dockerfile").splitlines()]


@contextmanager
def running(command, folder, port):
    """A server for the time of the block; it is stopped as an image is."""
    (folder / "desk.py").write_text(block("python", first="# desk.py"))
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)
        try:
            wait_for_port(port)
            yield process
            process.terminate()
            assert process.wait(60) == 0, (folder / "log").read_text()
        finally:
            process.kill()
            process.wait()


@pytest.mark.judge
def test_systemd_reads_the_unit(tmp_path):
    unit = tmp_path / "greenroom.service"
    unit.write_text(block("ini").replace("/opt/greenroom/.venv/bin/greenroom", str(GREENROOM)))
    done = subprocess.run(
        [need_program("systemd-analyze"), "verify", "--man=no", str(unit)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr.replace(str(tmp_path), "")) == (0, "")
    unit.write_text(unit.read_text().replace("RestartSec=2", "RestartSec=soon"))
    done = subprocess.run(
        [need_program("systemd-analyze"), "verify", "--man=no", str(unit)], capture_output=True, text=True, check=False
    )
    assert "Failed to parse" in done.stderr, "the judge sees a mistake"


def test_the_unit_and_the_image_start_the_same_program(tmp_path):
    (start,) = re.findall(r"^ExecStart=(.*)$", block("ini"), re.MULTILINE)
    _, *unit = shlex.split(start)
    image = json.loads(dict(instructions())["CMD"])
    del image[image.index("--host") : image.index("--host") + 2]
    assert [Path(word).name for word in unit] == [Path(word).name for word in image]


def test_the_image_starts_is_healthy_and_stops_as_a_user_that_is_not_root(tmp_path):
    words = [word for word, _ in instructions()]
    assert words == ["FROM", "RUN", "COPY", "RUN", "COPY", "USER", "WORKDIR", "VOLUME", "EXPOSE", "STOPSIGNAL",
                     "HEALTHCHECK", "ENTRYPOINT", "CMD"]  # fmt: skip
    image = dict(instructions())
    assert image["USER"] != "root"
    assert f"useradd --system --uid 10001 --home-dir {image['VOLUME']} " in block("dockerfile")
    port = free_port()
    command = [str(GREENROOM), *json.loads(image["CMD"])]
    command = [word.replace("/app/", "") for word in command] + ["--port", str(port)]
    health = json.loads(image["HEALTHCHECK"].partition("CMD ")[2])
    health = [word.replace(image["EXPOSE"], str(port)) for word in health]
    with running(command, tmp_path, port):
        subprocess.run([sys.executable, *health[1:]], check=True)
        assert (tmp_path / "runs.db.token").exists()
        health[2] = health[2].replace("readyz", "nothing")
        assert subprocess.run([sys.executable, *health[1:]], stderr=subprocess.DEVNULL, check=False).returncode == 1


@pytest.mark.parametrize("number", range(4))
def test_the_shell_reads_its_blocks_and_greenroom_its_options(number):
    text = re.findall(r"^```sh\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)[number]
    subprocess.run(["/bin/sh", "-n"], input=text, text=True, check=True)
    for line in text.splitlines():
        words = shlex.split(line, comments=True)
        if words[:1] == ["greenroom"]:
            commands = [word for word in words[1:3] if not word.startswith("-") and "." not in word]
            told = subprocess.run(
                [str(GREENROOM), *commands, "--help"], capture_output=True, text=True, check=True
            ).stdout
            for option in (word for word in words if word.startswith("--")):
                assert option in told, (line, option)


@contextmanager
def nginx(folder, server):
    """nginx with the page's blocks."""
    (folder / "runs.pem").write_text(CERTIFICATE)
    (folder / "runs.key").write_text(KEY)
    paths = "".join(
        f"{name}_temp_path {folder}/{name};" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    conf = folder / "nginx.conf"
    conf.write_text(f"daemon off; pid {folder}/pid; events {{}} http {{ access_log off; {paths}\n{server} }}")
    command = [need_program("nginx"), "-p", str(folder), "-c", str(conf), "-e", str(folder / "errors")]
    tested = subprocess.run([*command, "-t"], capture_output=True, text=True, check=False)
    assert tested.returncode == 0, tested.stderr
    with subprocess.Popen(command) as process:
        try:
            yield
        finally:
            process.terminate()


async def talk(port, token, context):
    """A WebSocket that subscribes."""
    fields = [(b"authorization", f"Bearer {token}".encode())]
    options = {"use_ssl": context, "subprotocols": [SUBPROTOCOL], "extra_headers": fields}
    with trio.fail_after(30):
        async with trio_websocket.open_websocket("127.0.0.1", port, PATH, **options) as ws:
            assert json.loads(await ws.get_message())["type"] == "gw.welcome"
            await ws.send_message(json.dumps({"type": "subscribe", "run": "r", "id": "1"}))
            assert json.loads(await ws.get_message())["type"] == "gw.subscribed"


@pytest.mark.judge
def test_through_nginx_streams_arrive_as_they_are_made_and_websockets_work(tmp_path):
    front, back = free_port(), free_port()
    server = block("nginx").replace("/etc/nginx/", f"{tmp_path}/").replace("8765", str(back))
    server = server.replace("listen 443 ssl", f"listen 127.0.0.1:{front} ssl")
    command = [str(GREENROOM), "serve", "desk.py", "--db", "runs.db", "--port", str(back)]
    command += ["--host-name", f"runs.example.org:{front}", "--host-name", f"127.0.0.1:{front}"]
    context = ssl.create_default_context(cadata=CERTIFICATE)
    with running(command, tmp_path, back), nginx(tmp_path, server):
        wait_for_port(front)
        token = (tmp_path / "runs.db.token").read_text().strip()
        headers = {"Authorization": f"Bearer {token}", "Host": f"runs.example.org:{front}"}
        base = f"https://127.0.0.1:{front}"
        with httpx.Client(verify=context, base_url=base, headers=headers, timeout=30) as client:
            assert client.get("/readyz").json() == {"status": "ready"}
            assert client.get("/metrics").status_code == 403
            started = client.post("/v1/runs", json={"agent": "support", "text": "refund", "run": "r"})
            assert started.status_code == 201, started.text
            with client.stream("GET", "/v1/runs/r/events", headers={"Accept": "text/event-stream"}) as stream:
                line = next(line for line in stream.iter_lines() if "run.approval.requested" in line)
            assert line, "the run waits, and its stream is open"
        trio.run(talk, front, token, context)
