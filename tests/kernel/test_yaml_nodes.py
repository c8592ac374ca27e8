"""YAML is read through libyaml where that is there, and nobody can tell but by the clock."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tavern_host.storage.yaml_nodes import compose

PLUGINS = Path(__file__).parent.parent.parent / "plugins"


def places(node: yaml.Node) -> Iterator[tuple[str, int, int]]:
    """Yield the tag of a node and of all beneath it, each with where it stands."""
    yield node.tag, node.start_mark.line, node.start_mark.column
    children = [] if isinstance(node, yaml.ScalarNode) else node.value
    for child in children:
        for one in child if isinstance(child, tuple) else (child,):
            yield from places(one)


@pytest.mark.parametrize("manifest", sorted(PLUGINS.glob("*/plugin.yaml")), ids=lambda path: path.parent.name)
def test_node_positions_match_the_yaml_library(manifest: Path) -> None:
    text = manifest.read_text(encoding="utf-8")
    ours, theirs = compose(text), yaml.SafeLoader(text).get_single_node()
    assert ours is not None
    assert list(places(ours)) == list(places(theirs))


def test_columns_are_counted_in_characters() -> None:
    assert list(places(compose("名字: {😀: 1, é: [真]}") or pytest.fail()))[-1] == ("tag:yaml.org,2002:str", 0, 15)


def test_an_empty_text_has_no_root() -> None:
    assert compose("# nothing\n") is None


@pytest.mark.parametrize("text", ["[" * 200_000, "- " * 200_000, "{a: " * 200_000, "? " * 200_000])
def test_endless_nesting_raises_a_recursion_error(text: str) -> None:
    with pytest.raises(RecursionError):
        compose(text)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: [1\nb: 2\n", "expected ',' or ']', but got ':'"),
        ("a: b: c\n", "mapping values are not allowed here"),
        ("\ta: b\n", "found character '\\t' that cannot start any token"),
        ("a: &x 1\nb: *y\n", "found undefined alias 'y'"),
    ],
)
def test_yaml_errors_match_the_python_reader(text: str, problem: str) -> None:
    with pytest.raises(yaml.MarkedYAMLError) as failure:
        compose(text)
    assert failure.value.problem == problem


def test_a_character_that_is_not_allowed_is_named() -> None:
    with pytest.raises(yaml.reader.ReaderError) as failure:
        compose("a: b\x07c\n")
    assert (failure.value.position, failure.value.character) == (4, 7)
