"""The folder of a run before the run starts: a new folder and journal, or those of a run to resume."""

from __future__ import annotations

import itertools
import json
import os
import shlex
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any

from pydantic import TypeAdapter, ValidationError

from seedbus.agents.errors import AgentError, JournalDamaged, RunFolderError
from seedbus.agents.feature import Feature
from seedbus.agents.journal.file import FILE, refuse_taken
from seedbus.agents.journal.head import HEAD
from seedbus.agents.journal.journal import Journal
from seedbus.agents.launcher import OUTCOME, check_build, outcome_in
from seedbus.agents.server.stopping import MOST_ROUNDS, Stop
from seedbus.bus.files import WrongFileType, descriptor
from seedbus.bus.text import counted
from seedbus.discovery import PLUGINS
from seedbus.models.device import HOST
from seedbus.scenarios.errors import ScenarioError
from seedbus.scenarios.schema.loading import validate
from seedbus.scenarios.schema.plugins import plugin_line
from seedbus.scenarios.schema.scenario import FEATURES, Scenario

RUNS = Path("runs")
SCENARIO = "scenario.yaml"
RESULTS = "results.json"  # there is one once the run has ended
METRICS = "metrics.jsonl"
MEMORY = "clients"  # the folder, inside the run's, for the state that clients keep between rounds
LENGTH = ("rounds", "simulated_s")  # the fields of `stop` that a run may go on with others of
THEN = ", then "  # between the devices of a run that went on elsewhere


def scenario_of(folder: Path) -> Scenario:
    """Return the scenario in a run's journal.

    Raises:
        RunFolderError: there is no run in the folder.
        JournalDamaged: the journal, or the scenario in it, cannot be read.
        ScenarioError: the scenario needs what this installation does not have, such as another version's algorithm.
    """
    try:
        return validate(fields_in(folder), str(folder / FILE), is_kept=True)
    except ScenarioError as error:  # the facts verify, so it is the scenario that was run
        lacks = [f"this run needs what this installation does not have: {problem}" for problem in error.problems]
        raise ScenarioError(error.source, lacks) from None


def resuming(folder: Path, scenario: Scenario | None = None) -> str:
    """Return a command that resumes a run, with no options but its folder and plug-ins, as one types it in a shell.

    Of a run whose clients bring samples of their own it is that of a server.

    Args:
        folder: the run's folder.
        scenario: the run's; None: its journal tells what is needed of it, if it can be read.
    """
    plugins: Iterable[str] = ()
    command = "run"
    if scenario is not None:
        plugins, command = scenario.plugins, "server" if scenario.partition.is_partial else "run"
    else:
        with suppress(AgentError, ScenarioError):
            plugins = part_of(folder, "plugins")
            command = "server" if part_of(folder, "partition") == {"kind": "own"} else "run"
    loaded = {name: plugin.path for name, plugin in PLUGINS.items()}
    files = [f"--plugin {shlex.quote(str(loaded.get(name) or f'PATH/{name}'))} " for name in plugins]
    return f"seedbus {command} {''.join(files)}--resume {shlex.quote(str(folder))}"


def part_of(folder: Path, name: str) -> Any:
    """Return one field of the scenario in a run's journal; plug-ins that only its other fields need may be missing.

    Raises:
        RunFolderError, JournalDamaged, ScenarioError: see `scenario_of`.
    """
    field, fields = Scenario.model_fields[name], fields_in(folder)
    if name not in fields:
        return field.get_default(call_default_factory=True)
    form: Any = Annotated[field.annotation, field]
    try:
        return TypeAdapter(form).validate_json(json.dumps(fields[name]), strict=True)
    except ValidationError:
        return getattr(scenario_of(folder), name)  # which says what this installation does not have


def features_of(folder: Path) -> list[Feature]:
    """Return the features of a run; plug-ins that only other parts of its scenario need may be missing."""
    sections = {name: part_of(folder, name) for name in FEATURES}
    return [FEATURES[name](section, _Parts(folder)) for name, section in sections.items() if section is not None]


def figures_of(folder: Path, features: Sequence[Feature] | None = None) -> dict[str, list[float]]:
    """Return what a run's features, or those given, tell of each of its rounds, by name."""
    found: dict[str, list[float]] = {}
    with closing(Journal.open(folder, for_writing=False)) as journal:
        for feature in features_of(folder) if features is None else features:
            found |= feature.of_rounds(journal.rounds())
    return found


class _Parts:
    """A run's scenario, whose fields are read one by one."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __getattr__(self, name: str) -> Any:
        return part_of(self._folder, name)


def fields_in(folder: Path) -> dict[str, Any]:
    """Return the fields of the scenario in a run's journal. Raises `RunFolderError`, `JournalDamaged`."""
    with closing(Journal.open(folder, for_writing=False)) as journal:
        text = journal.facts().get("scenario", "")
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise JournalDamaged(folder / FILE, 0, f"its scenario cannot be read ({error})") from None
    if not isinstance(fields, dict):
        raise JournalDamaged(folder / FILE, 0, "its scenario cannot be read (it is no mapping of fields)")
    return fields


def check_place(folder: Path, *, is_new: bool) -> None:
    """Check a run's folder before data is loaded and kernels are compiled.

    Raises:
        RunFolderError: its name is not UTF-8, and Arrow opens no file under any other; or a new run finds other things.
    """
    if is_new and folder.is_dir():
        refuse_taken(folder)
    try:
        str(folder).encode()
    except UnicodeEncodeError:
        raise RunFolderError(folder, "its name is not UTF-8 text; expected one that is") from None


def next_folder(name: str) -> Path:
    """Create and return the first free folder of runs/NAME-1, runs/NAME-2, …

    It is created at once, so that two runs cannot take the same.

    Raises:
        RunFolderError: the folder cannot be created.
    """
    for number in itertools.count(1):
        folder = RUNS / f"{name}-{number}"
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            continue
        except OSError as error:
            raise RunFolderError(folder, f"the run's folder cannot be made ({error.strerror})") from None
        return folder
    raise AssertionError("there is always another number")


def lost_rounds(folder: Path, scenario: Scenario) -> dict[str, str]:
    """Return the notes about durable rounds that a damaged journal has lost: event → text; empty if it is intact.

    In simulated time the resumed run repeats the same rounds. In real time the new rounds would differ, while clients
    still have the lost ones.

    Raises:
        JournalDamaged: rounds are lost, and the clock is "wall". All files are left as they are.
    """
    with closing(Journal.open(folder, for_writing=False)) as journal:
        lost = journal.lost()
        if lost is None:
            return {"weakened": f"a part of {folder / HEAD} is damaged"} if journal.is_head_damaged else {}
    if scenario.clock == "wall":
        raise lost
    return {"lost": f"{lost}; the run goes on after them, and makes the same ones again"}


def journal_in(
    folder: Path,
    scenario: Scenario,
    files: dict[str, str],
    *,
    resume: bool,
    build: dict[str, str],
    device: str,
    other_device: bool,
) -> Journal:
    """Create a journal in a folder, or open the existing one, and write the resolved scenario beside it.

    Args:
        files: digests of the files that the scenario names.
        resume: open the existing journal.
        build: what else decides the run's bits here, such as the version and the digest of x₀.
        device: where clients compute, if the task uses one.
        other_device: whether a run that was begun on another device may go on.

    Raises:
        RunFolderError: the folder cannot be written, is in use, or its run was made with another build or other files.
        JournalDamaged: the journal cannot be read.
    """
    if not scenario.task.uses_device:
        device = HOST
    facts = {"scenario": json.dumps(scenario.resolved())} | files | ({"device": device} if device != HOST else {})
    journal = Journal.open(folder) if resume else Journal.create(folder, facts)
    try:
        check_build(folder, journal.facts(), files | build)
        if scenario.task.uses_device:
            check_same_device(folder, journal, device, is_other=other_device)
        keep_length(folder, journal, scenario.stop)  # after all checks: it takes back the end of a run
        if scenario.task.uses_device:
            _keep_device(journal, device)
        with writable(folder):
            written = descriptor(folder / SCENARIO, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            with open(written, "w", encoding="utf-8") as file:
                file.write(str(scenario))
    except BaseException:
        journal.close()
        raise
    return journal


def device_of(journal: Journal) -> str:
    """Return where a run's clients computed, as text; of several devices one after another."""
    return journal.facts().get("device", HOST)


def check_same_device(folder: Path, journal: Journal, device: str, *, is_other: bool = False) -> None:
    """Raise `RunFolderError` if a run would go on on another device than its own and may not (is_other: it may)."""
    before = device_of(journal)
    newest = before.rpartition(THEN)[2]
    if device != newest and not is_other:
        what = f"it was {'continued' if THEN in before else 'begun'} on {newest}, and this is {device}"
        raise RunFolderError(folder, f"{what}: clients would measure other bits; --other-device goes on nevertheless")


def _keep_device(journal: Journal, device: str) -> None:
    """Keep that a run that goes on has this device from now on."""
    before = device_of(journal)
    if device != before.rpartition(THEN)[2] and OUTCOME not in journal.facts():
        journal.note({"device": f"{before}{THEN}{device}"})


def keep_length(folder: Path, journal: Journal, stop: Stop) -> None:
    """Have a run go on for another number of rounds, or more of its clock's time, than its journal says.

    Args:
        stop: when it is to end; it differs in `LENGTH` at most.

    Raises:
        RunFolderError: it cannot.
        JournalDamaged: the journal cannot be read; nothing is written.
    """
    facts = journal.facts()
    fields = json.loads(facts["scenario"])
    rounds, limit_s = (fields["stop"].get(name) for name in LENGTH)
    if (stop.rounds, stop.simulated_s) == (rounds, limit_s):
        return
    most = MOST_ROUNDS if rounds is None else rounds
    done = journal.glance().rounds
    is_longer = limit_s is not None and (stop.simulated_s is None or stop.simulated_s > limit_s)
    changed = "rounds" if stop.rounds != rounds else "simulated_s"
    wanted = f"stop.{changed} is {json.dumps(getattr(stop, changed))}, and"
    if stop.rounds != rounds and stop.most_rounds <= done:
        raise RunFolderError(folder, f"{wanted} {counted(done, 'round')} of it are done already; expected more")
    if stop.simulated_s != limit_s and not is_longer:  # an earlier round might have been the last one
        expected = "null" if limit_s is None else f"{limit_s:g} or more, or null"
        now, there = map(json.dumps, (stop.simulated_s, limit_s))
        raise RunFolderError(folder, f"stop.simulated_s is {there} there and {now} here; expected {expected}")
    outcome = outcome_in(journal)
    if outcome is not None:
        goes_on = stop.most_rounds > most if done >= most else is_longer and outcome.simulated_s >= round(limit_s, 9)
        if not goes_on:
            more = "rounds" if changed == "rounds" else "time"
            raise RunFolderError(folder, f"{wanted} it would end at the same place with more {more}: {outcome.reason}")
    before_end = journal.before_end()
    if outcome is not None and (before_end is None or OUTCOME not in before_end[2]):
        what = f"{wanted} it has ended after {done:,} in a way that cannot be taken back; expected a new run"
        raise RunFolderError(folder, what)
    journal.checkpoint()  # verified now, since `reopen` would vouch for whatever the tables hold
    fields["stop"] |= {name: getattr(stop, name) for name in LENGTH}
    with writable(folder):
        (folder / RESULTS).unlink(missing_ok=True)
    journal.reopen({"scenario": json.dumps(fields)})


def refuse_another(scenario: Scenario, before: Scenario, folder: Path, *, of_other_length: bool = False) -> None:
    """Check that a folder's run has this scenario.

    Args:
        before: the scenario in the folder's journal.
        of_other_length: whether it may have another number of rounds, or another limit of its clock's time.

    Raises:
        RunFolderError: the scenarios differ in more than `transport`, `expect` and, if it may, `LENGTH` of `stop`.
    """
    # transport and expectations do not change the bits of a run
    before = before.model_copy(update={"transport": scenario.transport, "expect": scenario.expect})
    if of_other_length:
        stop = before.stop.model_copy(update={name: getattr(scenario.stop, name) for name in LENGTH})
        before = before.model_copy(update={"stop": stop})
    was, now = before.resolved(), scenario.resolved()  # functions are compared by their names
    if was != now:
        difference = _first_difference(was, now)
        raise RunFolderError(folder, f"it holds another scenario's run: {difference}")


def _first_difference(before: Any, now: Any, path: str = "") -> str:
    if isinstance(before, dict) and isinstance(now, dict):
        for key in [*before, *now]:
            if before.get(key) != now.get(key):
                return _first_difference(before.get(key), now.get(key), f"{path}.{key}" if path else key)
    return f"{path} is {json.dumps(before)} there and {json.dumps(now)} here"


@contextmanager
def writable(folder: Path) -> Iterator[None]:
    """Turn errors of writing into a folder, like a full disk, into one sentence.

    Raises:
        RunFolderError: the folder cannot be written.
    """
    try:
        yield
    except WrongFileType as error:
        raise RunFolderError(folder, error.what) from None
    except OSError as error:
        if plugin_line(error) is not None:
            raise
        raise RunFolderError(folder, f"the run's folder cannot be written ({error.strerror})") from None
