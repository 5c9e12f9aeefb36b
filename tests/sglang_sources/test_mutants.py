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
N_MUTANTS = 45

Places = list[surgery.Definition]


def a_statement(random: Random, source: bytes, places: Places) -> ast.stmt:
    """Choose a statement, mostly in a definition that edits change."""
    everywhere = surgery.definitions(surgery.tree(source))
    found: list[ast.stmt] = []
    while not found:
        among = places if random.random() < 0.7 else everywhere
        found = surgery.statements(source, random.choice(among))
    return random.choice(found)


def move_definition(random: Random, source: bytes, places: Places) -> bytes:
    target = random.choice(surgery.definitions(surgery.tree(source)))
    return surgery.moved(source, random.choice(places), target)


def rename_definition(random: Random, source: bytes, places: Places) -> bytes:
    return surgery.renamed(source, random.choice(places))


def drop_statement(random: Random, source: bytes, places: Places) -> bytes:
    return surgery.dropped(source, a_statement(random, source, places))


def repeat_statement(random: Random, source: bytes, places: Places) -> bytes:
    return surgery.doubled(source, a_statement(random, source, places))


def wrap_statement(random: Random, source: bytes, places: Places) -> bytes:
    return surgery.wrapped(source, a_statement(random, source, places))


def move_statement(random: Random, source: bytes, places: Places) -> bytes:
    blocks = [place.body for place in places if len(place.body) > 1]
    if not blocks:
        return repeat_statement(random, source, places)
    return surgery.moved(source, *random.sample(random.choice(blocks), 2))


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


MUTATIONS: tuple[Callable[[Random, bytes, Places], bytes], ...] = (
    move_definition,
    rename_definition,
    drop_statement,
    repeat_statement,
    wrap_statement,
    move_statement,
    lose_line,
    truncate,
    put_bytes,
)


@cache
def compiles(source: bytes, path: str) -> None:
    compile(source, path, "exec", dont_inherit=True)


@pytest.mark.parametrize("version", (VERSION, *DIFFERING))
def test_mutants_are_patched_whole_or_refused(version: str) -> None:
    outcomes = Counter(try_mutant(version, number) for number in range(N_MUTANTS))
    # Some of these change nothing that an edit searches for, and must not be refused.
    assert outcomes["patched whole"] >= N_MUTANTS // 4
    assert outcomes["refused"] >= N_MUTANTS // 4


def try_mutant(version: str, number: int) -> str:
    """Patch a mutant; fail if it was neither patched completely nor refused."""
    random = Random(f"{SEED} {number}")
    file = random.choice(changed_files(version))
    mutate = MUTATIONS[number % len(MUTATIONS)]
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
