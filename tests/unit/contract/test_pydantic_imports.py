"""pydantic is an extra: nothing imports it before a type needs it."""

import subprocess
import sys

import pytest

pytestmark = [pytest.mark.no_cover, pytest.mark.slow]

PROGRAM = '''
import sys
from dataclasses import dataclass
from typing import Annotated

import annotated_types
import attrs
import msgspec
import trio

import greenroom as gr
from greenroom.testing import ScriptedModel, call


@attrs.frozen
class Seat:
    row: int


@dataclass
class Show:
    title: str


@gr.tool
async def book(seat: Seat, show: Show, count: Annotated[int, msgspec.Meta(ge=1)] = 1) -> Seat:
    """Book."""
    return seat


arguments = {"seat": {"row": 1}, "show": {"title": "Faust"}}
model = ScriptedModel([call("book", arguments), '{"row": 1}'])
desk = gr.Agent("desk", tools=[book], state=[gr.StateKey("seat", Seat)], output_type=Seat, model=model)
print(trio.run(gr.run, desk, "A seat.").output, "pydantic" in sys.modules)
gr.StateKey("count", Annotated[int, annotated_types.Ge(0)])
print("pydantic" in sys.modules)
'''


def test_a_program_with_other_types_does_not_import_pydantic():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr) == ("Seat(row=1) False\nTrue\n", "")
