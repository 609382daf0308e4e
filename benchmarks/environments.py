"""An environment per peer, made with pip on first use and kept in `.cache/peers`: none of them is a dependency."""

from __future__ import annotations

import shutil
import subprocess
import sys
import venv
from pathlib import Path

import attrs

from .harness import ROOT, Skipped, note

CACHE = ROOT / ".cache" / "peers"
LIMIT = 300.0
"""Seconds for pip."""
_HERE = Path(__file__).resolve().parent


@attrs.frozen
class Peer:
    """Another library.

    Attributes:
        name: of its environment. needs: what pip installs. script: what the environment runs, in `benchmarks/`.
    """

    name: str
    needs: tuple[str, ...]
    script: str

    def command(self) -> list[str]:
        """How it is started; its environment is there afterwards.

        Raises:
            Skipped: pip cannot install it.
        """
        note(", ".join(self.needs).replace("==", " "))
        return [str(_python(self)), str(_HERE / self.script)]


TRIO_WEBSOCKET = Peer(
    "trio-websocket", ("trio-websocket==0.12.2", "trio==0.35.0"), "gateway/peers/trio_websocket_server.py"
)
HYPERCORN = Peer("hypercorn", ("hypercorn[trio]==0.18.0", "trio==0.35.0"), "gateway/peers/hypercorn_server.py")
WEBSOCKETS = Peer("websockets", ("websockets==17.4",), "gateway/peers/websockets_server.py")
PICOWS = Peer("picows", ("picows==2.3.1", "uvloop==0.23.0"), "gateway/peers/picows_server.py")
OPENAI_AGENTS = Peer("openai-agents", ("openai-agents==0.24.0",), "loops/on_openai_agents.py")
PYDANTIC_AI = Peer("pydantic-ai", ("pydantic-ai-slim==2.68.0",), "loops/on_pydantic_ai.py")
LANGGRAPH = Peer("langgraph", ("langgraph==1.2.22",), "loops/on_langgraph.py")
LANGGRAPH_POSTGRES = Peer(
    "langgraph-postgres",
    ("langgraph==1.2.22", "langgraph-checkpoint-postgres==3.2.0", "psycopg[binary,pool]==3.3.9"),
    "pg/on_langgraph.py",
)
DBOS = Peer("dbos", ("dbos==3.4.0",), "pg/on_dbos.py")
PROCRASTINATE = Peer(
    "procrastinate", ("procrastinate==3.10.0", "psycopg[binary,pool]==3.3.9"), "pg/on_procrastinate.py"
)
PGQUEUER = Peer("pgqueuer", ("pgqueuer==1.6.0", "asyncpg==0.32.0"), "pg/on_pgqueuer.py")


def _python(peer: Peer) -> Path:
    """The interpreter of the peer's environment."""
    CACHE.mkdir(parents=True, exist_ok=True)
    (CACHE.parent / ".gitignore").write_text("*\n", encoding="ascii")
    folder = CACHE / f"{peer.name}-{sys.version_info.major}.{sys.version_info.minor}"
    python, stamp, needs = folder / "bin" / "python", folder / "installed.txt", "\n".join(peer.needs)
    if stamp.is_file() and stamp.read_text(encoding="utf-8") == needs and python.exists():
        return python
    shutil.rmtree(folder, ignore_errors=True)
    venv.create(folder, with_pip=True)
    command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *peer.needs]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False)  # noqa: S603 - our own
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise Skipped(f"pip cannot install {' '.join(peer.needs)}: {last[:300]}")
    stamp.write_text(needs, encoding="utf-8")
    return python
