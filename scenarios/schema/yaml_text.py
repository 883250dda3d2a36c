"""YAML, strict and plain: text to mappings, lists, numbers, text, true, false and null, and back to the same values.

The scalars are those of YAML 1.2: `010` is no octal number, `1:30` no sexagesimal one, `yes` is text and 1e-3 a number.
Keys are text; a round's number becomes its digits. What no scenario needs is refused with its line: tags, aliases (a
few lines of them can stand for more than memory holds), and a key that is given twice, of which one would be lost.
"""

from __future__ import annotations

import json
import re
from collections.abc import Hashable
from typing import Any

import yaml

LONGEST = 65_536
"""Characters: about a second of the parser's time, and 40 times the longest scenario that comes with Seedbus."""
_SCALARS = {
    "null": r"~|null|Null|NULL|",
    "bool": r"true|True|TRUE|false|False|FALSE",
    "int": r"[-+]?(0|[1-9][0-9_]{0,300})|0x[0-9a-fA-F]{1,300}",  # longer ones stay text: no field takes them
    "float": r"[-+]?([0-9]+\.[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?|[-+]?[0-9]+[eE][-+]?[0-9]+"
    r"|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
}
_RESOLVERS = {None: [(f"tag:yaml.org,2002:{name}", re.compile(f"^({text})$")) for name, text in _SCALARS.items()]}


class NotPlain(ValueError):
    """Text that is not plain YAML; says where and why."""


def parse(text: str) -> Any:
    """The value that the text holds. Raises `NotPlain`."""
    if len(text) > LONGEST:
        raise NotPlain(f"it has more than {LONGEST:,} characters, the most that are accepted")
    try:
        return yaml.load(text, Loader=_Loader)
    except yaml.reader.ReaderError as error:
        raise NotPlain(f"it is not text: it holds the character U+{int(error.character):04X}") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        said = ", ".join(part for part in (error.context, error.problem) if part)
        raise NotPlain(f"line {mark.line + 1}: {said}" if mark else said) from None
    except RecursionError:
        raise NotPlain("it is nested too deeply") from None


def dump(document: Any) -> str:
    """Text that `parse` reads back as the same document."""
    text = yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True)
    # yaml leaves marks of writing direction as they are; what holds one is in double quotes, where escapes are read
    return "".join(each if each.isprintable() or each == "\n" else _escape(each) for each in text)


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode()


class _Loader(yaml.SafeLoader):
    yaml_implicit_resolvers = _RESOLVERS

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]
        if isinstance(event, yaml.AliasEvent):
            raise _refusal(f"an alias (*{event.anchor}) is not accepted; write the value out", event)
        if event.tag is not None:
            tag = event.tag.replace("tag:yaml.org,2002:", "!!")
            raise _refusal(f"a tag ({tag}) is not accepted; a scenario is plain data", event)
        return super().compose_node(parent, index)

    def construct_scalar(self, node: Any) -> Any:
        text = super().construct_scalar(node)
        half = next((character for character in text if "\ud800" <= character <= "\udfff"), None)
        if half is not None:
            raise _refusal(f"half a character (U+{ord(half):04X}) is not accepted", node)
        return text

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        found: dict[Hashable, Any] = {}
        for key_node, value_node in node.value:
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, (dict, list)):
                raise _refusal("a key is text or a number, not a mapping or a list", key_node)
            name = key if isinstance(key, str) else json.dumps(key)
            if name in found:
                raise _refusal(f"{name} is given twice", key_node)
            found[name] = self.construct_object(value_node, deep=True)
        return found


class _Dumper(yaml.SafeDumper):
    yaml_implicit_resolvers = yaml.SafeDumper.yaml_implicit_resolvers | _RESOLVERS  # unambiguous in YAML 1.1 as well

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def represent_str(self, data: str) -> yaml.ScalarNode:
        return self.represent_scalar("tag:yaml.org,2002:str", data, style=None if data.isprintable() else '"')


def _refusal(what: str, where: Any) -> yaml.MarkedYAMLError:
    return yaml.constructor.ConstructorError(None, None, what, where.start_mark)


_Loader.add_constructor("tag:yaml.org,2002:map", _Loader.construct_mapping)
_Dumper.add_representer(str, _Dumper.represent_str)
