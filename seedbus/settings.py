"""The base class of what files set: scenarios, studies, and all of their parts."""

from collections.abc import Iterable
from typing import Any, ClassVar

from pydantic import BaseModel


class Settings(BaseModel, frozen=True, extra="forbid", allow_inf_nan=False, defer_build=True):
    """Fields that are checked, and that nothing changes later.

    A field that is not known is a mistake, and so is a number that is not finite. How a class is checked is worked out
    when one is first needed, and for a scenario at once for all its parts, which is faster than class by class.

    Attributes:
        keyed_as: of a fault, or of what its fields have, the names that key its draws (`draw_key`): the class's, then
            those of the fields, such as "Drop clients probability". They stay as they are if class or fields are
            renamed: a field that is now called chance is then written chance=probability.
        gives: the facts of seedbus/capabilities.py that hold only where such a part gives them, each with the field
            that does; "": the part as a whole.
    """

    keyed_as: ClassVar[str] = ""
    gives: ClassVar[tuple[tuple[Any, str], ...]] = ()

    def capabilities(self) -> Iterable[Any]:
        """Return what this part of a scenario needs, rules out and gives: `Statement`s of seedbus/capabilities.py."""
        return ()

    def check_beside(self, scenario: Any) -> None:
        """Raise `ValueError` if its numbers do not fit those of the other parts of a `Scenario`."""


def draw_key(fault: object) -> str:
    """Return the text that keys the random draws of a fault: NAME(field=value, …), with the names of `keyed_as`.

    Fields that have their defaults are left out. So no draw changes when a class or a field is renamed or moved to a
    base class, or when a field with a default is added. A class that says no `keyed_as` itself, such as a plug-in's
    fault, is keyed by its repr.
    """
    return _keyed(fault, is_part=False)


def _keyed(value: object, *, is_part: bool) -> str:
    """Return the text of a value; of a part of a fault, such as a distribution, all fields that are named are in it."""
    if isinstance(value, list):
        return f"[{', '.join(_keyed(each, is_part=True) for each in value)}]"
    if not isinstance(value, Settings) or not vars(type(value)).get("keyed_as"):
        return repr(value)
    name, *listed = value.keyed_as.split()
    fields = type(value).model_fields
    then = {now: earlier or now for now, _, earlier in (each.partition("=") for each in listed)}
    later = sorted(each for each, field in fields.items() if each not in then and field.repr)
    always = then if is_part else {}
    shown = [each for each in (*then, *later) if each in always or getattr(value, each) != fields[each].default]
    texts = (f"{then.get(each, each)}={_keyed(getattr(value, each), is_part=True)}" for each in shown)
    return f"{name}({', '.join(texts)})"
