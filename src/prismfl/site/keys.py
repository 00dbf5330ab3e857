"""A site's key for the wire and the one for its signatures."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from prismfl.errors import UserError
from prismfl.files.atomic import make_folder, opener
from prismfl.files.bounded import read_regular
from prismfl.runs.names import check_name

KEY_LIMIT = 10_000
PrivateKey = ec.EllipticCurvePrivateKey | Ed25519PrivateKey


def make_site_keys(folder: Path) -> None:
    """`node.key` proves who the site is to the server, `sign.key` signs bundles; the `.pub` files are for others."""
    _write_pair(folder / "node", ec.generate_private_key(ec.SECP384R1()))
    make_signing_key(folder / "sign")


def make_signing_key(place: Path) -> None:
    """An Ed25519 key, as `place` with the ending .key, and its public part with .pub."""
    _write_pair(place, Ed25519PrivateKey.generate())


def _write_pair(place: Path, key: PrivateKey) -> None:
    write_key(place.with_name(f"{place.name}.key"), _private_ssh(key), secret=True)
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    write_key(place.with_name(f"{place.name}.pub"), public + b"\n")


def next_node_key(folder: Path) -> Path:
    """A new node key beside the one in use: `node-next.key`, and the public part for the server."""
    _write_pair(folder / "node-next", ec.generate_private_key(ec.SECP384R1()))
    return folder / "node-next.pub"


def switch_node_key(folder: Path) -> None:
    """The new node key takes the place of the old one, which is thrown away."""
    new = folder / "node-next.key"
    if not new.is_file():
        raise UserError(f"No {new}: make a new key first, with prismfl site rotate.")
    (folder / "node-next.pub").replace(folder / "node.pub")
    new.replace(folder / "node.key")


def node_identity(public_key: Path) -> bytes:
    """The bytes under which Flower knows the owner of a node key."""
    raw = read_regular(public_key, limit=KEY_LIMIT)
    try:
        key = serialization.load_ssh_public_key(raw)
    except (ValueError, UnsupportedAlgorithm):
        raise UserError(f"'{public_key}' is not a public key; a site's is keys/node.pub.") from None
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise UserError(f"'{public_key}' is not a node key (P-384); a site's is keys/node.pub.")
    return key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


def signing_key(path: Path) -> Ed25519PrivateKey:
    """The private Ed25519 key in a file."""
    raw = read_regular(path, limit=KEY_LIMIT)
    try:
        key = serialization.load_ssh_private_key(raw, None)
    except (ValueError, UnsupportedAlgorithm):
        raise UserError(f"'{path}' is not a signing key; a site's is keys/sign.key.") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise UserError(f"'{path}' is not a signing key (Ed25519); a site's is keys/sign.key.")
    return key


def verifying_key(path: Path) -> Ed25519PublicKey:
    """The public Ed25519 key in a file."""
    raw = read_regular(path, limit=KEY_LIMIT)
    try:
        key = serialization.load_ssh_public_key(raw)
    except (ValueError, UnsupportedAlgorithm):
        raise UserError(f"'{path}' is not a public key; a site's is keys/sign.pub.") from None
    if not isinstance(key, Ed25519PublicKey):
        raise UserError(f"'{path}' is not a signing key (Ed25519); a site's is keys/sign.pub.")
    return key


def peer_keys(folder: Path) -> dict[str, Ed25519PublicKey]:
    """The signing keys this site trusts, by name: `peers/NAME.pub`, from the sites themselves and not from a server."""
    return {check_name(path.stem): verifying_key(path) for path in sorted((folder / "peers").glob("*.pub"))}


def _private_ssh(key: PrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )


def write_key(path: Path, raw: bytes, *, secret: bool = False) -> None:
    """Keys are made once: an existing file is never overwritten."""
    make_folder(path.parent)
    try:
        with open(path, "xb", opener=_secret if secret else opener) as file:
            file.write(raw)
    except FileExistsError:
        raise UserError(f"'{path}' exists already; keys are never overwritten.") from None


def replace_key(path: Path, raw: bytes) -> None:
    """A secret in the place of the one before, closed to others from its first moment."""
    part = path.with_name(f"{path.name}.{secrets.token_hex(4)}.part")
    try:
        with open(part, "xb", opener=_secret) as file:
            file.write(raw)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def _secret(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
