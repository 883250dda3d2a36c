"""Strict, plain YAML: refusals name the line, and a dumped value is read back unchanged."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from seedbus.scenarios.schema.yaml_text import MAX_CHARACTERS, NotPlain, dump, parse


def test_a_few_lines_of_aliases_do_not_fill_the_memory() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 9)}]" for level in range(1, 20)]
    with pytest.raises(NotPlain, match="alias"):
        parse("\n".join(lines))


@pytest.mark.few(1)
@pytest.mark.parametrize("unit", ["{a,", "a:\n", "[1, ", "- - ", "[a: 1, ", "? ", "'a',"])
def test_no_text_takes_the_parser_longer_than_a_moment(unit: str) -> None:
    began = time.process_time()
    for count in (MAX_CHARACTERS, 10 * MAX_CHARACTERS):
        text = (unit * count)[:count]
        with pytest.raises(NotPlain) as raised:
            parse(text)
    assert str(raised.value) == "it has more than 65,536 characters, the most that are accepted"
    assert time.process_time() - began < 20, "it is two, on a machine that has time"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 0.001),
        ("1_000", 1000),
        ("0x1F", 31),
        ("+5", 5),
        (".5", 0.5),
        ("~", None),
        ("True", True),
        ("yes", "yes"),
        ("010", "010"),
        ("1:30", "1:30"),
        ("2020-01-01", "2020-01-01"),
        ("{500: 1, 1.5: 2, ~: 3}", {"500": 1, "1.5": 2, "null": 3}),
    ],
)
def test_scalars_are_those_of_yaml_1_2_and_keys_are_text(text: str, value: Any) -> None:
    assert repr(parse(text)) == repr(value)


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.slow
@given(PLAIN)
def test_what_is_dumped_is_read_back_alike(value: Any) -> None:
    assert parse(dump({"value": value})) == {"value": value}


@pytest.mark.slow
@given(st.dictionaries(st.text(max_size=6), st.text(max_size=12), max_size=3))
@example({"\U0001f600": "\x7f\x85\u2028\ufeff\U0010ffff\n\x1b"})
def test_json_is_read_too_also_characters_that_it_has_as_two_escapes(value: dict[str, str]) -> None:
    assert parse(json.dumps(value)) == value


@pytest.mark.parametrize(
    "text", ["1e5", "yes", "null", "010", "1:30", "~", "", "2020-01-01", "<<", "\x85", "a\nb", "日本"]
)
def test_text_that_looks_like_something_else_stays_text_in_every_reader(text: str) -> None:
    assert parse(dump({"value": text})) == {"value": text}
    if text != "1e5":  # YAML 1.1 needs a decimal point in such a number
        assert yaml.safe_load(dump({"value": text})) == {"value": text}


@given(st.text(alphabet="abn01:-[]{},&*!|>'\"#%@`?~ \n\t.", max_size=24))
def test_no_text_whatever_gets_a_traceback(text: str) -> None:
    try:
        parse(text)
    except NotPlain as error:
        assert "\n" not in str(error)
