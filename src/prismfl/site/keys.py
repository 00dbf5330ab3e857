"""Certificates and keys: a federation's own authority, a site's key for the wire and one for its signatures."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.x509.oid import NameOID

from prismfl.errors import UserError
from prismfl.files.atomic import make_folder, opener
from prismfl.files.bounded import read_regular
from prismfl.runs.names import check_name

YEARS = 5
KEY_LIMIT = 10_000
PrivateKey = ec.EllipticCurvePrivateKey | Ed25519PrivateKey


def make_authority(folder: Path, names: Sequence[str]) -> None:
    """`ca.pem` for the sites, and a certificate for this server under each of `names` (host names or addresses)."""
    now = datetime.now(UTC) - timedelta(hours=1)
    ca_key, server_key = ec.generate_private_key(ec.SECP384R1()), ec.generate_private_key(ec.SECP384R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "prismfl federation")])
    draft = x509.CertificateBuilder().not_valid_before(now).not_valid_after(now + timedelta(days=365 * YEARS))
    ca = (
        draft.subject_name(subject)
        .issuer_name(subject)
        .public_key(ca_key.public_key())
        .serial_number(x509.random_serial_number())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(ca_key.public_key()), critical=False)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .sign(ca_key, hashes.SHA384())
    )
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key())
    server = (
        draft.subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "prismfl server")]))
        .issuer_name(subject)
        .public_key(server_key.public_key())
        .serial_number(x509.random_serial_number())
        .add_extension(x509.SubjectAlternativeName([_alternative(name) for name in names]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(issuer, critical=False)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .sign(ca_key, hashes.SHA384())
    )
    _write(folder / "ca.key", _private_pem(ca_key), secret=True)
    _write(folder / "ca.pem", ca.public_bytes(serialization.Encoding.PEM))
    _write(folder / "server.key", _private_pem(server_key), secret=True)
    _write(folder / "server.pem", server.public_bytes(serialization.Encoding.PEM))


def make_site_keys(folder: Path) -> None:
    """`node.key` proves who the site is to the server, `sign.key` signs bundles; the `.pub` files are for others."""
    _write_pair(folder / "node", ec.generate_private_key(ec.SECP384R1()))
    make_signing_key(folder / "sign")


def make_signing_key(place: Path) -> None:
    """An Ed25519 key, as `place` with the ending .key, and its public part with .pub."""
    _write_pair(place, Ed25519PrivateKey.generate())


def _write_pair(place: Path, key: PrivateKey) -> None:
    _write(place.with_name(f"{place.name}.key"), _private_ssh(key), secret=True)
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    _write(place.with_name(f"{place.name}.pub"), public + b"\n")


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


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _private_pem(key: PrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _private_ssh(key: PrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )


def _write(path: Path, raw: bytes, *, secret: bool = False) -> None:
    """Keys are made once: an existing file is never overwritten."""
    make_folder(path.parent)
    try:
        with open(path, "xb", opener=_secret if secret else opener) as file:
            file.write(raw)
    except FileExistsError:
        raise UserError(f"'{path}' exists already; keys are never overwritten.") from None


def _secret(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
