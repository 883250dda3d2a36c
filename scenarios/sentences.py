"""What pydantic found wrong with a scenario, a sentence a mistake: the field, the value, and what is accepted."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Iterator
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

Place = tuple[int | str, ...]

# What is accepted, by pydantic's kind of error; the braces are filled from its context. Others keep pydantic's words.
_ACCEPTED = {
    "bool_type": "true or false",
    "dict_type": "a mapping",
    "finite_number": "a finite number",
    "float_type": "a number",
    "greater_than": "more than {gt:g}",
    "greater_than_equal": "at least {ge}",
    "int_from_float": "a whole number",
    "int_parsing": "a whole number",
    "int_parsing_size": "a smaller number",
    "int_type": "a whole number",
    "less_than": "less than {lt}",
    "less_than_equal": "at most {le}",
    "list_type": "a list",
    "literal_error": "{expected}",
    "model_attributes_type": "a mapping of fields",
    "model_type": "a mapping of fields",
    "string_type": "text, in quotes if need be",
    "too_long": "at most {max_length} values",
    "too_short": "{min_length} or more values",
    "tuple_type": "a list",
}
_MOST = 100  # mistakes; to compare each with all others takes their square
_LONGEST = 80  # characters of a value that a sentence quotes


def sentences(error: ValidationError, model: type[BaseModel], document: Any) -> list[str]:
    """One sentence for every mistake in the document, the first `_MOST` of them."""
    found = error.errors(include_url=False)
    problems = [(_place(problem, document), problem) for problem in found[:_MOST]]
    told = [_sentence(place, problem, model) for place, problem in problems if not _is_lesser(place, problem, problems)]
    return [*told, f"and {len(found) - _MOST:,} further mistakes"] if len(found) > _MOST else told


def nearest(word: str, known: Iterable[str]) -> str:
    """What to say of a word that is not known: the nearest one that is, or all of them."""
    names = list(known)
    near = difflib.get_close_matches(word, names, 1)
    return f"did you mean {near[0]}?" if near else f"there are {', '.join(names)}"


def quoted(value: Any) -> str:
    """The value as it would be written, cut off where it is long."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _place(problem: Any, document: Any) -> Place:
    """Where in the document: the location without the variants and validators that pydantic names on the way."""
    place: list[int | str] = []
    for part in problem["loc"]:
        if isinstance(document, dict) and str(part) in document:
            document = document[str(part)]
        elif isinstance(document, list) and isinstance(part, int):
            document = document[part] if part < len(document) else None
        else:
            continue
        place.append(part)
    if problem["type"] == "missing" and (not place or place[-1] != problem["loc"][-1]):
        place.append(problem["loc"][-1])
    return tuple(place)


def _is_lesser(place: Place, problem: Any, problems: list[tuple[Place, Any]]) -> bool:
    """True for what only says that a value is not of another form, which would have been accepted too."""
    has_other = any(where == place and other is not problem for where, other in problems)
    has_deeper = any(where[: len(place)] == place and where != place for where, _ in problems)
    return (problem["type"] == "dict_type" and has_other) or (isinstance(problem["input"], dict) and has_deeper)


def _sentence(place: Place, problem: Any, model: type[BaseModel]) -> str:
    location, kind, given = problem["loc"], problem["type"], problem["input"]
    where, last = ".".join(map(str, place)) or "the scenario", str(place[-1]) if place else ""
    inside = _models_at(location[:-1], model)
    fields: dict[str, FieldInfo] = {name: field for each in inside for name, field in each.model_fields.items()}
    if kind == "extra_forbidden":
        return f"{where}: no such field; {nearest(last, fields)}"
    if kind == "missing":
        meaning = fields[last].description if last in fields else None
        return f"{where}: this field is required" + (f" ({meaning})" if meaning else "")
    if kind in ("union_tag_invalid", "union_tag_not_found"):
        return _unknown_variant(where, given, problem["ctx"]["discriminator"].strip("'"), _models_at(location, model))
    if kind == "value_error":
        said = str(problem["ctx"]["error"])
        if not place:
            return said
        is_model = _models_at(location, model) != inside  # then the sentence names the fields and values itself
        return f"{where}: {said}" if is_model else f"{where}: {quoted(given)} is not accepted; {said}"
    return f"{where}: {quoted(given)} is not accepted; expected {_accepted(problem, fields.get(last))}"


def _accepted(problem: Any, field: FieldInfo | None) -> str:
    kind, context = problem["type"], problem.get("ctx", {})
    if problem["loc"][-1:] == ("[key]",):
        return "the number of a round"
    if kind == "string_pattern_mismatch" and field is not None and field.description:
        return field.description
    return _ACCEPTED[kind].format(**context) if kind in _ACCEPTED else str(problem["msg"])


def _unknown_variant(where: str, given: dict[str, Any], tag: str, variants: list[type[BaseModel]]) -> str:
    """Of a value whose field `tag` should say which of the variants it is."""
    known = [str(variant.model_fields[tag].default) for variant in variants]
    if tag not in given:
        slip = next((key for key in given if difflib.get_close_matches(key, [tag])), None)
        if slip is not None:
            return f"{where}.{slip}: no such field; did you mean {tag}?"
        return f"{where}.{tag}: this field is required; there are {', '.join(known)}"
    name = given[tag]
    if name is None and "null" in known:
        return f'{where}.{tag}: null is YAML\'s word for nothing; write "null", in quotes, for the {where} of that name'
    return f"{where}.{tag}: {quoted(name)} is not known; {nearest(str(name), known)}"


def _models_at(location: Place, model: type[BaseModel]) -> list[type[BaseModel]]:
    """The models that may stand at a location of pydantic's, or the one in which the field there lies."""
    inside = [model]
    for part in location:
        chosen = [each for each in inside if part in words_of(each)]
        fields = [each.model_fields[str(part)] for each in inside if part in each.model_fields]
        inside = chosen or [deeper for field in fields for deeper in models_in(field.annotation)] or inside
    return inside


def models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    """The models that a field with this annotation may hold."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from models_in(part)


def words_of(model: type[BaseModel]) -> list[str]:
    """The names that a variant goes by: the fields that accept one word only."""
    words = [
        get_args(field.annotation) for field in model.model_fields.values() if get_origin(field.annotation) is Literal
    ]
    return [accepted[0] for accepted in words if len(accepted) == 1 and isinstance(accepted[0], str)]
