"""The terms of a scenario: all its fields but those that cost a client's owner nothing, and the file that pins them.

A field is a term unless `FREE` names it, so one that a later version adds is a term too. The file is YAML with one line
a term. Every offer of a server is compared with it: it may restart with another scenario. Names and values of fields
are the server's, so both are written and shown as JSON in ASCII, which has no characters that a terminal acts upon.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from seedbus.bus.files import atomic_write, check_file, read
from seedbus.bus.text import counted, printable
from seedbus.discovery import KINDS
from seedbus.models.errors import NotAllowed
from seedbus.scenarios.errors import ScenarioError
from seedbus.scenarios.schema.scenario import Scenario
from seedbus.scenarios.schema.yaml_text import MAX_CHARACTERS, NotPlain, parse

FREE = frozenset({"name", "description", "client_groups", "expect", "transport"})
"""Names and what follows from a run's results, which change nothing of what clients do, send and keep."""
Terms = dict[str, Any]
"""Dotted field → number, text, true, false, null, or a list or mapping without fields; ascending."""
MOST_TOLD = 5  # terms that a refusal names
MOST_VALUE = 80  # characters of a value
_PLAIN = re.compile(r"[A-Za-z0-9_-]+")
_PART = re.compile(r'"(?:[^"\\]|\\.)*"|[^.]+')


class NotAccepted(NotAllowed):
    """A server's scenario has other terms than its client's owner has accepted.

    Attributes:
        accepted: those that she has accepted, in words of a sentence.
        differing: field, its value at the server, the accepted one; values as text.
    """

    def __init__(self, accepted: str, differing: list[tuple[str, str, str]]) -> None:
        super().__init__(*differing[0])
        self.accepted = accepted
        self.differing = differing

    def __str__(self) -> str:
        told = [f"{field} is {asked}, accepted is {accepted}" for field, asked, accepted in self.differing[:MOST_TOLD]]
        more = len(self.differing) - len(told)
        told += [f"and {counted(more, 'other field')} differ"] if more else []
        return f"the server's scenario is not what {self.accepted}: {'; '.join(told)}"


class Accepted:
    """The terms that an owner has accepted.

    Args:
        terms: the terms.
        what: what accepts them, in words of a sentence.
    """

    def __init__(self, terms: Terms, what: str) -> None:
        self._terms = terms
        self._what = what

    @staticmethod
    def read(path: Path) -> Accepted:
        """Return those of a file. Raises `ScenarioError` if it cannot be read, or is not such a file."""
        return Accepted(_read(path), f"{path} accepts")

    @staticmethod
    def joined(scenario: Scenario) -> Accepted:
        """Return those of the scenario with which a process has joined."""
        return Accepted(terms_of(scenario), "this process has joined with")

    def check(self, scenario: Scenario) -> None:
        """Raise `NotAccepted` if a scenario has other terms."""
        differing = _different(terms_of(scenario), self._terms)
        if differing:
            raise NotAccepted(self._what, differing)


def different(scenario: Scenario, joined: Scenario) -> list[tuple[str, str, str]]:
    """Return the terms in which a run's scenario differs from the one that a client has joined with.

    Field, its value in each, as text. Names of a public test set are no terms: who joins does not look at it.
    """
    public = {f"task.{name}" for name in scenario.task.public_files}
    run, client = terms_of(scenario), terms_of(joined)
    return _different(*({name: terms[name] for name in terms.keys() - public} for terms in (run, client)))


def _different(asked: Terms, accepted: Terms) -> list[tuple[str, str, str]]:
    both = [field for field in asked if field in accepted and _text(asked[field]) != _text(accepted[field])]
    both.sort(key=lambda field: _parts(field)[-1] not in {each.tag for each in KINDS})  # what others follow from
    differing = [(field, _text(asked[field]), _text(accepted[field])) for field in both]
    differing += [(part, text, "nothing") for part, text in _alone(asked, accepted)]
    differing += [(part, "nothing", text) for part, text in _alone(accepted, asked)]
    return [(field, printable(one, MOST_VALUE), printable(other, MOST_VALUE)) for field, one, other in differing]


def terms_of(scenario: Scenario) -> Terms:
    """Return the terms of a scenario, with the values that its fields have where it does not name them."""
    document = {name: value for name, value in scenario.resolved().items() if name not in FREE}
    return dict(sorted(_leaves(document, "")))


def write_terms(path: Path, scenario: Scenario, lines: Iterable[str]) -> None:
    """Write a scenario's terms.

    Args:
        path: the file; if it is there, it is left as it is.
        scenario: the scenario.
        lines: what tells them to people.

    Raises:
        NotAccepted: the file is there, and has other terms.
        ScenarioError: something else is there, it cannot be written, or the terms are too long.
    """
    if path.exists():
        Accepted.read(path).check(scenario)
        return
    said = "".join(f"# {printable(line, 2000)}\n" for line in lines)
    terms = "".join(f"{_key(field)}: {_text(value)}\n" for field, value in terms_of(scenario).items())
    if len(said + terms) > MAX_CHARACTERS:
        raise ScenarioError(f"--accept {path}", [f"the terms have more than {MAX_CHARACTERS:,} characters"])
    try:
        with atomic_write(path) as file:
            file.write((said + terms).encode())
    except OSError as error:
        raise ScenarioError(f"--accept {path}", [f"it cannot be written ({error.strerror})"]) from None


def _read(path: Path) -> Terms:
    how = "expected what `seedbus client --show --accept FILE` writes"
    try:
        if not check_file(path):
            raise ScenarioError(f"--accept {path}", [f"it does not exist; {how}"])
        document = parse(read(path, 4 * MAX_CHARACTERS).decode())
    except OSError as error:
        raise ScenarioError(f"--accept {path}", [f"it cannot be read ({error.strerror}); {how}"]) from None
    except UnicodeDecodeError:
        raise ScenarioError(f"--accept {path}", [f"it is not UTF-8 text; {how}"]) from None
    except NotPlain as error:
        raise ScenarioError(f"--accept {path}", [f"{error}; {how}"]) from None
    if not isinstance(document, dict):
        raise ScenarioError(f"--accept {path}", [f"it has no terms; {how}"])
    for field, value in document.items():
        if isinstance(value, dict) and value:
            raise ScenarioError(f"--accept {path}", [f"{field} holds fields, and a term has one value; {how}"])
    return document


def _leaves(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, list) and any(isinstance(each, dict) for each in value):
        value = dict(enumerate(value))
    if not (isinstance(value, dict) and value):
        yield path, value
        return
    for key, each in value.items():
        part = str(key) if _PLAIN.fullmatch(str(key)) else json.dumps(str(key))  # in quotes a dot is none between two
        yield from _leaves(each, f"{path}.{part}" if path else part)


def _key(field: str) -> str:
    return json.dumps(field) if '"' in field else field


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _parts(field: str) -> list[str]:
    return _PART.findall(field)


def _alone(terms: Terms, others: Terms) -> list[tuple[str, str]]:
    """Return what only one side has, sections as a whole: field or section, its value as text."""
    known = {".".join(_parts(field)[:count]) for field in others for count in range(1, 1 + len(_parts(field)))}
    found = dict[str, list[str]]()
    for field in terms:
        parts = _parts(field)
        whole = [".".join(parts[:count]) for count in range(1, 1 + len(parts))]
        if (section := next((each for each in whole if each not in known), None)) is not None:
            rest, text = field[len(section) + 1 :], _text(terms[field])
            found.setdefault(section, []).append(f"{rest} {text}" if rest else text)
    return [(section, ", ".join(texts)) for section, texts in found.items()]
