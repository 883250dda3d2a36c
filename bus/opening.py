"""What a frame holds, checked against whoever it comes from."""

from __future__ import annotations

from seedbus.bus.codec import decode, decode_parts
from seedbus.bus.envelope import Envelope
from seedbus.bus.errors import MalformedEnvelope
from seedbus.bus.in_flight import InFlightMessage


def opened(flight: InFlightMessage, most: int) -> Envelope:
    """What a message holds. most: bytes that are accepted of a follower. Raises `MalformedEnvelope`, also if it is not
    one that its client sends, or is sent, as it says."""
    kind, client = flight.key[:2]
    envelope = decode(flight.whole, flight.ends[0], most=most if kind.is_upward else None)
    if envelope.client != client:
        raise MalformedEnvelope(f"is {envelope.client}, who did not send it", "the client", client)
    if envelope.kind.is_upward != kind.is_upward:
        raise MalformedEnvelope(f"is {envelope.kind.name}, which travels the other way", "the kind", client)
    return envelope


def said(client: int, frame: bytes, most: int) -> tuple[Envelope | None, int]:
    """What a follower's frame holds, and its header's length; nothing if it will be refused."""
    try:
        envelope, header = decode_parts(frame, client, most)
        kind, of, _, _, _ = envelope
        return (envelope, header) if of == client and kind.is_upward else (None, 0)
    except MalformedEnvelope:
        return None, 0
