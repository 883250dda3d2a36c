"""All hostile cases, by how far the peer has come: strangers, peers with an offer, and members."""

from __future__ import annotations

import hostile_members
import hostile_packets
import hostile_pending
import hostile_wire
from hostile_members import MemberCase
from hostile_peers import Case
from hostile_pending import PendingCase

STRANGERS: list[Case] = [*hostile_wire.CASES, *hostile_packets.CASES]
PENDING: list[PendingCase] = hostile_pending.CASES
MEMBERS: list[MemberCase] = hostile_members.CASES
CASES: list[Case | PendingCase | MemberCase] = [*STRANGERS, *PENDING, *MEMBERS]
