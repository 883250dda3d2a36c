"""The base class of what files set: scenarios, studies, and all of their parts."""

from pydantic import BaseModel


class Settings(BaseModel, frozen=True, extra="forbid", allow_inf_nan=False, defer_build=True):
    """Fields that are checked, and that nothing changes later.

    A field that is not known is a mistake, and so is a number that is not finite. How a class is checked is worked out
    when one is first needed, and for a scenario at once for all its parts, which is faster than class by class.
    """
