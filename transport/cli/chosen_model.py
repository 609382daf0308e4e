"""`--model` and `--base-url`: another model than the agent's own."""

from __future__ import annotations

import argparse

import attrs

import greenroom as gr
from greenroom.actors.models import resolve_model

from . import paths


def with_model(agent: gr.Agent[object], args: argparse.Namespace) -> gr.Agent[object]:
    """Return the agent with the model that the options name; the agent itself without them.

    Raises:
        UsageError: There is a base URL, and no name of a model that it is for.
        AgentDefinitionError: No provider makes a model of that name.
    """
    if args.model is None and args.base_url is None:
        return agent
    name = agent.model if args.model is None else args.model
    if not isinstance(name, str):
        raise gr.UsageError(f"--base-url {args.base_url}: the agent's model has no provider; add --model openai:NAME")
    return attrs.evolve(  # type: ignore[misc]  # mypy knows no class of attrs whose constructor is overloaded
        agent, model=resolve_model(name, base_url=args.base_url)
    )


def model_options(args: argparse.Namespace) -> list[str]:
    """Return the options as they are typed, for the command that continues the run."""
    return paths.flags({"--model": args.model, "--base-url": args.base_url})
