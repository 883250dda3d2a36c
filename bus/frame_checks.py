"""Decoding of frames with a check against the sender and the direction of the message that carries them."""

from __future__ import annotations

from seedbus.bus.codec import decode, decode_parts
from seedbus.bus.envelope import Envelope
from seedbus.bus.errors import MalformedEnvelope
from seedbus.bus.in_flight import InFlightMessage


def decode_arrived(message: InFlightMessage, report_limit: int) -> Envelope:
    """Decode a message that has arrived.

    Args:
        message: the message.
        report_limit: maximum bytes of a frame from a follower.

    Raises:
        MalformedEnvelope: the frame is malformed, names another client than the message, or is of a kind that travels
            in the other direction.
    """
    kind, client = message.key[:2]
    envelope = decode(message.full_frame, message.sender, most=report_limit if kind.is_upward else None)
    if envelope.client != client:
        raise MalformedEnvelope(f"is {envelope.client}, which did not send it", "the client", client)
    if envelope.kind.is_upward != kind.is_upward:
        raise MalformedEnvelope(f"is {envelope.kind.name}, which travels the other way", "the kind", client)
    return envelope


def decode_answer(client: int, frame: bytes, report_limit: int) -> tuple[Envelope | None, int]:
    """Decode a frame that a follower sends; return its envelope and header bytes, or (None, 0) if it will be refused.

    Args:
        client: address of the follower.
        frame: what it sends.
        report_limit: maximum bytes of the frame.
    """
    try:
        envelope, header_bytes = decode_parts(frame, client, report_limit)
        kind, named_client, _, _, _ = envelope
        return (envelope, header_bytes) if named_client == client and kind.is_upward else (None, 0)
    except MalformedEnvelope:
        return None, 0
