"""Files that are no campaign files at all, or mean harm."""

from __future__ import annotations

from pathlib import Path
from typing import Callable

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from cbt_crypto.errors import UsageError
from cbt_crypto.plan.file import read_campaign
from cbt_crypto.plan.file.document import MAX_BYTES, dotted, read

pytestmark = pytest.mark.unit

Refusal = Callable[[str], str]


def test_no_such_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"nothing\.yaml: no such file; name a campaign's YAML"):
        read_campaign(tmp_path / "nothing.yaml")


def test_a_directory(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not a regular file"):
        read_campaign(tmp_path)


def test_below_a_file(tmp_path: Path) -> None:
    (tmp_path / "campaign.yaml").touch()
    with pytest.raises(UsageError, match="no such file"):
        read_campaign(tmp_path / "campaign.yaml" / "x")


def test_no_text(tmp_path: Path) -> None:
    path = tmp_path / "campaign.yaml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="not a text in UTF-8"):
        read_campaign(path)


def test_too_large(tmp_path: Path) -> None:
    path = tmp_path / "campaign.yaml"
    path.write_text("# " + "x" * MAX_BYTES)
    with pytest.raises(UsageError, match="larger than 1 MiB"):
        read_campaign(path)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("cluster:\n\thead: a", "campaign.yaml:2: not YAML: found character '\\t'"),
        ("cluster: {head: a", "campaign.yaml:1: not YAML: expected ',' or '}'"),
        ("a: 1\n---\nb: 2", "campaign.yaml:2: not YAML: but found another document"),
        ("a: !!python/name:os.system ''", "campaign.yaml:1: not YAML: could not determine a con"),
        ("{[1]: 2}", "campaign.yaml:1: not YAML: found unhashable key"),
        ("\0", "campaign.yaml: not YAML: unacceptable character #x0000"),
        ("a: 2020-13-01", "campaign.yaml: holds a value that cannot be read: month must be in"),
        ("a: *b", "campaign.yaml:1: not YAML: found undefined alias 'b'"),
    ],
)
def test_no_yaml(refusal_of: Refusal, text: str, sentence: str) -> None:
    refused = refusal_of(text)
    assert refused.startswith(sentence)
    assert "\n" not in refused


@pytest.mark.parametrize("text", ["", "~", "[cluster, benchmarks]", "cluster", "7"])
def test_no_mapping(refusal_of: Refusal, text: str) -> None:
    refused = refusal_of(text)
    assert "must be a mapping with the sections cluster and benchmarks" in refused


def test_a_key_that_stands_twice(refusal_of: Refusal) -> None:
    assert refusal_of("cluster:\n  wipe: true\n  head: a\n  wipe: false\n") == (
        "campaign.yaml:4: cluster.wipe: is here twice; keep one"
    )


def test_aliases_that_unfold_to_billions(refusal_of: Refusal) -> None:
    levels = [f"l{n}: &l{n} [{','.join([f'*l{n - 1}'] * 9)}]" for n in range(1, 12)]
    refused = refusal_of("\n".join(["l0: &l0 [x, x, x]", *levels]))
    assert refused == "campaign.yaml: its aliases unfold to more than 20000 values; use fewer"


def test_merged_aliases_that_unfold_to_billions(refusal_of: Refusal) -> None:
    levels = [f"l{n}: &l{n} {{<<: [{','.join([f'*l{n - 1}'] * 9)}]}}" for n in range(1, 12)]
    refused = refusal_of("\n".join(["l0: &l0 {x: 1}", *levels]))
    assert refused == "campaign.yaml: its aliases unfold to more than 20000 values; use fewer"


@pytest.mark.parametrize("text", ["a: &a [*a]", "a: &a {b: *a}", "&a [&b [*a, *b]]"])
def test_an_alias_in_itself(refusal_of: Refusal, text: str) -> None:
    assert (
        refusal_of(text)
        == "campaign.yaml: an alias refers to what it is a part of; write out what is meant"
    )


@pytest.mark.parametrize("opening", ["[", "{a: ", "- "])
def test_deep_nesting(refusal_of: Refusal, opening: str) -> None:
    assert (
        refusal_of(opening * 5000)
        == "campaign.yaml: nested deeper than 32 levels; is it a campaign file?"
    )


def test_merged_keys_are_taken(refusal_of: Refusal) -> None:
    """`<<` is YAML's own: what it brings in is validated like the rest."""
    refused = refusal_of("cluster: &c {clients: [a], wype: 1}\nbenchmarks: {<<: *c}")
    assert 'cluster.wype: unknown key; did you mean "wipe"?' in refused


@pytest.mark.parametrize(
    ("path", "text"),
    [((), ""), (("a", "b", 2, "c"), "a.b[2].c"), (("a", "x\ny\x1b[1m"), "a.x\\ny\\x1b[1m")],
)
def test_dotted(path: tuple[object, ...], text: str) -> None:
    assert dotted(path) == text


@example({"cluster": [None]})
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["cluster", "benchmarks", "head", "configurations"])
                | st.text(max_size=5),
                inner,
                max_size=4,
            )
        ),
        max_leaves=12,
    )
)
def test_whatever_stands_there_it_is_refused_in_sentences(
    tmp_path_factory: pytest.TempPathFactory, value: object
) -> None:
    path = tmp_path_factory.mktemp("file") / "c.yaml"
    path.write_text(yaml.safe_dump(value, allow_unicode=False), encoding="utf-8")
    with pytest.raises(UsageError) as caught:
        read_campaign(path)
    for line in str(caught.value).split("\n"):
        assert line.startswith(str(path))
        assert line.isprintable()


def test_every_value_is_found_by_its_line(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("# a comment\ncluster:\n  head: a\n  clients:\n    - b\n    - c\n")
    document = read(path)
    assert document.where(("cluster", "clients", 1)) == f"{path}:6: cluster.clients[1]"
    assert document.where(("cluster", "absent", "key")) == f"{path}:2: cluster.absent.key"
