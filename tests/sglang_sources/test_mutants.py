"""Sources broken by a seeded generator are patched completely, or refused."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable
from functools import cache
from random import Random

import pytest

from agentcore_patches.errors import SourceConflict
from agentcore_patches.patches import registry
from tests.helpers.planning import VERSION
from tests.sglang_sources import surgery
from tests.sglang_sources.releases import (
    DIFFERING,
    NAMES,
    changed_files,
    planned,
    scopes,
    sources,
)

SEED = 59
N_MUTANTS = 350

Places = list[surgery.Definition]


def a_statement(random: Random, source: bytes, places: Places) -> ast.stmt:
    """Choose a statement, mostly in a definition that edits change."""
    everywhere = surgery.definitions(surgery.tree(source))
    found: list[ast.stmt] = []
    while not found:
        among = places if random.random() < 0.7 else everywhere
        found = surgery.statements(source, random.choice(among))
    return random.choice(found)


def rename(random: Random, source: bytes, places: Places) -> bytes:
    return surgery.renamed(source, random.choice(places))


def move_definition(random: Random, source: bytes, places: Places) -> bytes:
    target = random.choice(surgery.definitions(surgery.tree(source)))
    return surgery.moved(source, random.choice(places), target)


def drop_statement(random: Random, source: bytes, places: Places) -> bytes:
    return surgery.dropped(source, [a_statement(random, source, places)])


def wrap_statement(random: Random, source: bytes, places: Places) -> bytes:
    return surgery.wrapped(source, a_statement(random, source, places))


def move_statement(random: Random, source: bytes, places: Places) -> bytes:
    blocks = [place.body for place in places if len(place.body) > 1]
    if not blocks:
        return surgery.doubled(source, a_statement(random, source, places))
    return surgery.moved(source, *random.sample(random.choice(blocks), 2))


def rename_word(random: Random, source: bytes, places: Places) -> bytes:
    statement = a_statement(random, source, places)
    words = [n.id for n in ast.walk(statement) if isinstance(n, ast.Name)] or ["self"]
    return surgery.substituted(source, statement, random.choice(words), "fork")


def lose_line(random: Random, source: bytes, places: Places) -> bytes:
    lines = source.splitlines(keepends=True)
    del lines[random.randrange(len(lines))]
    return b"".join(lines)


def truncate(random: Random, source: bytes, places: Places) -> bytes:
    _, end = surgery.extent(a_statement(random, source, places))
    return b"".join(source.splitlines(keepends=True)[:end])


def put_bytes(random: Random, source: bytes, places: Places) -> bytes:
    place = random.randrange(len(source))
    new = random.choice([b"\xff", b"\xc3(", b"\x00", b"\x0c", b"\r", b"("])
    return source[:place] + new + source[place:]


# test_anchors drops and repeats each definition that edits change.
MUTATIONS: tuple[Callable[[Random, bytes, Places], bytes], ...] = (
    *(
        rename,
        move_definition,
        drop_statement,
        wrap_statement,
        move_statement,
        rename_word,
    ),
    *(lose_line, truncate, put_bytes),
)


@cache
def compiles(source: bytes, path: str) -> None:
    compile(source, path, "exec", dont_inherit=True)


BATCHES = 10


@pytest.mark.parametrize(
    ("version", "numbers", "n_patched", "n_refused"),
    [
        *(
            (VERSION, range(batch, N_MUTANTS, BATCHES), 8, 6)
            for batch in range(BATCHES)
        ),
        # A few mutants of each other release, with all mutations together.
        *(
            (version, range(position, N_MUTANTS, 25), 2, 2)
            for position, version in enumerate(DIFFERING)
        ),
    ],
)
def test_mutants_are_patched_whole_or_refused(
    version: str, numbers: range, n_patched: int, n_refused: int
) -> None:
    outcomes = Counter(try_mutant(version, number) for number in numbers)
    # Some of these change nothing that an edit searches for, and must not be refused.
    assert outcomes["patched whole"] >= n_patched
    assert outcomes["refused"] >= n_refused


def try_mutant(version: str, number: int) -> str:
    """Patch a mutant; fail if it was neither patched completely nor refused."""
    random = Random(f"{SEED} {number}")
    files = changed_files(version)
    file = files[number % len(files)]
    mutate = MUTATIONS[number // len(files) % len(MUTATIONS)]
    source = sources(version)[file]
    places = [
        surgery.definition(source, scope) for scope in sorted(scopes(version, file))
    ]
    mutant = source
    while mutant == source:
        mutant = mutate(random, source, places)
    mutated = {**sources(version), file: mutant}

    try:
        plan = planned(mutated, version)
    except SourceConflict as refused:
        assert file in str(refused)
        assert "Nothing was written." in str(refused)
        assert f"sglang=={version}" in str(refused)
        return "refused"

    assert tuple(plan.files) == registry.files(NAMES, version)
    assert all(plan.changed.values())
    for path, text in plan.files.items():
        compiles(text, path)
    assert planned({**mutated, **plan.files}, version).files == {}
    return "patched whole"
