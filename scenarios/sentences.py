"""Turns pydantic's validation errors into sentences: the field, its value, and what is accepted."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import reduce
from numbers import Integral
from pathlib import PurePath
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from seedbus.bus.text import printable
from seedbus.discovery import KINDS, Variants
from seedbus.scenarios.errors import ScenarioError

Path = tuple[int | str, ...]


def is_whole(value: Any) -> bool:
    """Whether a value that a program gave is a whole number, of Python or of a data frame."""
    return isinstance(value, Integral) and not isinstance(value, bool)


# The accepted values by pydantic's error type, as format strings for its context; other types keep pydantic's message.
_ACCEPTED = {
    "bool_type": "true or false",
    "dict_type": "a mapping",
    "finite_number": "a finite number",
    "float_parsing": "a number",
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
    "multiple_of": "a multiple of {multiple_of}",
    "string_type": "text, in quotes if need be",
    "too_long": "at most {max_length} values",
    "too_short": "{min_length} or more values",
    "tuple_type": "a list",
}
_ELSEWHERE = {  # symbols of papers, and words of other tools → our fields and names, the rarest first
    "K": "local_steps",
    "N": "clients",
    "P": "perturbations",
    "beta": "alpha",
    "client_fraction": "cohort",
    "clients_per_round": "cohort",
    "cohort_size": "cohort",
    "dataset": "task",
    "dirichlet": "alpha partition",
    "drift_penalty": "proximal",
    "dropout": "faults",
    "epochs": "local_steps",
    "eta": "learning_rate",
    "fedsgd": "fedavg",
    "graph_seed": "seed",
    "heterogeneity": "partition",
    "local_epochs": "local_steps",
    "lr": "learning_rate",
    "mu": "smoothing",
    "nu": "interval nu",
    "num_clients": "clients",
    "num_rounds": "rounds",
    "regularisation": "proximal",
    "tau": "adaptivity margin temperature local_steps",
}
_ELSEWHERE |= {"η": _ELSEWHERE["eta"], "μ": _ELSEWHERE["mu"], "ν": _ELSEWHERE["nu"], "τ": _ELSEWHERE["tau"]}
_FORMS = {"string_pattern_mismatch", "string_too_long", "string_too_short"}  # a field's description says what it takes
_MAX_PROBLEMS = 100  # every problem is compared with all others, which takes quadratic time
_MAX_CHARACTERS = 80  # of a quoted value
NO_UTF_8 = "text with an unpaired surrogate, such as U+D800, is not accepted"
_REFUSED = " is not accepted; "
_EXPECTED = f"{_REFUSED}expected "


def sentences(error: ValidationError, model: type[BaseModel], document: Any) -> list[str]:
    """Return one sentence for each of the first 100 problems in the document.

    Args:
        model: the model that the document was validated by.
        document: the parsed document.
    """
    errors = error.errors(include_url=False)
    if errors[0]["type"] == "json_invalid":  # this JSON is ours: only its depth can be refused, or text without UTF-8
        is_deep = "recursion" in errors[0]["ctx"]["error"]
        return [too_deep(model) if is_deep else NO_UTF_8]
    problems = [(_path(problem, document), problem) for problem in errors[:_MAX_PROBLEMS]]
    told = [(path, problem) for path, problem in problems if not _is_implied(path, problem, problems)]
    texts = _joined([_sentence(path, problem, model, document) for path, problem in told])
    if len(errors) > _MAX_PROBLEMS:
        texts.append(f"and {len(errors) - _MAX_PROBLEMS:,} further mistakes")
    return texts


def too_deep(model: type[BaseModel]) -> str:
    """Return the sentence about a document with too many levels."""
    return f"it is nested too deeply; a {model.__name__.lower()} has a few levels"


def _joined(texts: list[str]) -> list[str]:
    """Return the sentences with those of one value as one, for pydantic has a problem for each accepted form."""
    joined: dict[str, str] = {}
    for text in texts:
        problem, _, accepted = text.partition(_EXPECTED)
        joined[problem] = f"{joined[problem]} or {accepted}" if accepted and problem in joined else text
    return list(joined.values())


def is_of_one_value(sentence: str) -> bool:
    """Whether a problem's sentence says that one field's value is wrong, whatever the other fields hold."""
    return _REFUSED in sentence


def nearest(word: str, known: Iterable[str]) -> str:
    """Return a hint for an unknown word: the most similar known word, or all known words."""
    names = list(known)
    similar = difflib.get_close_matches(word, names, 1)
    return f"did you mean {similar[0]}?" if similar else f"there are {', '.join(names)}"


def variant(kind: Variants, name: str, option: str, values: Mapping[str, object]) -> Any:
    """Return the variant that an option of a command names.

    Args:
        kind: what it is one of.
        name: its name.
        option: the option, for sentences.
        values: its fields; those that are missing have their defaults.

    Raises:
        ScenarioError: there is none of that name, or a field has a value that is not accepted.
    """
    kinds = kind.all()
    if name not in kinds:
        raise ScenarioError(f"{option} {name}", [f"there is no such {kind.noun}; {nearest(name, kinds)}"])
    try:
        return kinds[name](**values)
    except ValidationError as error:
        raise ScenarioError(f"{option} {name}", sentences(error, kinds[name], values)) from None


def quoted(value: Any) -> str:
    """Return the value as JSON, truncated if it is long."""
    try:
        text = json.dumps(value, ensure_ascii=False, default=repr)
    except (RecursionError, ValueError):  # a list of lists, or one that holds itself
        return "a value that is nested too deeply"
    except TypeError:  # a key that JSON has not, such as a tuple
        text = repr(value)
    return text if len(text) <= _MAX_CHARACTERS else f"{text[:_MAX_CHARACTERS]}…"


def _path(problem: Any, document: Any) -> Path:
    """Return a problem's path in the document: pydantic's location without the names of variants and validators."""
    path: list[int | str] = []
    is_named = True  # whether the name of the variant that a mapping is has been passed; a field may have it too
    for part in problem["loc"]:
        if isinstance(document, dict) and not is_named and part in (document.get(each.tag) for each in KINDS):
            is_named = True
            continue
        is_named = False
        if isinstance(document, dict) and str(part) in document:
            document = document[str(part)]
        elif isinstance(document, list) and isinstance(part, int):
            document = document[part] if part < len(document) else None
        else:
            continue
        path.append(part)
    if problem["type"] == "missing" and (not path or path[-1] != problem["loc"][-1]):
        path.append(problem["loc"][-1])
    return tuple(path)


def _is_implied(path: Path, problem: Any, problems: list[tuple[Path, Any]]) -> bool:
    """Whether a problem only says that the value has not the other accepted form, while another one says what is wrong.

    Pydantic reports a problem for each form that a field accepts.
    """
    has_other = any(other_path == path and other is not problem for other_path, other in problems)
    has_nested = any(other_path[: len(path)] == path and other_path != path for other_path, _ in problems)
    return (problem["type"] == "dict_type" and has_other) or (isinstance(problem["input"], dict) and has_nested)


def _sentence(path: Path, problem: Any, model: type[BaseModel], document: Any) -> str:
    location, kind, given = problem["loc"], problem["type"], problem["input"]
    where, last = printable(".".join(map(str, path))) or "the scenario", str(path[-1]) if path else ""
    models = _models_at(location[:-1], model)
    fields = {name: field for each in models for name, field in _fields_of(each).items()}
    if kind == "extra_forbidden":
        given = reduce(lambda value, part: value[part], path[:-1], document)
        others = "" if any(word in fields for word in _words_for(last)) else _others_with(last, models)
        return f"{where}: no such field{others}; {_field_like(last, path[:-1], fields, given)}"
    if kind == "missing":
        meaning = fields[last].description if last in fields else None
        return f"{where}: this field is required" + (f" ({meaning})" if meaning else "")
    if kind in ("union_tag_invalid", "union_tag_not_found"):
        return _unknown_variant(where, given, problem["ctx"]["discriminator"].strip("'"), _models_at(location, model))
    if kind == "value_error":
        message = str(problem["ctx"]["error"])
        if not path:
            return message
        is_model = _models_at(location, model) != models  # then the message itself names fields and values
        return f"{where}: {message}" if is_model else f"{where}: {quoted(given)}{_REFUSED}{message}"
    return f"{where}: {quoted(given)}{_EXPECTED}{_accepted(problem, fields.get(last))}"


def option_sentence(error: ValidationError) -> str:
    """Return a sentence about the value of a command's option."""
    problem = error.errors(include_url=False)[0]
    if problem["type"] == "value_error":
        return str(problem["ctx"]["error"])
    return f"{quoted(problem['input'])}{_EXPECTED}{_accepted(problem, None)}"


def _fields_of(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """Return a model's fields by the names that documents have."""
    return {field.alias or name: field for name, field in model.model_fields.items()}


def _words_for(name: str) -> list[str]:
    return _ELSEWHERE.get(name, "").split()


def _field_like(name: str, path: Path, fields: dict[str, FieldInfo], given: Mapping[str, Any]) -> str:
    """Return a hint for an unknown field: where one section has it, that section's field, else the nearest name."""
    sections = {section: field for section, field in fields.items() if get_origin(field.annotation) is not list}
    words = [name, *_words_for(name)]
    if (here := next((word for word in words if word in fields), None)) is not None:
        return f"did you mean {here}?"
    for each in (name, words[-1]):  # of a section of several kinds: the usual one
        for section, field in sections.items():
            if any(each in _fields_of(nested) for nested in _chosen(field, given.get(section))):
                return f"did you mean {'.'.join(map(str, [*path, section, each]))}?"
    return nearest(name, fields)


def _chosen(field: FieldInfo, value: Any) -> list[type[BaseModel]]:
    """Return the models that a section's value names, or all that the section accepts."""
    models = list(models_in(field))
    if not isinstance(value, dict):
        return models
    tags = {each: {name: tag.default for name, tag in each.model_fields.items() if is_tag(tag)} for each in models}
    return [each for each in models if tags[each].items() <= value.items()] or models


def _others_with(field: str, models: list[type[BaseModel]]) -> str:
    """Return which others of a model's kind have a field, as a part of a sentence: empty if none has it."""
    kin = [known for kind in KINDS if not set(models).isdisjoint((known := kind.all()).values())]
    names = [name for known in kin for name, each in known.items() if field in _fields_of(each)]
    if not names:
        return ""
    *first, last = [*names[:4], *(["others"] if len(names) > 4 else [])]
    return f" here, but {', '.join(first)}{' and ' if first else ''}{last} {'have' if first else 'has'} it"


def _accepted(problem: Any, field: FieldInfo | None) -> str:
    kind, context = problem["type"], problem.get("ctx", {})
    if problem["loc"][-1:] == ("[key]",):
        return "the number of a round"
    if kind in _FORMS and field is not None and field.description:
        return field.description
    accepted = _ACCEPTED[kind].format(**context) if kind in _ACCEPTED else str(problem["msg"])
    models = [] if field is None else list(models_in(field))
    if kind in ("model_attributes_type", "model_type") and len(models) == 1:
        with suppress(ValidationError):
            models[0]()
            return f"{accepted}, such as {{}} for the defaults"
    forms = get_args(field.annotation) if field is not None else ()
    is_scheduled = any(get_origin(form) is dict and get_args(form)[0] is int for form in forms)
    return f"{accepted}, or a schedule, from round to value: {{0: VALUE, 500: VALUE}}" if is_scheduled else accepted


def _unknown_variant(where: str, given: dict[str, Any], tag: str, variants: list[type[BaseModel]]) -> str:
    """Describe a value whose field `tag` does not name one of the variants."""
    known = [str(variant.model_fields[tag].default) for variant in variants]
    if tag not in given:
        misspelt = next((key for key in given if difflib.get_close_matches(key, [tag])), None)
        if misspelt is not None:
            return f"{where}.{misspelt}: no such field; did you mean {tag}?"
        return f"{where}.{tag}: this field is required; there are {', '.join(known)}"
    name = given[tag]
    if name is None and "null" in known:
        return f'{where}.{tag}: null is YAML\'s word for nothing; write "null", in quotes, for the {where} of that name'
    if tag == "distribution" and isinstance(name, str) and name[:1].isdigit():  # "100ms", for a number is one too
        return f"{where}: {quoted(name)} is not accepted; expected a number without a unit, such as 0.1 for seconds"
    hint = nearest(next((word for word in _words_for(str(name)) if word in known), str(name)), known)
    is_open = any(kind.tag == tag and kind.all().keys() >= set(known) for kind in KINDS)
    if isinstance(name, str) and is_open and not hint.startswith("did"):
        hint += "; one of a plug-in is known once that is loaded, by --plugin or seedbus.plugin.load_plugin"
    return f"{where}.{tag}: {quoted(name)} is not known; {hint}"


def _models_at(location: Path, model: type[BaseModel]) -> list[type[BaseModel]]:
    """Return the models that are accepted at a location of pydantic's, or the model that has the field there."""
    models = [model]
    for part in location:
        variants = [each for each in models if part in words_of(each)]
        fields = [each.model_fields[str(part)] for each in models if part in each.model_fields]
        models = variants or [nested for field in fields for nested in models_in(field)] or models
    return models


def expanded(value: Any, models: Sequence[type[BaseModel]]) -> Any:
    """Return a value of a document with each bare name as a mapping, such as "hiso" as {"name": "hiso"}.

    A path, which only Python has, becomes text.

    Args:
        value: a value as parsed.
        models: the models that are accepted in its place.
    """
    if isinstance(value, PurePath):
        return str(value)
    if isinstance(value, list):
        return [each if isinstance(each, list) else expanded(each, models) for each in value]
    if not models or not isinstance(value, str | dict):
        return value
    if isinstance(value, str):
        tags = [{name for name, field in model.model_fields.items() if is_tag(field)} for model in models]
        tag = next(iter(set.intersection(*tags)), None)
        return value if tag is None else {tag: value}
    fields = {key: [model.model_fields[key] for model in models if key in model.model_fields] for key in value}
    nested = {key: [each for field in fields[key] for each in models_in(field)] for key in value}
    return {key: expanded(each, list(dict.fromkeys(nested[key]))) for key, each in value.items()}


def is_tag(field: FieldInfo) -> bool:
    """Whether a field holds the name of its model: it accepts only one word."""
    words = get_args(field.annotation)
    return get_origin(field.annotation) is Literal and len(words) == 1 and isinstance(words[0], str)


def models_in(field: FieldInfo) -> Iterator[type[BaseModel]]:
    """Yield the models that a field accepts."""
    return _models_in(field.annotation, field.metadata)


def _models_in(annotation: Any, metadata: Iterable[Any] = ()) -> Iterator[type[BaseModel]]:
    kinds = [each for each in metadata if isinstance(each, Variants)]
    if kinds:
        yield from kinds[0].all().values()
    elif get_origin(annotation) is Annotated:
        yield from _models_in(annotation.__origin__, annotation.__metadata__)
    elif isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    else:
        for part in get_args(annotation):
            yield from _models_in(part)


def words_of(model: type[BaseModel]) -> list[str]:
    """Return the names of a variant: the values of its fields that accept only one word."""
    return [get_args(field.annotation)[0] for field in model.model_fields.values() if is_tag(field)]
