"""What a frame holds, checked against whoever it comes from."""

from __future__ import annotations

from seedbus.bus.codec import decode_parts
from seedbus.bus.envelope import Envelope, Kind
from seedbus.bus.errors import MalformedEnvelope
from seedbus.bus.under_way import Flight


def opened(flight: Flight, most: int) -> Envelope:
    """What a message holds. most: bytes that are accepted of a follower. Raises `MalformedEnvelope`."""
    if flight.envelope is not None:
        return flight.envelope
    kind, client = flight.key[:2]
    envelope, _ = decode_parts(flight.whole, flight.ends[0], most if kind.is_upward else None)
    return _checked(envelope, kind, client)


def said(client: int, frame: bytes, most: int) -> tuple[Envelope | None, int]:
    """What a follower's frame holds, and its header's length; nothing if it will be refused."""
    try:
        envelope, header = decode_parts(frame, client, most)
        return _checked(envelope, Kind.REPORT, client), header
    except MalformedEnvelope:
        return None, 0


def _checked(envelope: Envelope, kind: Kind, client: int) -> Envelope:
    """The envelope, if it is one that `client` sends, or is sent, in the direction of `kind`."""
    if envelope.client != client:
        raise MalformedEnvelope(f"is {envelope.client}, who did not send it", "the client", client)
    if envelope.kind.is_upward != kind.is_upward:
        raise MalformedEnvelope(f"is {envelope.kind.name}, which travels the other way", "the kind", client)
    return envelope
