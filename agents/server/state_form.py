"""The form of a checkpoint's state. It is checked when a run is resumed: its digest can be computed by anybody.

Each type is what the `pack` of one part returns. The algorithm checks its own state (`Stateful`).
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, TypeAdapter

from seedbus.agents.availability import RETURNS
from seedbus.agents.journal.forms import problem_of
from seedbus.bus.event_queue import LAST_NS
from seedbus.bus.transport import MOST_CLIENTS

_Count = Annotated[int, Field(strict=True, ge=0, lt=2**63)]
# also below 0, as the time that a fault saved; no more than the ledger has room for
_Whole = Annotated[int, Field(strict=True, ge=-(2**63), lt=2**63)]
_Client = Annotated[int, Field(strict=True, ge=0, lt=MOST_CLIENTS)]
_Address = Annotated[int, Field(strict=True, ge=-(2**31), lt=2**31)]  # hosts, the evaluator and nobody are below 0
_Flag = Annotated[bool, Field(strict=True)]
_Number = Annotated[float, Field(strict=True)]
_Word = Annotated[str, Field(strict=True, max_length=10_000)]
_Bytes = Annotated[bytes, Field(strict=True)]

_Overdue = tuple[tuple[_Count, _Count, _Count, _Count], list[_Client], list[tuple[_Client, list[Any]]], list[_Client]]
_Known = tuple[list[tuple[_Client, _Count, _Number, _Count, _Count]], list[_Number]]
_Rounds = tuple[_Count, _Known, list[_Count], list[_Overdue], Any]
_Refusal = tuple[_Address | _Word, _Word, _Count] | tuple[_Address | _Word, _Word, _Count, _Word]
_Averages = list[tuple[_Word, _Number, _Count]]
_Spent = tuple[list[tuple[_Client, _Number]], list[tuple[_Count, _Count]], list[tuple[_Count, _Number]], _Number]
_Sent = tuple[_Count, _Count]
_Asked = list[tuple[_Count, _Count, _Count, _Count]]
_Progress = (
    tuple[_Sent, _Asked, _Flag, _Averages, _Count, _Count | None]
    | tuple[_Sent, _Asked, _Flag, _Averages, _Count, _Count | None, _Spent]
)
_Verified = tuple[_Count, list[tuple[_Word, _Bytes]]]
_Snapshots = tuple[_Count, _Count, list[tuple[_Client, _Whole]], _Flag]
_Coordinator = tuple[_Rounds, list[_Refusal], _Progress, list[_Verified], _Snapshots]

# what a hostile client says of its message may be any number that an envelope has room for
_Message = tuple[
    _Count, _Count, _Count, _Address, _Whole, _Count, _Count,
    _Whole, _Count, tuple[_Whole, _Whole, _Whole, _Whole, _Count, _Flag], _Bytes, _Flag, _Flag,
]  # fmt: skip
_Answer = tuple[_Count, _Count, _Address, _Whole, _Count, _Count, _Whole, list[_Bytes]]
_Links = list[tuple[_Address, _Flag, _Count]]
_Bus = tuple[_Count, _Links, list[_Message], list[_Answer], list[list[tuple[_Word, _Whole]]]]

_Returns = Annotated[int, Field(strict=True, ge=0, lt=len(RETURNS))]
_Availability = tuple[_Count, _Count, list[tuple[_Client, _Returns]]]

_State: TypeAdapter[Any] = TypeAdapter(tuple[_Coordinator, _Bus, _Availability, list[tuple[_Client, _Whole]]])


def state_problem(state: Any, last_round: int, *, is_virtual: bool) -> str | None:
    """Return what is wrong with a checkpoint's state, in a few words; None: a server may have written it.

    From rounds and times far ahead a run would go on without end.

    Args:
        state: the checkpoint's.
        last_round: the journal's.
        is_virtual: whether the run's time is simulated.
    """
    if (problem := problem_of(_State, state)) is not None:
        return problem
    ((number, *_), *_), (now_ns, *_), (moved_round, moved_ns, _), _ = state
    if number != last_round + 1:
        return f"its next round is {number}, after round {last_round}"
    if is_virtual and now_ns > LAST_NS:
        return f"its time is {now_ns} ns, after the last instant"
    if moved_round > number or moved_ns > now_ns:
        return f"clients came and went in round {moved_round}, at {moved_ns} ns, which is to come"
    return None
