"""Scenes that are drawn by lot (`support/random_scenes.py`): whatever happens in them, every promise is kept.

`GREENROOM_CHAOS=full` plays all of them; else a seeded sample. A scene that fails is made as short as it can be, and
printed with its seed: `play(draw(7))` plays it again, step by step the same.
"""

import pytest

from ..support.random_lives import play, shortened
from ..support.random_scenes import RandomScene, draw

SCENES, PARTS = 4_000, 4
TRIES = 150
"""Scenes that are played at most to make one shorter."""

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("part", range(PARTS))
def test_no_random_scene_breaks_a_promise(part, sampled):
    for seed in sampled(range(part, SCENES, PARTS), 10):
        scene = draw(seed)
        faults = play(scene)
        assert not faults, report(scene, faults)


def report(scene: RandomScene, faults: list[str]) -> str:
    """The faults of a scene, and the shortest scene that has one of them."""
    left, kinds = TRIES, {kind(fault) for fault in faults}

    def fails(shorter: RandomScene) -> bool:
        nonlocal left
        left -= 1
        return left > 0 and any(kind(fault) in kinds for fault in play(shorter))

    return "\n".join([*faults, "", "the shortest scene that was found:", shortened(scene, fails).shown()])


def kind(fault: str) -> str:
    """A fault without its names and numbers."""
    last = fault.strip().splitlines()[-1]
    return " ".join(word for word in last.split() if word.isalpha())[:80]


def test_a_seed_is_one_scene_and_one_course_of_events():
    scene = draw(11)
    assert draw(11) == scene
    first: list[list[str]] = []
    for _ in range(2):
        types: list[str] = []
        assert not play(scene, types=types)
        first.append(types)
    assert first[0] == first[1]


def test_a_scene_becomes_as_short_as_it_can_be():
    scene = next(scene for scene in map(draw, range(100)) if any(act.kind == "kill" for act in scene.acts))
    shortest = shortened(scene, lambda shorter: any(act.kind == "kill" for act in shorter.acts))
    assert [act.kind for act in shortest.acts] == ["kill"]
    assert [(role.script, role.plugins) for role in shortest.roles] == [((), ())]
