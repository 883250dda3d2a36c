"""What goes with what in a scenario, from what each of its parts says of itself alone.

A part (the algorithm, a rule, a fault, a section) states `Needs`, `RulesOut` and `Gives`, each of one
`Fact` of the whole scenario, with the reason as words that follow its name. A fact holds unless some part rules it out;
those of `given` hold only where a part gives them. `objection` finds the first need that is not met, and says it with
the reasons of both parts and with what is accepted instead. `ActsOn` is a need without which a setting has no effect.

Parts state these in `Settings.capabilities`, or beside the field that holds them (`Stated`). So a part knows facts and
no other part, and one that is deleted takes along all that was said of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import Any, Literal, NamedTuple, get_args, get_origin

from pydantic import BaseModel
from pydantic_core import PydanticUndefined


class Fact(Enum):
    """What may hold in a scenario; the value: words for the table of the documentation."""

    SAMPLES = "the task has samples"
    OWNERS = "samples have owners"
    COLUMNS = "samples have named columns"
    COMMON = "all processes have the same samples"
    HELD_BY_CLIENTS = "clients have test samples of their own"
    MEASURED_BY_CLIENTS = "clients measure the model"
    MEANS = "metrics are means over samples"
    STATED = "the scenario states what owners' samples have in common"
    LAYERS = "the task has a network with layers"
    SLOPES = "losses have derivatives along directions"
    FACTORS = "losses are computed as torch's layers are called"
    ALL_COORDINATES = "all coordinates are trained"
    HELD_OUT = "there are gradients on a validation split"
    OUTPUTS = "a classifier learns by cross-entropy"
    WHOLE_BATCHES = "a batch is computed as a whole"
    ADDS_UP = "reports are whole numbers that add up"
    FORGETFUL = "clients remember nothing of their reports"
    ORDER_FREE = "reports may be committed in any order"
    EXACT = "commits are an exact sum"
    ROUND_SEEDS = "each round has one seed"
    COMPARABLE = "reports of a round have the same directions"
    LATE = "reports may count in a later commit"
    LOG = "a client replays the commits that it missed"
    CONSTANT_REPLAY = "to fold a commit takes a constant time above 0"
    SERVER = "there is a server"
    ROUNDS = "a commit has the reports of a round"
    IN_TIME = "a commit has the reports of one round only"
    SINGLE_REPORTS = "the server may use single reports"
    SERVER_MODEL = "the server may have the model"
    SIMULATED = "time is simulated"
    ALL_PRESENT = "all clients are there in each round"
    UNIFORM = "cohorts are uniform samples"
    OPEN_COHORTS = "it may be known whom rounds asked"
    CLEAN = "clients' samples may be measured without noise"
    ENDS = "a round ends although answers are missing"
    WORK_ENDS = "a client without an answer is asked again"
    HIDDEN = "the server sees no single report"
    NOISE = "commits have noise"
    SNAPSHOTS = "there are snapshots"
    NODES = "nodes send each other commits"


@cache
def given(scenario: type[BaseModel]) -> dict[Fact, str]:
    """Return the facts that hold only where a part gives them (`Settings.gives`), and the field that does."""
    return {
        fact: f"{name}.{inner}" if inner else name
        for name, field in scenario.model_fields.items()
        for part in (field.annotation, *get_args(field.annotation))
        for fact, inner in getattr(part, "gives", ())
    }


def _always() -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Statement:
    """One thing that a part says of itself.

    Attributes:
        fact: what it is about.
        why: words that follow the name of the part or field, and can be followed by a comma.
        field: the field of the part that decides it; "": the part as a whole.
        when: whether it is so, where that takes the user's data or code; asked only if it matters.
    """

    fact: Fact
    why: str = ""
    field: str = ""
    when: Callable[[], bool] = _always


class Needs(Statement):
    """The part cannot do its work without the fact."""


class RulesOut(Statement):
    """With the part the fact does not hold."""


class Gives(Statement):
    """With the part the fact holds, whatever the others are."""


class ActsOn(Statement):
    """Without the fact the field has no effect."""


class Stated:
    """Beside a field, in its `Annotated`: what is stated if the field has another value than its default."""

    def __init__(self, *statements: Statement, of: Callable[[Any], Iterable[Statement]] | None = None) -> None:
        """Take the statements, or a function that makes them from the value."""
        self._statements, self._of = statements, of

    def by(self, value: Any) -> Iterable[Statement]:
        return self._statements if self._of is None else self._of(value)


class Said(NamedTuple):
    """A statement and who made it.

    Attributes:
        statement: what is stated.
        path: where in the scenario, as a dotted path; it ends with the statement's field.
        value: what is there.
        variants: the kind of which the value is one; None: it is no variant.
        part: the model that has the statement's field; None: the statement is about the value as a whole.
        may_go: whether the field may be left out.
    """

    statement: Statement
    path: str
    value: Any
    variants: Any
    part: Any
    may_go: bool

    @property
    def subject(self) -> str:
        """The path, with the value if that is one word."""
        word = getattr(self.value, self.variants.tag) if self.variants is not None else self.value
        is_word = isinstance(word, str | int | float) and not isinstance(word, bool)
        return f"{self.path}: {word}" if is_word else self.path

    @property
    def others(self) -> Iterator[tuple[str, list[Statement]]]:
        """What else may be in its place, with what is then stated: words, statements; nothing, if it has no name."""
        if self.variants is not None:
            yield from examples(self.variants)
        elif self.part is not None:
            annotation = type(self.part).model_fields[self.statement.field].annotation
            for value in get_args(annotation) if get_origin(annotation) is Literal else ():
                yield str(value), list(self.part.model_copy(update={self.statement.field: value}).capabilities())


class Objection(ValueError):
    """Two parts of a scenario do not go together, or one lacks what it needs.

    Attributes:
        needer: the part that needs something.
        other: the part that rules it out; None: no part gives it.
    """

    def __init__(self, sentence: str, needer: Said, other: Said | None) -> None:
        super().__init__(sentence)
        self.needer = needer
        self.other = other


def objection(scenario: BaseModel) -> Objection | None:
    """Return what does not go together in a scenario, the first in the order of its fields; None: all does.

    Raises:
        DataError: a model of one's own cannot be built.
    """
    facts = Facts(scenario)
    for said in facts.said:
        if isinstance(said.statement, Needs) and (found := facts.against(said)) is not None:
            return found
    return None


class Facts:
    """What the parts of a scenario state.

    Attributes:
        said: all statements, in the order of the fields.
    """

    def __init__(self, scenario: BaseModel) -> None:
        self.said = list(_statements(scenario))
        self._givers = given(type(scenario))
        self._given = {each.statement.fact for each in self.said if isinstance(each.statement, Gives)}

    def ruled_out(self, fact: Fact) -> Said | None:
        """Return who rules a fact out; None: nobody does, or somebody gives it."""
        if fact in self._given:
            return None
        ruling = (each for each in self.said if isinstance(each.statement, RulesOut) and each.statement.fact is fact)
        return next((each for each in ruling if each.statement.when()), None)

    def lacks(self, fact: Fact) -> bool:
        return (fact in self._givers and fact not in self._given) or self.ruled_out(fact) is not None

    def against(self, said: Said) -> Objection | None:
        """Return why a need is not met; None: it is."""
        fact = said.statement.fact
        other = self.ruled_out(fact)
        if other is not None:
            both = f"{said.subject} {said.statement.why}, and {other.subject} {other.statement.why}"
            return Objection(f"{both}; {self._remedy(said, other)}", said, other)
        if fact in self._givers and fact not in self._given:
            rest = f", or leave {said.path} out" if said.may_go else ""
            return Objection(f"{said.subject} {said.statement.why}; set {self._givers[fact]}{rest}", said, None)
        return None

    def _remedy(self, needer: Said, other: Said) -> str:
        """Return what is accepted in the place of the one or the other."""
        named = {each.path: self._accepted(each) for each in (needer, other)}
        expected = [f"{path}: {accepted}" for path, accepted in named.items() if accepted]
        gone = [each.path for each in (needer, other) if each.may_go and not named[each.path]]
        told = [f"expected {'; or '.join(expected)}"] if expected else []
        return ", or ".join([*told, *([f"leave {' or '.join(gone)} out"] if gone else [])])

    def _accepted(self, said: Said) -> str:
        """Return what goes in its place with all other parts, in groups by the settings that it takes; "": nothing."""
        place = said.path if said.part is None else said.path.rpartition(".")[0]
        rest = [each.statement for each in self.said if each.path != place and not each.path.startswith(f"{place}.")]
        needed = {each.fact for each in rest if isinstance(each, Needs)}
        ruled_out = {each.fact for each in rest if isinstance(each, RulesOut) and each.when()} - self._given
        groups = dict[str, list[str]]()
        for words, statements in said.others:
            name, _, settings = words.partition(" ")
            is_told = any(name in names for names in groups.values())
            if not (is_told or _clash(statements, RulesOut, needed) or _clash(statements, Needs, ruled_out)):
                groups.setdefault(settings, []).append(name)
        some = {key: [*names[:_MOST_NAMES], *["others"] * (len(names) > _MOST_NAMES)] for key, names in groups.items()}
        return ", or ".join(_listed(names, "or") + (f" {key}" if key else "") for key, names in some.items())


def _clash(statements: Iterable[Statement], kind: type[Statement], facts: AbstractSet[Fact]) -> bool:
    """Whether one of a kind is about one of these facts."""
    same = [each for each in statements if isinstance(each, kind) and each.fact in facts]
    try:
        return any(each.when() for each in same)
    except Exception:  # a class without the user's data cannot tell, so it may be otherwise
        return False


def idle(scenario: BaseModel) -> Iterator[tuple[str, str]]:
    """Yield the fields that have no effect, for want of what they act on: path, and why, words of a sentence."""
    facts, givers = Facts(scenario), given(type(scenario))
    for said in facts.said:
        if isinstance(said.statement, ActsOn) and facts.lacks(said.statement.fact):
            other = facts.ruled_out(said.statement.fact)
            without = f"without {givers.get(said.statement.fact)} {said.statement.why}"
            yield said.path, without if other is None else f"{other.subject} {other.statement.why}"


def check_numbers(scenario: BaseModel) -> None:
    """Raise `ValueError` if numbers of a part do not fit those of others, as its `check_beside` finds."""
    for part in _parts(scenario):
        if hasattr(part, "check_beside"):
            part.check_beside(scenario)


def _parts(model: BaseModel) -> Iterator[Any]:
    """Yield all models in a model's fields, in their order."""
    for name in type(model).model_fields:
        for _, part in _in_field(model, name):
            yield part
            yield from _parts(part)


def _in_field(model: BaseModel, name: str) -> list[tuple[str, Any]]:
    """Return the models in a field, each with its path: one, those of a list, or none."""
    value = getattr(model, name)
    numbered = [(f"{name}.{number}", each) for number, each in enumerate(value)] if isinstance(value, list) else []
    return [(at, each) for at, each in [(name, value), *numbered] if isinstance(each, BaseModel)]


def _statements(model: BaseModel, prefix: str = "") -> Iterator[Said]:
    """Yield all statements of a model's fields, and of what is in them."""
    for name, field in type(model).model_fields.items():
        stated, found = [each for each in field.metadata if isinstance(each, Stated)], _in_field(model, name)
        if not (stated or found):
            continue  # it may hold any object, such as a data set
        value, variants = getattr(model, name), _variants(field)
        may_go = not field.is_required() and value != field.default
        for statement in (statement for each in stated if value != field.default for statement in each.by(value)):
            path = f"{prefix}{name}{statement.field}"
            yield Said(statement, path, value, None, None, may_go or path.count(".") > prefix.count("."))
        for at, part in found:
            is_variant = variants is not None and part is value
            for each in variants.states(part) if is_variant else getattr(part, "capabilities", tuple)():
                yield _said(each, f"{prefix}{at}", part, variants if is_variant else None, may_go)
            yield from _statements(part, f"{prefix}{at}.")


def _said(statement: Statement, path: str, part: BaseModel, variants: Any, may_go: bool) -> Said:
    field = statement.field
    if not field:
        return Said(statement, path, part, variants, None, may_go)
    value, default = getattr(part, field), type(part).model_fields[field].default
    return Said(statement, f"{path}.{field}", value, None, part, default is not PydanticUndefined and value != default)


def _variants(field: Any) -> Any:
    """Return the kind of which the value of a field is a variant, `discovery.Variants`; None: it is none."""
    return next((each for each in field.metadata if hasattr(each, "tag") and hasattr(each, "all")), None)


_MOST_NAMES = 6


def examples(variants: Any) -> list[tuple[str, list[Statement]]]:
    """Return what is stated of variants with their defaults, and as their `examples` have them, with these in words."""
    return _examples(variants, tuple(variants.all().items()))


@cache
def _examples(variants: Any, kinds: tuple[tuple[str, Any], ...]) -> list[tuple[str, list[Statement]]]:
    found = []
    for name, kind in kinds:
        parts = [(name, kind.model_construct())]  # of fields without a default nothing is stated
        with suppress(ValueError):
            parts = [(name, kind.model_validate({}))]
        for settings in getattr(kind, "examples", ()):
            words = " and ".join(f"{field}: {value}" for field, value in settings.items())
            with suppress(ValueError):  # settings of a family that this member of it refuses
                parts.append((f"{name} with {words}", kind.model_validate(settings)))
        found += [(words, list(variants.states(part))) for words, part in parts]
    return found


def _listed(words: Sequence[str], last: str) -> str:
    """Return words as an enumeration."""
    return f" {last} ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
