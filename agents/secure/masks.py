"""Keys, masks and sealed shares of one round, from the primitives of the package `cryptography`.

    mask key pair      X25519, from a seed of 16 bytes that is shared among the neighbours
    channel key pair   X25519, for sealing shares on their way through the server
    pairwise mask      PRG(HKDF(X25519(mask key of u, mask key of v))), which one of them adds and the other subtracts
    self mask          PRG(HKDF(b)), b of 16 bytes, shared among the neighbours
    sealed shares      ChaCha20-Poly1305(HKDF(X25519(channel keys)), both shares)
    confirmation       HMAC-SHA256(HKDF(X25519(channel keys)), what is confirmed), 16 bytes of it

PRG is the key stream of ChaCha20, HKDF is that with SHA-256. Each key serves one purpose in one round: its derivation
names the purpose, the round and the clients. All keys are new in each round, so nonces are zero.
"""

from __future__ import annotations

import hmac
import os
import struct
from dataclasses import dataclass, field

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray

from seedbus.agents.secure.sharing import SECRET_BYTES, SHARE_BYTES

KEY_BYTES = 32
PUBLIC_BYTES = 2 * KEY_BYTES
SEALED_BYTES = 2 * SHARE_BYTES + 16
CONFIRMATION_BYTES = 16
Words = NDArray[np.uint32]


class BadKey(ValueError):
    """A peer's public key, or something sealed by it, is not valid."""


@dataclass(frozen=True, slots=True)
class Secrets:
    """A client's secrets of one round.

    Attributes:
        mask_seed: makes the mask key pair; shared.
        self_seed: b, makes the self mask; shared.
        channel: the channel's private key.
    """

    mask_seed: bytes = field(default_factory=lambda: os.urandom(SECRET_BYTES), repr=False)
    self_seed: bytes = field(default_factory=lambda: os.urandom(SECRET_BYTES), repr=False)
    channel: X25519PrivateKey = field(default_factory=X25519PrivateKey.generate, repr=False)

    def public(self, round: int) -> bytes:
        """Return the public keys of channel and masks, `PUBLIC_BYTES` bytes."""
        return self.channel.public_key().public_bytes_raw() + mask_public(self.mask_seed, round)


def mask_public(mask_seed: bytes, round: int) -> bytes:
    """Return the public mask key that belongs to a seed."""
    return _mask_key(mask_seed, round).public_key().public_bytes_raw()


def check_public(public: bytes) -> None:
    """Check both public keys of a client. Raises `BadKey` if they are of no use, so that its neighbours need not."""
    for key in (public[:KEY_BYTES], public[KEY_BYTES:]):
        _exchange(_ANY, key)


def pair_mask(mask_seed: bytes, its_public: bytes, round: int, one: int, other: int, length: int) -> Words:
    """Return the mask of two clients, uint32 [length]: the same for both.

    Args:
        mask_seed: of either.
        its_public: both public keys of the other.
        round: the round.
        one: either client.
        other: the other client.
        length: words of a report.

    Raises:
        BadKey: the public key is not valid.
    """
    shared = _exchange(_mask_key(mask_seed, round), its_public[KEY_BYTES:])
    return _stream(_derive(shared, b"pair", round, *sorted((one, other))), length)


def self_mask(self_seed: bytes, round: int, client: int, length: int) -> Words:
    """Return a client's own mask, uint32 [length]."""
    return _stream(_derive(self_seed, b"self", round, client), length)


def channel(own: X25519PrivateKey, its_public: bytes) -> bytes:
    """Return the secret of two clients from which they derive what they send each other through the server.

    Args:
        own: the channel's private key.
        its_public: both public keys of the other.

    Raises:
        BadKey: the public key is not valid.
    """
    return _exchange(own, its_public[:KEY_BYTES])


def seal(channel: bytes, round: int, sender: int, recipient: int, shares: bytes) -> bytes:
    """Return both shares that `sender` gives to `recipient`, readable by the latter only, `SEALED_BYTES` bytes."""
    return _cipher(channel, round, sender, recipient).encrypt(bytes(12), shares, None)


def unseal(channel: bytes, round: int, sender: int, recipient: int, sealed: bytes) -> tuple[bytes, bytes]:
    """Return the shares of a sender's mask seed and self seed. sealed: `SEALED_BYTES` bytes.

    Raises:
        BadKey: they were not sealed by it for this recipient in this round.
    """
    try:
        shares = _cipher(channel, round, sender, recipient).decrypt(bytes(12), sealed, None)
    except InvalidTag:
        raise BadKey(f"shares that client {sender} did not seal for client {recipient} in round {round}") from None
    return shares[:SHARE_BYTES], shares[SHARE_BYTES:]


def confirmation(channel: bytes, round: int, sender: int, recipient: int, what: bytes) -> bytes:
    """Return what shows `recipient` that `sender` confirms something, `CONFIRMATION_BYTES` bytes."""
    key = _derive(channel, b"confirm", round, sender, recipient)
    return hmac.digest(key, what, "sha256")[:CONFIRMATION_BYTES]


def _cipher(channel: bytes, round: int, sender: int, recipient: int) -> ChaCha20Poly1305:
    return ChaCha20Poly1305(_derive(channel, b"seal", round, sender, recipient))


def _mask_key(mask_seed: bytes, round: int) -> X25519PrivateKey:
    return X25519PrivateKey.from_private_bytes(_derive(mask_seed, b"mask", round))


def _exchange(own: X25519PrivateKey, public: bytes) -> bytes:
    try:
        return own.exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError:
        raise BadKey("a public key that is not of X25519, or of low order") from None


def _derive(secret: bytes, purpose: bytes, round: int, *clients: int) -> bytes:
    info = b"seedbus secure aggregation " + purpose + struct.pack(f"<{1 + len(clients)}I", round, *clients)
    return HKDF(algorithm=SHA256(), length=KEY_BYTES, salt=None, info=info).derive(secret)


def _stream(key: bytes, length: int) -> Words:
    stream = Cipher(ChaCha20(key, bytes(16)), mode=None).encryptor().update(bytes(4 * length))
    return np.frombuffer(stream, "<u4").astype(np.uint32)


_ANY = X25519PrivateKey.generate()  # what a key is tried with
