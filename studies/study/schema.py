"""The file of a study: a scenario, the settings and seeds that it is run with, and what is asked of the runs."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Discriminator, Field, Tag, ValidationError, model_validator

from seedbus.scenarios.errors import ScenarioError, path_of
from seedbus.scenarios.schema.amounts import Point
from seedbus.scenarios.schema.loading import studies
from seedbus.scenarios.schema.python_values import plain_fields
from seedbus.scenarios.schema.yaml_text import MAX_CHARACTERS, NotPlain, parse
from seedbus.scenarios.sentences import quoted, sentences
from seedbus.settings import Settings
from seedbus.studies.analysis.quantities import Name, parts
from seedbus.studies.study.claims import Expected

Seed = Annotated[int, Field(ge=0, lt=2**63)]
MAX_CELLS = 10_000
RUNS = "runs"
"""The folder of all runs, beside the folders of studies."""


def _as_mapping(settings: Any) -> Any:
    """Return a list of `field=value` as a mapping from field to value; anything else as it is."""
    if not (isinstance(settings, list) and all(isinstance(each, str) and "=" in each for each in settings)):
        return settings
    try:
        return {path: parse(text) for path, _, text in (each.partition("=") for each in settings)}
    except NotPlain as error:
        raise ValueError(str(error)) from None


def _as_variant(settings: Any) -> Any:
    """Return the name of a scenario as a variant that has it as its base."""
    return {"base": settings} if isinstance(settings, str) else _as_mapping(settings)


def _fields(settings: Mapping[str, Any], path: str = "") -> Iterator[str]:
    """Yield the path of every field that settings set; of a section, those of the fields in it."""
    for name, value in settings.items():
        if isinstance(value, dict) and value:
            yield from _fields(value, f"{path}{name}.")
        else:
            yield f"{path}{name}"


Target = Annotated[
    Annotated[float, Tag("number")] | Annotated[list[float], Field(min_length=1), Tag("list")],
    Discriminator(lambda given: "list" if isinstance(given, list) else "number"),
]


def _shortest(value: float) -> str:
    """Return a number as one writes it, such as 1 for 1.0, in as many digits as it has."""
    return f"{value:g}" if float(f"{value:g}") == value else repr(value)


class Ask(Settings):
    """What is reported of the runs, and when one counts as better than another."""

    metric: str | None = Field(default=None, description="the metric; none: accuracy, or loss where there is none")
    at: list[Point] = Field(
        default=[], description="rounds, bytes such as 1MB, or simulated times such as 600s, after which it is reported"
    )
    target: Target | None = Field(default=None, description="value that the metric is to reach, or several")
    smoothed: bool = Field(
        default=False, description="with `target`: whether the metric's moving average, 0.9 per round, is to reach it"
    )
    splits: list[Literal["train", "validation", "test"]] = Field(
        default=[], description="splits on which the final model is measured too"
    )
    analysis: list[Name] = Field(
        default=[], description="quantities of the final model that `seedbus analyse` measures, such as kappa"
    )
    against: str | None = Field(
        default=None,
        description="the variant that the others are compared with under each condition, the condition that the others "
        "are compared with for each variant, or the row that all others are; none: rows that differ in one thing",
    )
    columns: list[str] = Field(default=[], description="the table's figures; none: those that are asked for, and costs")
    confidence: float = Field(default=0.95, ge=0.5, lt=1, description="of the intervals")
    together: bool = Field(
        default=False, description="whether all intervals of differences hold together with that confidence"
    )

    @property
    def targets(self) -> dict[str, float]:
        """Name → target: the figures to one target are called `rounds_to_target`, to several `rounds_to_0.8`."""
        given = self.target if isinstance(self.target, list) else [self.target]
        return {"target" if len(given) == 1 else _shortest(value): value for value in given if value is not None}

    def parts(self, metric: str) -> list[str]:
        """Return what is measured of final models: splits, and instruments; metric: the study's (`metric_of`)."""
        return [*self.splits, *parts(self.analysis, metric)]


class Range(Settings):
    """Numbers that are searched: whole ones where the field accepts only these."""

    low: float = Field(description="the lowest value")
    high: float = Field(description="the highest value")
    log: bool = Field(default=False, description="whether factors count, and not differences: for learning rates")

    @model_validator(mode="after")
    def _ordered(self) -> Range:
        if self.low >= self.high:
            raise ValueError("expected low to be less than high")
        if self.log and self.low <= 0:
            raise ValueError("expected low to be more than 0 with log: true")
        return self


class Choices(Settings):
    """Values that are searched, in no order."""

    choices: list[Any] = Field(min_length=1, description="the values")


def _form(tuned: Any) -> str:
    if isinstance(tuned, dict | Range | Choices):
        return "choices" if isinstance(tuned, Choices) or (isinstance(tuned, dict) and "choices" in tuned) else "range"
    return "list"


Tuned = Annotated[
    Annotated[list[Any], Field(min_length=1), Tag("list")]
    | Annotated[Range, Tag("range")]
    | Annotated[Choices, Tag("choices")],
    Discriminator(_form),
]


Values = Annotated[
    Annotated[list[Any], Field(min_length=1), Tag("list")]
    | Annotated[dict[str, Any], Field(min_length=1), Tag("named")],
    Discriminator(lambda values: "named" if isinstance(values, dict) else "list"),
]
"""The values of a field in the grid, or a mapping from names to them."""
Axis = list[Any] | Range | Choices
"""An entry of `tune`."""


def is_numeric(axis: Axis) -> bool:
    """Whether an entry of `tune` has numbers only."""
    values = axis.choices if isinstance(axis, Choices) else axis if isinstance(axis, list) else []
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)


class Variant(Settings, extra="allow"):
    """What makes the rows of a variant: all further fields are the scenario's, by their paths."""

    base: str | dict[str, Any] | None = Field(default=None, description="in place of the study's")
    tune: dict[str, Tuned] = Field(
        default={}, description="fields that these rows choose too, or other values of those that all rows choose"
    )

    @property
    def settings(self) -> dict[str, Any]:
        """Field of the scenario → value."""
        return self.model_extra or {}


class Tuning(Settings):
    """How the values under `tune` are chosen: short runs measured on the validation split."""

    rounds: int | None = Field(
        default=None,
        ge=1,
        description="rounds of a trial; none: a quarter of the run's, and of its `stop.simulated_s`",
    )
    seeds: list[Seed] = Field(default=[], description="seeds of a trial; none: the first of the study")
    further: int = Field(
        default=5, ge=0, le=100, description="values tried after the first ones at most, the same number for every row"
    )
    search: Literal["tpe", "random"] = Field(default="tpe", description="how Optuna searches ranges")
    trials: int = Field(default=20, ge=1, le=10_000, description="values of ranges tried for every row")
    seed: Seed | None = Field(default=None, description="seed of the search; none: the first of the study")


class Study(Settings):
    """Runs of one scenario with different settings and seeds, and what is asked of them."""

    model_config = ConfigDict(title="Seedbus study")

    name: str = Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$",
        description="at most 64 of A-Z a-z 0-9 . _ -, the first a letter or digit; it names the study's folder",
    )
    description: str = Field(default="", description="one line, the title of the report")
    base: str | dict[str, Any] | None = Field(
        default=None, description="a scenario file, a name from `seedbus list`, or the fields of a scenario"
    )
    variants: dict[str, Annotated[Variant, BeforeValidator(_as_variant)]] = Field(
        default={},
        description="rows by name, each a list of settings, fields and values with `base` and `tune`, or only a base",
    )
    conditions: dict[str, Annotated[dict[str, Any], BeforeValidator(_as_mapping)]] = Field(
        default={},
        description="conditions by name, each a list of settings, or fields and values; each variant is run under each",
    )
    grid: dict[str, Values] = Field(
        default={},
        description="fields and the values of each, or names of values with these; every combination is a row",
    )
    seeds: list[Seed] = Field(default=[1, 2, 3], min_length=1, description="seeds of every row")
    tune: dict[str, Tuned] = Field(
        default={}, description="fields whose values are chosen for every row: the first values to try, or ranges"
    )
    tuning: Tuning = Field(default=Tuning(), description="how they are chosen")
    ask: Ask = Field(default=Ask(), description="what is reported")
    claim: str = Field(default="", description="what the study is to show, in words")
    source: str = Field(default="", description="the paper and the figure or table that show it")
    expect: list[Expected] = Field(default=[], description="the same in numbers: all are to hold")
    unpublished: str = Field(
        default="",
        description="what is missing from what is published, where that does not give the figure; the verdict says so",
    )
    published: dict[str, Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,250}$")]] = Field(
        default={},
        description="label and file of published curves, in `published-curves` of a directory of SEEDBUS_DATA",
    )

    @property
    def is_searched(self) -> bool:
        """Whether the values under `tune` are ranges and choices, which are searched."""
        return any(not isinstance(axis, list) for axes in self.tuned_fields.values() for axis in axes)

    @property
    def tuned_fields(self) -> dict[str, list[Axis]]:
        """Each field under `tune`, of the study and of variants, with its entries there."""
        found: dict[str, list[Axis]] = {}
        for tune in self._tunes.values():
            for path, axis in tune.items():
                found.setdefault(path, []).append(axis)
        return found

    @property
    def _tunes(self) -> dict[str, dict[str, Axis]]:
        """The sections `tune` by their places in the file."""
        return {"tune": self.tune} | {f"variants.{name}.tune": each.tune for name, each in self.variants.items()}

    @property
    def _variants(self) -> dict[str, dict[str, Any]]:
        """What variants set by their places in the file."""
        return {f"variants.{name}": each.settings for name, each in self.variants.items()}

    @property
    def _conditions(self) -> dict[str, dict[str, Any]]:
        """The same of conditions."""
        return {f"conditions.{name}": each for name, each in self.conditions.items()}

    @model_validator(mode="after")
    def _consistent(self) -> Study:
        if self.base is None and not (self.variants and all(each.base for each in self.variants.values())):
            raise ValueError("base: this field is required (a scenario file, a name from `seedbus list`, or fields)")
        if self.name.lower() == RUNS:  # also where a disk takes upper and lower case for one
            raise ValueError(f"name: {quoted(self.name)} is not accepted; expected another, for runs are kept there")
        self._check_names()
        self._check_ask()
        settings: list[Mapping[str, Any]] = [
            self.grid,
            self.tuned_fields,
            *self._variants.values(),
            *self._conditions.values(),
        ]
        for path in ("seed", "name"):
            if any(path in each for each in settings):
                raise ValueError(f"{path} cannot vary between rows; `seeds` are the seeds of every row")
        self._check_tune()
        self._check_conditions()
        self._check_tuning()
        self._check_claim()
        count = math.prod([len(self.variants) or 1, len(self.conditions) or 1, *map(len, self.grid.values())])
        if count > MAX_CELLS:
            raise ValueError(f"grid: these are {count:,} rows; at most {MAX_CELLS:,} are accepted")
        return self

    def _check_names(self) -> None:
        """Raise `ValueError` for a row or a value without a name."""
        named: dict[str, Mapping[str, Any]] = {"variants": self.variants, "conditions": self.conditions}
        named |= {f"grid.{path}": values for path, values in self.grid.items() if isinstance(values, dict)}
        for field, names in named.items():
            if "" in names:
                raise ValueError(f"{field}: '' is not accepted as a name; expected at least one character")

    def _check_ask(self) -> None:
        """Raise `ValueError` for a value that is asked for twice, and for `smoothed` without a target."""
        ask = self.ask
        each_once: dict[str, list[Any]] = {"seeds": self.seeds, "ask.at": ask.at, "ask.splits": ask.splits}
        each_once |= {"ask.columns": ask.columns}
        each_once |= {"ask.target": ask.target if isinstance(ask.target, list) else [], "ask.analysis": ask.analysis}
        for field, values in each_once.items():
            if len(set(values)) < len(values):
                raise ValueError(f"{field}: {quoted(values)} is not accepted; expected each value once")
        if ask.target is None and "smoothed" in ask.model_fields_set:
            raise ValueError("ask.smoothed: it says how a target is met; expected ask.target beside it")

    def _check_tune(self) -> None:
        """Raise `ValueError` for a tuned field that the grid sets, and for lists beside ranges."""
        for at, path, axis in [(at, *item) for at, tune in self._tunes.items() for item in tune.items()]:
            if path in self.grid:
                raise ValueError(f"{at}.{path}: the grid sets this field already; expected it in one of them")
            if isinstance(axis, list) and self.is_searched:
                what = f"{quoted(axis)} is not accepted beside a range"
                raise ValueError(f"{at}.{path}: {what}; expected {{choices: […]}} or a range")

    def _check_tuning(self) -> None:
        """Raise `ValueError` for a setting of the other way of tuning."""
        foreign = ("further",) if self.is_searched else ("search", "trials", "seed") if self.tuned_fields else ()
        for name in foreign:
            if name in self.tuning.model_fields_set:
                has, expected = ("ranges", "`trials`") if self.is_searched else ("lists of first values", "`further`")
                raise ValueError(f"tuning.{name}: `tune` has {has}; expected {expected} with these")

    def _check_claim(self) -> None:
        """Raise `ValueError` for a claim without expectations, or the other way round."""
        if bool(self.claim) != bool(self.expect):
            there, missing = ("expect", "claim") if self.expect else ("claim", "expect")
            raise ValueError(f"{missing}: this field is required beside {there}")
        if self.unpublished and not self.claim:
            raise ValueError("claim: this field is required beside unpublished")
        for number, each in enumerate(self.expect):
            if self.ask.smoothed and each.over is not None and "_to_" in each.figure:
                what = f"{each.figure} is that of a moving average, whose lag makes a ratio of two rows nearer to 1"
                raise ValueError(f"expect.{number}.over: {what}; expected minus, or ask.smoothed: false")

    def _check_conditions(self) -> None:
        """Raise `ValueError` for a field that a condition sets beside a variant, the grid or `tune`.

        A field within a section that a variant sets, such as `algorithm.aggregation`, is set once if the variant's
        section has it not.
        """
        pairs = itertools.product(self._variants.items(), self._conditions.items())
        then = itertools.product(self._conditions.items(), {"grid": self.grid, **self._tunes}.items())
        for (first, settings), (second, replaced) in itertools.chain(pairs, then):
            for field, path in itertools.product(_fields(settings), replaced):
                if f"{field}.".startswith(f"{path}."):
                    what = f"{first}.{field} sets this field already; expected it in one of them"
                    raise ValueError(f"{second}.{path}: {what}")


def load_study(source: str | Path | dict[str, Any]) -> tuple[Study, str, Path | None]:
    """Return a study, how error messages name it, and the folder to which its file names are relative.

    Args:
        source: the file of a study, the name of one that comes with Seedbus, or its fields.

    Raises:
        ScenarioError: there is no such file, or it is not a valid study.
    """
    if isinstance(source, dict):
        return _validated(source, "the study"), "the study", None
    expected = "the file of a study, or a name from `list studies`"
    path, included = path_of(source, "study", f"{expected}, or its fields"), studies()
    if str(source) in included and not path.exists():
        document = parse(included[str(source)].read_text(encoding="utf-8"))
        return _validated({"name": str(source).replace("/", "-")} | document, f"{source}.yaml"), f"{source}.yaml", None
    try:
        if path.exists() and not path.is_file():  # reading a pipe or a device may not end
            raise ScenarioError(str(path), [f"it is not a file; expected {expected}"])
        with path.open(encoding="utf-8") as file:
            document = parse(file.read(MAX_CHARACTERS + 1))
    except UnicodeDecodeError:
        raise ScenarioError(str(path), ["it is not UTF-8 text"]) from None
    except OSError as error:
        raise ScenarioError(str(path), [f"it cannot be read ({error.strerror}); expected {expected}"]) from None
    except NotPlain as error:
        raise ScenarioError(str(path), [str(error)]) from None
    if not isinstance(document, dict):
        raise ScenarioError(str(path), [f"{quoted(document)} is not a study; expected a mapping of fields"])
    document.setdefault("name", path.stem)
    if "task" in document and "base" not in document:
        what = "it is a scenario, and no study; `seedbus run` runs it, and a study names it as its `base`"
        raise ScenarioError(str(path), [what])
    return _validated(document, str(path)), str(path), path.parent


def _validated(document: dict[str, Any], source: str) -> Study:
    fields = plain_fields({"name": "study"} | document, source, "study")
    try:
        return Study.model_validate_json(json.dumps(fields), strict=True)
    except ValidationError as error:
        raise ScenarioError(source, sentences(error, Study, fields)) from None
