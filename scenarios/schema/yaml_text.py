"""A strict subset of YAML: text to mappings, lists, numbers, text, true, false and null, and back to the same values.

The scalars are those of YAML 1.2: `010` is not octal, `1:30` is not sexagesimal, `yes` is text and 1e-3 is a number.
Keys are text; the number of a round becomes its digits. Three constructs are refused, with their line: tags, aliases (a
few lines of them can expand to more than memory holds) and duplicate keys (one of the values would be lost).
"""

from __future__ import annotations

import json
import re
from collections.abc import Hashable
from typing import Any

import yaml

MAX_CHARACTERS = 65_536
"""About one second of parsing, and 40 times the longest scenario of the library."""
_SCALARS = {
    "null": r"~|null|Null|NULL|",
    "bool": r"true|True|TRUE|false|False|FALSE",
    "int": r"[-+]?(0|[1-9][0-9_]{0,300})|0x[0-9a-fA-F]{1,300}",  # longer ones remain text, which no field accepts
    "float": r"[-+]?([0-9]+\.[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?|[-+]?[0-9]+[eE][-+]?[0-9]+"
    r"|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
}
_RESOLVERS = {None: [(f"tag:yaml.org,2002:{name}", re.compile(f"^({text})$")) for name, text in _SCALARS.items()]}


class NotPlain(ValueError):
    """Text that is not plain YAML. The message names the line and the reason."""


def parse(text: str) -> Any:
    """Parse the text.

    Raises:
        NotPlain: the text is not YAML, or uses more than the accepted subset.
    """
    if len(text) > MAX_CHARACTERS:
        raise NotPlain(f"it has more than {MAX_CHARACTERS:,} characters, the most that are accepted")
    try:
        return yaml.load(text, Loader=_Loader)
    except yaml.reader.ReaderError as error:
        raise NotPlain(f"it is not text: it holds the character U+{int(error.character):04X}") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        reason = ", ".join(part for part in (error.context, error.problem) if part)
        raise NotPlain(f"line {mark.line + 1}: {reason}" if mark else reason) from None
    except RecursionError:
        raise NotPlain("it is nested too deeply") from None


def dump(document: Any) -> str:
    """Return YAML text that `parse` reads back as the same document."""
    text = yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True)
    # the YAML library does not escape marks of writing direction; text with such marks is in double quotes, where
    # escapes are read back
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
        # JSON has one character beyond U+FFFF as two escapes, a pair of surrogates
        text = super().construct_scalar(node).encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
        surrogate = next((character for character in text if "\ud800" <= character <= "\udfff"), None)
        if surrogate is not None:
            raise _refusal(f"an unpaired surrogate (U+{ord(surrogate):04X}) is not accepted", node)
        return text

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        mapping: dict[Hashable, Any] = {}
        for key_node, value_node in node.value:
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, (dict, list)):
                raise _refusal("a key is text or a number, not a mapping or a list", key_node)
            name = key if isinstance(key, str) else json.dumps(key)
            if name in mapping:
                raise _refusal(f"{name} is given twice", key_node)
            mapping[name] = self.construct_object(value_node, deep=True)
        return mapping


_SafeDumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)  # libyaml's, where there is one, takes a fourth


class _Dumper(_SafeDumper):  # type: ignore[misc]
    yaml_implicit_resolvers = yaml.SafeDumper.yaml_implicit_resolvers | _RESOLVERS  # unambiguous in YAML 1.1 as well

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def represent_str(self, data: str) -> yaml.ScalarNode:
        style = None if data.isprintable() else '"'
        node: yaml.ScalarNode = self.represent_scalar("tag:yaml.org,2002:str", data, style=style)
        return node


def _refusal(reason: str, node: Any) -> yaml.MarkedYAMLError:
    """Return an error at the line where the node, or the event, begins."""
    return yaml.constructor.ConstructorError(None, None, reason, node.start_mark)


_Loader.add_constructor("tag:yaml.org,2002:map", _Loader.construct_mapping)
_Dumper.add_representer(str, _Dumper.represent_str)
