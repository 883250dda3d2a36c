"""All that the tests do to a run, by who does it."""

from __future__ import annotations

import hostile_guests
import hostile_members
import hostile_parcels
import hostile_wire
from hostile_guests import GuestCase
from hostile_members import MemberCase
from hostile_peers import Case

STRANGERS: list[Case] = [*hostile_wire.CASES, *hostile_parcels.CASES]
GUESTS: list[GuestCase] = hostile_guests.CASES
MEMBERS: list[MemberCase] = hostile_members.CASES
CASES: list[Case | GuestCase | MemberCase] = [*STRANGERS, *GUESTS, *MEMBERS]
