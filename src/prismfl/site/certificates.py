"""A federation's own authority: the certificates of its server, how long they are good, and what is wrong with them."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from prismfl.errors import UserError
from prismfl.files.atomic import write_atomically
from prismfl.files.bounded import read_regular
from prismfl.site.keys import KEY_LIMIT, replace_key, write_key

YEARS = 5
SOON_DAYS = 30
"""So many days ahead it is told that a certificate ends."""


@dataclass(frozen=True)
class CertificateState:
    """A certificate that was looked at: until when it is good, for whom, and what is wrong with it, in words."""

    path: Path
    names: tuple[str, ...]
    until: datetime | None
    days: int | None
    faults: tuple[str, ...]

    @property
    def soon(self) -> str | None:
        """That it ends within 30 days, in words."""
        if self.days is None or not 0 <= self.days < SOON_DAYS:
            return None
        return f"{self.path.name} ends in {self.days} days, on {self.until:%Y-%m-%d}"


def make_authority(folder: Path, names: Sequence[str]) -> None:
    """`ca.pem` for the sites, and a certificate for this server under each of `names` (host names or addresses)."""
    key = ec.generate_private_key(ec.SECP384R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "prismfl federation")])
    ca = (
        _draft()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .sign(key, hashes.SHA384())
    )
    write_key(folder / "ca.key", _pem(key), secret=True)
    write_key(folder / "ca.pem", ca.public_bytes(serialization.Encoding.PEM))
    server_key, server = _issued(ca, key, names)
    write_key(folder / "server.key", server_key, secret=True)
    write_key(folder / "server.pem", server)


def renew_server(folder: Path, names: Sequence[str] = ()) -> CertificateState:
    """A new key and certificate for the server under the same authority, so that no site has to do anything; for the
    names that the one before had, unless others are given."""
    ca, key = read_certificates(folder / "ca.pem")[0], _private(folder / "ca.key")
    if key.public_key() != ca.public_key():
        raise UserError(f"'{folder / 'ca.key'}' is not the key of '{folder / 'ca.pem'}'; restore the two together.")
    if now() >= ca.not_valid_after_utc:
        raise UserError(
            f"The authority '{folder / 'ca.pem'}' ended on {ca.not_valid_after_utc:%Y-%m-%d}: make a new server folder "
            "and give its ca.pem to the sites."
        )
    old = look(folder / "server.pem") if (folder / "server.pem").exists() else None
    wanted = list(names) or list(old.names if old else ())
    if not wanted:
        raise UserError("Expected the names that sites use for this server: --name, repeatable.")
    server_key, server = _issued(ca, key, wanted)
    replace_key(folder / "server.key", server_key)  # between the two a server does not start, and says why
    write_atomically(folder / "server.pem", server)
    return look(folder / "server.pem")


def look(path: Path) -> CertificateState:
    """A certificate by itself: readable, begun, not ended."""
    try:
        found = read_certificates(path)[0]
    except UserError as error:
        return CertificateState(path, (), None, None, (str(error),))
    until, moment, faults = found.not_valid_after_utc, now(), []
    if moment >= until:
        faults.append(f"{path.name} has expired on {until:%Y-%m-%d}")
    if moment < found.not_valid_before_utc:
        faults.append(f"{path.name} is good from {found.not_valid_before_utc:%Y-%m-%d %H:%M} on: is this clock right?")
    return CertificateState(path, _names(found), until, (until - moment).days, tuple(faults))


def look_at_server(keys: Path) -> list[CertificateState]:
    """The certificates of a server's folder, and whether they and their keys belong together."""
    ca, server = look(keys / "ca.pem"), look(keys / "server.pem")
    faults = list(server.faults)
    if ca.until is not None and server.until is not None:
        above, below = read_certificates(keys / "ca.pem")[0], read_certificates(keys / "server.pem")[0]
        if not _is_authority(above):
            faults.append("ca.pem is no authority: was it swapped with server.pem?")
        elif not _issued_by(below, above):
            faults.append("server.pem was not issued by ca.pem: they are of two federations, or swapped")
        try:
            if _private(keys / "server.key").public_key() != below.public_key():
                faults.append("server.key is not the key of server.pem: they are of two renewals, or swapped")
        except UserError as error:
            faults.append(str(error))
    return [ca, CertificateState(server.path, server.names, server.until, server.days, tuple(faults))]


def look_at_trust(path: Path) -> CertificateState:
    """The authority that a site trusts: a certificate that may issue others, and not ended."""
    found = look(path)
    if found.until is not None and not all(_is_authority(one) for one in read_certificates(path)):
        words = f"{path.name} is no authority: it is a server's own certificate, ask for the server's ca.pem"
        return CertificateState(path, found.names, found.until, found.days, (*found.faults, words))
    return found


def read_certificates(path: Path) -> list[x509.Certificate]:
    """The certificates in a PEM file, at least one."""
    try:
        return x509.load_pem_x509_certificates(read_regular(path, limit=KEY_LIMIT))
    except ValueError as error:
        raise error if isinstance(error, UserError) else UserError(f"'{path}' is not a certificate.") from None


def now() -> datetime:
    """This moment, in UTC."""
    return datetime.now(UTC)


def _draft(most: datetime | None = None) -> x509.CertificateBuilder:
    begins = now() - timedelta(hours=1)
    ends = begins + timedelta(days=365 * YEARS)
    return (
        x509.CertificateBuilder()
        .not_valid_before(begins)
        .not_valid_after(ends if most is None else min(ends, most))
        .serial_number(x509.random_serial_number())
    )


def _issued(ca: x509.Certificate, key: ec.EllipticCurvePrivateKey, names: Sequence[str]) -> tuple[bytes, bytes]:
    """A new key, and its certificate under `names`, which ends no later than the authority."""
    own = ec.generate_private_key(ec.SECP384R1())
    made = (
        _draft(ca.not_valid_after_utc)
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "prismfl server")]))
        .issuer_name(ca.subject)
        .public_key(own.public_key())
        .add_extension(x509.SubjectAlternativeName([_alternative(name) for name in names]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), critical=False)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .sign(key, hashes.SHA384())
    )
    return _pem(own), made.public_bytes(serialization.Encoding.PEM)


def _is_authority(certificate: x509.Certificate) -> bool:
    try:
        return bool(certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca)
    except x509.ExtensionNotFound:
        return False


def _issued_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _names(certificate: x509.Certificate) -> tuple[str, ...]:
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ()
    return tuple(str(name.value) for name in found)


def _private(path: Path) -> ec.EllipticCurvePrivateKey:
    try:
        key = serialization.load_pem_private_key(read_regular(path, limit=KEY_LIMIT), None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise error if isinstance(error, UserError) else UserError(f"'{path}' is not a private key.") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise UserError(f"'{path}' is not a private key of this kind (P-384).")
    return key


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


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
