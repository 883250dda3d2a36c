"""All that the tests do to a run, by who does it."""

from __future__ import annotations

import hostile_members
import hostile_packets
import hostile_pending
import hostile_wire
from hostile_members import MemberCase
from hostile_peers import Case
from hostile_pending import GuestCase

STRANGERS: list[Case] = [*hostile_wire.CASES, *hostile_packets.CASES]
GUESTS: list[GuestCase] = hostile_pending.CASES
MEMBERS: list[MemberCase] = hostile_members.CASES
CASES: list[Case | GuestCase | MemberCase] = [*STRANGERS, *GUESTS, *MEMBERS]
