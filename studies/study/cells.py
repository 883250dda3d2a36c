"""The rows of a study: each variant under each condition at each point of the grid, which is run with every seed."""

from __future__ import annotations

import itertools
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from seedbus.models.errors import DataError
from seedbus.models.task import Task
from seedbus.scenarios.errors import ScenarioError, setting_label
from seedbus.scenarios.reporting.client_groups import groups_of
from seedbus.scenarios.schema.amounts import cost_of
from seedbus.scenarios.schema.loading import library, listed, load_document, read_document, refuse_of_task
from seedbus.scenarios.schema.plugin_use import refuse_local
from seedbus.scenarios.schema.scenario import FEATURES, Scenario
from seedbus.scenarios.schema.without_effect import all_caveats
from seedbus.scenarios.schema.yaml_text import dump
from seedbus.scenarios.sentences import nearest, quoted
from seedbus.studies.analysis.quantities import group_in
from seedbus.studies.study.claims import COSTS, FINAL, OF_REPORTS, SUMMED_UP, claims
from seedbus.studies.study.schema import Axis, Study, Variant, load_study
from seedbus.studies.study.setting_names import names, settings_of

UNNAMED = ("name", "description", "seed", "transport", "expect")
"""Fields of a scenario that do not tell rows apart."""

SPENDING = tuple(name for name, feature in FEATURES.items() if "epsilon" in feature.figures)
"""The sections that ε depends on."""


@dataclass(frozen=True)
class Cell:
    """A row of a study.

    Attributes:
        name: tells it from the other rows.
        variant: the variant's name; "" without variants.
        condition: the condition's name; "" without conditions.
        point: field → value, of the grid.
        labels: field of the grid → the name that the study gives its value; for fields whose values have names.
        tune: field → what is tried for it: the study's `tune` with the variant's own.
        scenario: with the study's first seed, before anything is tuned.
    """

    name: str
    variant: str
    condition: str
    point: dict[str, Any]
    labels: dict[str, str]
    tune: Mapping[str, Axis]
    scenario: Scenario
    _own: frozenset[str]
    _conditioned: tuple[str, ...]
    _document: dict[str, Any]
    _source: str
    _folder: Path | None
    _settings: tuple[tuple[str, str], ...]
    _task: Task | None

    @property
    def unlabelled(self) -> dict[str, Any]:
        """All fields of the scenario for `names`, with None for those of conditions, and of values with names."""
        fields = settings_of(self.scenario)
        named = [*self.labels, *self._conditioned]
        for path in named:
            *parts, last = [int(part) if part.isdecimal() else part for part in path.split(".")]
            place: Any = fields
            with suppress(LookupError, TypeError):  # a later field of the grid may have replaced the section
                for part in parts:
                    place = place[part]
                place[last] = None
        for path, value in self.point.items():  # but not for what the grid sets within them
            if path not in named and any(path.startswith(f"{each}.") for each in named):
                put(fields, path, value)
        return fields

    def is_one_apart(self, other: Cell) -> bool:
        """Whether two rows differ in one thing: the variant, the condition, or one field of the grid."""
        differing = sum(value != other.point[path] for path, value in self.point.items())
        return bool(differing + (self.variant != other.variant) + (self.condition != other.condition) == 1)

    def with_settings(self, settings: Mapping[str, Any]) -> Cell:
        """Return the row with values that tuning gives it: field → value.

        Raises:
            ScenarioError: the scenario does not accept them.
        """
        places = {path: f"variants.{self.variant}.tune.{path}" for path in self._own}
        more = [(f"{path}={dump(value)}", places.get(path, f"tune.{path}")) for path, value in settings.items()]
        settings_now = (*self._settings, *more)
        where = self._document, self._source, self._folder, settings_now, self._task
        scenario = _scenario(self.variant, self.condition, *where)
        return replace(self, scenario=scenario, _settings=settings_now)


@dataclass(frozen=True)
class Plan:
    """A study and its rows.

    Attributes:
        study: the study's fields.
        source: how messages name it.
        cells: its rows, in the order of the file.
        settings: `field=value` entries that changed the scenario of every row.
        folder: to which its file names are relative; None: the one from which the program was started.
        task: what its runs train, if that has objects which only this process has; None: their scenarios say it.
    """

    study: Study
    source: str
    cells: list[Cell]
    settings: Sequence[str] = ()
    folder: Path | None = None
    task: Task | None = None

    @cached_property
    def caveats(self) -> dict[str, list[str]]:
        """What the reader is to know of rows' settings, a sentence each, and the rows that it is about."""
        found: dict[str, list[str]] = {}
        for cell in self.cells:
            with suppress(DataError):  # its runs tell of it
                for sentence in all_caveats(cell.scenario):
                    found.setdefault(sentence, []).append(cell.name)
        return found


def plan_of(
    source: str | Path | dict[str, Any],
    settings: Sequence[str] | Mapping[str, Any] | None = None,
    task: Task | None = None,
) -> Plan:
    """Read a study and expand it into its rows.

    Args:
        source: the file of a study, or its fields.
        settings: what changes the scenario of every row: `field=value` entries, or a mapping from fields to values.
        task: what all rows train, in the place of their scenarios' tasks; None: these.

    Raises:
        ScenarioError: the study, or the scenario of a row, is not valid.
    """
    study, name, folder = load_study(source)
    settings = listed(settings or [])
    cells = list(_cells(study, name, folder, _common(settings, study), task))
    words = [
        joined([cell.variant, cell.condition, *cell.labels.values(), leaf]) or cell.scenario.name
        for cell, leaf in zip(cells, leaves_of(cells), strict=True)
    ]
    named = [replace(cell, name=row) for cell, row in zip(cells, words, strict=True)]
    _check_differ(name, named)
    rows = [cell.name for cell in named]
    against, known = study.ask.against, [*study.variants, *study.conditions]
    if against is not None and against not in [*known, *rows]:
        hint = nearest(against, known or rows)
        raise ScenarioError(name, [f"ask.against: there is no variant, condition or row {against}; {hint}"])
    is_local = task is not None and _is_local(task)
    if not is_local:
        _check_elsewhere(name, named)
    plan = Plan(study, name, named, settings, folder, task if is_local else None)
    for figure in study.ask.columns:
        if figure not in (known_figures := figures(plan)):
            hint = nearest(figure, known_figures)
            raise ScenarioError(name, [f"ask.columns: {quoted(figure)} is not reported; {hint}"])
    _check_expectations(plan)
    _check_groups(plan)
    return plan


def _common(settings: list[str], study: Study) -> list[tuple[str, str]]:
    """Return the entries that change every row, each with what sentences call it. Raises `ScenarioError`."""
    common = [(setting, setting_label(setting)) for setting in settings]
    for setting, label in common:
        field = re.split("[.=]", setting)[0]
        if field in Study.model_fields and field not in Scenario.model_fields:
            why = f"{field} is a field of the study, and --set changes its scenarios; change {field} in its file"
            raise ScenarioError(label, [why])
        if (where := _replacing(setting.partition("=")[0], study)) is not None:
            raise ScenarioError(label, [f"{where} of the study replaces it in every row; change it there"])
    return common


def _check_differ(name: str, cells: Sequence[Cell]) -> None:
    """Raise `ScenarioError` if two rows have one name, or are the same runs."""
    rows = [cell.name for cell in cells]
    twice = next((row for row in rows if rows.count(row) > 1), None)
    if twice is not None:
        raise ScenarioError(name, [f"grid: two rows are the same ({twice}); expected values that differ"])
    by_content: dict[str, str] = {}
    for cell in cells:
        # rows that tune other fields, or try other values, may end at other settings
        other = by_content.setdefault(f"{_told_apart(cell.scenario.resolved())} {cell.tune}", cell.name)
        if other != cell.name:
            what = f"rows {other} and {cell.name} are the same run; expected settings that differ"
            raise ScenarioError(name, [f"{what} (the grid sets its fields after the variants)"])


def _check_elsewhere(source: str, cells: Sequence[Cell]) -> None:
    """Raise `ScenarioError` for a row of which the study's processes cannot make runs."""
    for cell in cells:
        refuse_local(cell.scenario.plugins)
        try:
            cell.scenario.task.check_elsewhere()
        except DataError as error:
            raise ScenarioError(source, [f"{cell.name}: {error}"]) from None


def _is_local(task: Task) -> bool:
    """Whether a task has objects that only this process has."""
    try:
        task.check_elsewhere()
    except DataError:
        return True
    return False


def leaves_of(cells: Sequence[Cell]) -> list[str]:
    """Return for each row, in words, the settings without names in which it differs from the others of its variant."""
    found = [""] * len(cells)
    for variant in dict.fromkeys(cell.variant for cell in cells):
        indices = [index for index, cell in enumerate(cells) if cell.variant == variant]
        leaves = names([cells[index].unlabelled for index in indices], UNNAMED)
        for index, leaf in zip(indices, leaves, strict=True):
            found[index] = leaf
    return found


def names_over_epsilon(cells: Sequence[Cell]) -> dict[str, str]:
    """Return for each of some rows, by its name, what tells it from those that differ in more than `SPENDING`."""
    first: dict[str, Cell] = {}
    keys = {}
    for cell in cells:
        others = {path: value for path, value in cell.point.items() if not _is_spending(path)}
        keys[cell.name] = json.dumps([cell.variant, cell.condition, others])
        first.setdefault(keys[cell.name], cell)
    names = {
        key: joined([cell.variant, cell.condition, *_labels(cell), leaf]) or cell.scenario.name
        for (key, cell), leaf in zip(first.items(), leaves_of([*first.values()]), strict=True)
    }
    return {row: names[key] for row, key in keys.items()}


def _labels(cell: Cell) -> list[str]:
    return [label for path, label in cell.labels.items() if not _is_spending(path)]


def _is_spending(path: str) -> bool:
    return path.partition(".")[0] in SPENDING


def put(fields: dict[str, Any], path: str, value: Any) -> None:
    """Set a field, such as `participation.cohort`, where sections may be missing."""
    *parts, last = path.split(".")
    for part in parts:
        if not isinstance(fields.get(part), dict):
            fields[part] = {}
        fields = fields[part]
    fields[last] = deepcopy(value)  # fields within it may be set next


def joined(words: Sequence[str]) -> str:
    return ", ".join(filter(None, words))


def _replacing(path: str, study: Study) -> str | None:
    """Return the section of a study that replaces what a setting does to a field in every row; None if none does."""
    sections = {"seeds": ["seed"], "grid": study.grid, "tune": study.tune}
    for section, fields in sections.items():
        if any(f"{path}.".startswith(f"{field}.") for field in fields):
            return section
    named = {"variants": [[*each.settings, *each.tune] for each in study.variants.values()]}
    named["conditions"] = [list(each) for each in study.conditions.values()]
    for section, all_fields in named.items():
        own = [any(f"{path}.".startswith(f"{field}.") for field in fields) for fields in all_fields]
        if own and all(own):
            return section
    return None


def _told_apart(fields: Mapping[str, Any]) -> str:
    """Return what tells a scenario from others of a study."""
    return json.dumps({name: value for name, value in fields.items() if name not in UNNAMED}, sort_keys=True)


def values_of_metric(plan: Plan) -> list[str]:
    """Return the names of the figures that are values of the metric. Raises `ScenarioError` as `metric_of`."""
    ask, metric = plan.study.ask, metric_of(plan)
    found = [FINAL, "last", "best", *(f"{split}_{metric}" for split in ask.splits)]
    return found + [f"at_{point}{end}" for point in ask.at for end in ("", "_ema")]


def claims_of(plan: Plan) -> list[str]:
    """Return for each expectation of a study the claim that it is a part of; see `claims`."""
    return claims(plan.study.expect, values_of_metric(plan), metric_of(plan))


def figures(plan: Plan) -> list[str]:
    """Return the names of the figures that every run of a study has. Raises `ScenarioError` as `metric_of`."""
    of_features = dict.fromkeys(name for cell in plan.cells for name in cell.scenario.figures)
    more = [*plan.study.ask.analysis, *SUMMED_UP, *OF_REPORTS, *of_features]
    return [*values_of_metric(plan), *costs(plan), *more]


def costs(plan: Plan) -> list[str]:
    """Return the names of the figures that are amounts: of rounds, bytes, seconds and forward passes."""
    ask = plan.study.ask
    found = [f"at_{point}_{cost_of(point)[0]}" for point in ask.at if isinstance(point, str)]
    each = ("rounds", "bytes", "bytes_up", "bytes_down", "catchup_bytes", "simulated_s")
    return [*found, *(f"{cost}_to_{target}" for target in ask.targets for cost in each), *COSTS]


def _check_expectations(plan: Plan) -> None:
    """Raise `ScenarioError` for expectations of rows or figures that there are not."""
    rows = [cell.name for cell in plan.cells]
    known = figures(plan) if plan.study.expect else []
    for number, each in enumerate(plan.study.expect):
        for field, row in each.rows.items():
            if row not in rows:
                raise ScenarioError(
                    plan.source, [f"expect.{number}.{field}: there is no row {row}; {nearest(row, rows)}"]
                )
        if each.figure not in known:
            what = f"expect.{number}.figure: {quoted(each.figure)} is not reported; {nearest(each.figure, known)}"
            raise ScenarioError(plan.source, [what])
        for cell in plan.cells:
            if (
                each.figure == "epsilon"
                and cell.name in each.rows.values()
                and each.figure not in cell.scenario.figures
            ):
                what = f"expect.{number}.figure: {cell.name} has no finite epsilon; expected private rows"
                raise ScenarioError(plan.source, [what])


def _check_groups(plan: Plan) -> None:
    """Raise `ScenarioError` for quantities of a group of clients that no row has."""
    asked = [name for name in plan.study.ask.analysis if group_in(name)]
    known = list(dict.fromkeys(group for cell in plan.cells if asked for group in groups_of(cell.scenario)))
    for name in asked:
        if group_in(name) not in known:
            hint = nearest(group_in(name), known) if known else "name clients in client_groups, or in a fault"
            what = f"no row has a group of clients of that name; {hint}"
            raise ScenarioError(plan.source, [f"ask.analysis: {quoted(name)} is not measured: {what}"])


def _cells(
    study: Study, source: str, folder: Path | None, common: list[tuple[str, str]], task: Task | None
) -> Iterator[Cell]:
    grid, conditions = study.grid, study.conditions or {"": {}}
    conditioned = tuple(dict.fromkeys(path for each in conditions.values() for path in each))
    axes = [each.items() if isinstance(each, dict) else [("", value) for value in each] for each in grid.values()]
    for variant, fields in (study.variants or {"": Variant()}).items():
        document, base_name, base_folder = _base(fields.base or study.base, source, folder)
        tune, own_fields = study.tune | fields.tune, frozenset(fields.tune)
        for condition, *named in itertools.product(conditions, *axes):
            point = {path: value for path, (_, value) in zip(grid, named, strict=True)}
            labels = {path: label for path, (label, _) in zip(grid, named, strict=True) if label}
            places = {f"variants.{variant}": fields.settings}
            places |= {f"conditions.{condition}": conditions[condition], "grid": point}
            settings = [
                *common,
                *(
                    (f"{path}={dump(value)}", f"{at}.{path}")
                    for at, own in places.items()
                    for path, value in own.items()
                ),
                (f"seed={study.seeds[0]}", "seeds"),
            ]
            where = document, f"{source}: {base_name}", base_folder, tuple(settings), task
            scenario = _scenario(variant, condition, *where)
            yield Cell("", variant, condition, point, labels, tune, scenario, own_fields, conditioned, *where)


def _base(base: Any, source: str, folder: Path | None) -> tuple[dict[str, Any], str, Path | None]:
    """Return the fields of a base scenario, its name in messages, and its folder."""
    if isinstance(base, dict):
        return {"name": "study"} | base, "base", folder
    if not isinstance(base, str):
        raise ScenarioError(source, [f"base: {json.dumps(base)} is not accepted; expected a file, a name or fields"])
    beside = None if folder is None or base in library() else folder / base
    try:
        return read_document(beside if beside is not None and os.path.isfile(beside) else base)
    except ScenarioError as error:
        raise ScenarioError(source, [f"base: {sentence}" for sentence in error.sentences]) from None


def _scenario(
    variant: str,
    condition: str,
    document: dict[str, Any],
    source: str,
    folder: Path | None,
    settings: tuple[tuple[str, str], ...],
    task: Task | None,
) -> Scenario:
    """Return a row's scenario. Raises `ScenarioError`, after the fields of the study that are at fault."""
    where, texts = dict(settings), [setting for setting, _ in settings]
    try:
        if task is None:
            return load_document(document, source, texts, folder)
        refuse_of_task(texts)
        others = {name: value for name, value in document.items() if name != "task"}
        return load_document(others, source, texts, folder).with_task(task)
    except ScenarioError as error:
        if error.source != source:  # a setting cannot be applied at all
            # where no setting is at fault, the task that is given is none, or does not fit
            place = next((f"{place}: " for setting, place in settings if setting_label(setting) == error.source), "")
            raise ScenarioError(source, [f"{place}{each}" for each in error.problems]) from None
        at_fault = [[where[setting] for setting in each] for each in error.settings] or [[]] * len(error.problems)
        row = [*([f"variants.{variant}"] if variant else []), *([f"conditions.{condition}"] if condition else [])]
        problems = [_placed(each, of, row) for each, of in zip(error.problems, at_fault, strict=True)]
        raise ScenarioError(source, problems) from None


def _placed(problem: str, at_fault: list[str], row: list[str]) -> str:
    """Return a problem after the fields of the study that make it, and with the row's variant and condition."""
    if not at_fault:
        return problem
    others = [f"{each}: " for each in row if not any(field.startswith(f"{each}.") for field in at_fault)]
    return f"{''.join(others)}{' and '.join(at_fault)}: {problem}"


def is_rising(plan: Plan, metric: str) -> bool:
    """Whether larger values of a metric are better, as the tasks of all rows have it (`metric_of`)."""
    return metric in plan.cells[0].scenario.task.rising


def metric_of(plan: Plan) -> str:
    """Return the metric of a study: the one that it asks for, or accuracy, or loss where one has no accuracy.

    Raises:
        ScenarioError: a row does not measure it, or larger values are better in some rows only.
    """
    measured = [cell.scenario.metrics for cell in plan.cells]
    default = "accuracy" if all("accuracy" in names for names in measured) else "loss"
    metric = plan.study.ask.metric or default
    for cell, known in zip(plan.cells, measured, strict=True):
        if metric not in known:
            what = f"ask.metric: {quoted(metric)} is not measured in {cell.name}; {nearest(metric, known)}"
            raise ScenarioError(plan.source, [what])
    better = {metric in cell.scenario.task.rising: cell.name for cell in plan.cells}
    if len(better) > 1:
        what = f"larger values of {quoted(metric)} are better in {better[True]} and smaller ones in {better[False]}"
        raise ScenarioError(plan.source, [f"ask.metric: {what}; expected the same task.larger_is_better in all rows"])
    return metric
