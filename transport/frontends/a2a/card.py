"""The card of an agent: what a client must know to speak to it. A pure function of the agent and the address."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import quote

from greenroom.actors.backends.a2a_codec import VERSION
from greenroom.actors.backends.a2a_values import AgentCapabilities, AgentCard, AgentInterface, AgentSkill

PREFIX: Final = "/v1/a2a"
INPUT_MODES: Final = ("text/plain", "application/json", "image/*", "application/*")
OUTPUT_MODES: Final = ("text/plain", "application/json", "image/*", "application/*")
_HOST: Final = re.compile(r"[A-Za-z0-9.\[\]:_-]{1,255}")


def is_host(text: str) -> bool:
    """Return True for a Host header that may be part of an address."""
    return _HOST.fullmatch(text) is not None


def agent_card(key: str, description: str, digest: str, root: str) -> AgentCard:
    """Return the card of an agent.

    Args:
        key: The agent's key.
        description: Its description; "" for an agent that only other processes have.
        digest: The digest of its definition, by which clients see that the agent has changed.
        root: The address of the gateway; with a path only if it is mounted under one.
    """
    url = f"{root}{PREFIX}/{quote(key, safe='')}"
    about = description or f"The agent {key}."
    return AgentCard(
        name=key,
        description=about,
        version=digest[:16] or "0",
        supported_interfaces=(
            AgentInterface(url=url, protocol_binding="HTTP+JSON", protocol_version=VERSION),
            AgentInterface(url=f"{url}/rpc", protocol_binding="JSONRPC", protocol_version=VERSION),
        ),
        capabilities=AgentCapabilities(streaming=True),
        default_input_modes=INPUT_MODES,
        default_output_modes=OUTPUT_MODES,
        skills=(AgentSkill(id=key, name=key, description=about, tags=(key,)),),
        security_schemes={"bearer": {"httpAuthSecurityScheme": {"scheme": "Bearer"}}},
        security_requirements=({"schemes": {"bearer": {"list": []}}},),
    )
