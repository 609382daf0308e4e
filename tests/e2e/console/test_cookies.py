"""The console of a person whom a cookie names, as behind a proxy that signs people in: nobody asks for a token."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from .conftest import Console, expect

pytestmark = [pytest.mark.slow, pytest.mark.judge, pytest.mark.no_cover]

PROGRAM = """
import sys
from functools import partial
import trio
import greenroom as gr
from greenroom.testing import ScriptedModel
from greenroom.transport import Principal, SignInRefusal, serve

helper = gr.Agent("helper", model=ScriptedModel(["done"] * 9))
people = {"session=ann": "ann"}

async def authenticate(request):
    cookie = request.headers.get("cookie")
    name = people.get(cookie)
    return None if cookie is None else SignInRefusal(message="signed out") if name is None else Principal(name=name)

async def main():
    async with gr.open_runtime(agents=[helper]) as runtime, trio.open_nursery() as nursery:
        address = await nursery.start(partial(serve, runtime, port=0, authenticate=authenticate))
        await runtime.start("helper", "hi", run_id="run-of-ann", by="ann")
        print(address.url, flush=True)

trio.run(main)
"""


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    program: Path = tmp_path_factory.mktemp("cookies") / "program.py"
    program.write_text(PROGRAM)
    with subprocess.Popen([sys.executable, str(program)], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip()
        finally:
            process.kill()


def test_a_person_whom_the_cookie_names_is_signed_in_without_a_token(consoles: Callable[..., Console], url: str):
    page = consoles().page
    page.context.add_cookies([{"name": "session", "value": "ann", "url": url}])
    page.goto(f"{url}/#run=run-of-ann")
    page.locator("#link[data-state=live]").wait_for()
    page.locator("#page:not([hidden]) .timeline .row").first.wait_for()
    expect(page.locator("dialog")).to_have_count(0)
    expect(page.locator("#you")).to_contain_text("ann")


def test_without_a_cookie_the_page_asks_for_a_token(consoles: Callable[..., Console], url: str):
    page = consoles().page
    page.goto(url)
    page.get_by_role("heading", name="Sign in").wait_for()
