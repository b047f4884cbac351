"""Keys and certificates for mutual TLS between the coordinator of a study and its sites.

A private key stays in the folder in which it was made. The coordinator's authority signs the requests of the
sites; a site trusts one certificate, the coordinator's, which it has pinned. Import this module only where
there is a network: it needs `cryptography`.
"""

from __future__ import annotations

import hashlib
import ipaddress
import os
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeVar

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives import serialization as form
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from hedgerow.errors import HedgerowError, InvalidStore
from hedgerow.holder.own_files import check_own, open_own
from hedgerow.transport import HOST, NAME

ISSUED, REVOKED = "issued.tsv", "revoked.txt"
MOST_PEM = 16 * 1024  # bytes
MOST_DAYS = 3650
MOST_COMMON_NAME = 64  # characters, by RFC 5280
CLOCK_DIFFERENCE = timedelta(hours=1)  # certificates are valid from this long before they are signed
SERVER = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
CLIENT = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH])
IS_AUTHORITY = x509.BasicConstraints(ca=True, path_length=0)
IS_NO_AUTHORITY = x509.BasicConstraints(ca=False, path_length=None)
# The sixth and seventh usage are keyCertSign and cRLSign, the first is digitalSignature.
SIGNS_CERTIFICATES = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
SIGNS_HANDSHAKES = x509.KeyUsage(True, False, False, False, False, False, False, False, False)

MAKE = "make the authority of the study first, or restore the folder from its backup."
ENROLL = "make a key and a request first: hedgerow site enroll"
INSTALL = "install the certificate that the coordinator signed: hedgerow site install"
PIN = "pin the certificate of the coordinator: hedgerow site enroll"
RENEW = "make a new request, and ask the coordinator to sign it: hedgerow site enroll"
PIN_AGAIN = "ask the coordinator for a new invitation: hedgerow site enroll --replace"

Signed = TypeVar("Signed", x509.Certificate, x509.CertificateSigningRequest)


class InvalidKeys(HedgerowError):
    """A key, a certificate or a request is missing, damaged, expired, revoked, or another than is needed."""


class Identity(NamedTuple):
    """Whom a certificate or a request is for; `key` is the SHA-256 of the public key."""

    name: str  # of a holder, or a host
    study: str
    key: str


class Issued(NamedTuple):
    """A line of issued.tsv."""

    serial: int
    holder: str
    good_until: datetime
    key: str


def make_authority(folder: Path, study: str, host: str, days: int = 730) -> None:
    """Make the authority of a study, and the coordinator's key and certificate."""
    _check_name("study", study)
    _general_name(host)
    for file in ("authority.key", "authority.crt", "coordinator.key", "coordinator.crt", ISSUED, REVOKED):
        if os.path.lexists(folder / file):
            raise InvalidKeys(f"{folder / file} exists; keep it, or make the authority in another folder.")
    key = _new_key()
    name = _subject(f"hedgerow authority of {study}", study)
    builder = _builder(name, key.public_key(), _end(days), IS_AUTHORITY, SIGNS_CERTIFICATES)
    _write(folder / "authority.key", _key_pem(key))
    _write(folder / "authority.crt", _pem(builder.issuer_name(name).sign(key, hashes.SHA256())))
    _write_lists(folder, [], set())
    renew_coordinator(folder, host, days)


def renew_coordinator(folder: Path, host: str, days: int = 730) -> None:
    """Make a new key and certificate of the coordinator; every site must pin the new coordinator.crt."""
    key = _new_key()
    names = x509.SubjectAlternativeName([_general_name(host)])
    certificate = _issue(folder, host, key.public_key(), days, SERVER, names)
    _write(folder / "coordinator.key", _key_pem(key))
    _write(folder / "coordinator.crt", _pem(certificate))


def sign(
    folder: Path, request: bytes, holders: Sequence[str], days: int = 360, *, renew: bool = False
) -> tuple[str, bytes]:
    """The holder that a PEM request is from, and a PEM certificate for it.

    Of the request, only the name and the public key are used. `renew` revokes certificates of earlier keys.
    """
    asked = _parse(_load_request, request, "the request")
    holder, asked_study, key = _identity(asked)
    study = _identity(_read_certificate(folder / "authority.crt", MAKE)).study
    if holder not in holders:
        raise InvalidKeys(f"the request is from {holder[:80]!r}, not a holder of the study; correct either.")
    if asked_study != study:
        raise InvalidKeys(f"the request is for the study {asked_study[:80]!r}; enroll for {study!r} instead.")
    with _locked(folder):
        issued, revoked = _read_lists(folder)
        if any(entry.key == key and entry.serial in revoked for entry in issued):
            raise InvalidKeys(f"this key was revoked; {holder} must delete its site.key and enroll again.")
        replaced = [entry for entry in issued if entry.holder == holder and entry.key != key]
        if not renew and any(e.good_until >= _now() and e.serial not in revoked for e in replaced):
            raise InvalidKeys(
                f"{holder} has a certificate that is still good, for another key. Ask the holder whether it "
                "made a new key; if it did, sign with renew, which revokes the earlier certificate."
            )
        certificate = _issue(folder, holder, asked.public_key(), days, CLIENT)
        issued.append(Issued(certificate.serial_number, holder, certificate.not_valid_after_utc, key))
        _write_lists(folder, issued, revoked | {entry.serial for entry in replaced})
    return holder, _pem(certificate)


def revoke(folder: Path, holder: str) -> int:
    """Revoke all certificates of a holder, and their keys; returns how many were not revoked before."""
    with _locked(folder):
        issued, revoked = _read_lists(folder)
        serials = {entry.serial for entry in issued if entry.holder == holder}
        if not serials:
            raise InvalidKeys(f"no certificate was ever issued to {holder!r}; check the name of the holder.")
        _write_lists(folder, issued, revoked | serials)
    return len(serials - revoked)


class CertificateVerifier:
    """Tells a coordinator which holder a certificate belongs to. A revocation counts at once."""

    def __init__(self, folder: Path, study: str, holders: Sequence[str]) -> None:
        self._folder, self._study, self._holders = folder, study, frozenset(holders)
        self._authority = _read_certificate(folder / "authority.crt", MAKE)
        if (found := _identity(self._authority).study) != study:
            raise InvalidKeys(f"{folder} is for the study {found!r}; name the folder of {study!r}.")
        self._lists = self._read_lists()

    def holder_of(self, certificate: bytes, now: datetime | None = None) -> str:
        """The holder that a PEM certificate was issued to, if it is valid now."""
        found = _certificate(certificate)
        try:
            found.verify_directly_issued_by(self._authority)
        except (InvalidSignature, UnsupportedAlgorithm, TypeError, ValueError) as error:
            raise InvalidKeys("the certificate is not from the authority of this study; enroll.") from error
        _check(found, CLIENT, RENEW, now)
        holder, study, key = _identity(found)
        if study != self._study or holder not in self._holders:
            raise InvalidKeys(f"{holder!r} of {study!r} is not a holder of this study; add it there.")
        stamp, issued, revoked = self._lists
        if stamp != self._stamp():
            _, issued, revoked = self._lists = self._read_lists()
        if issued.get(found.serial_number) != (holder, key):
            raise InvalidKeys(f"{ISSUED} does not list this certificate of {holder}; sign a new request.")
        if found.serial_number in revoked:
            raise InvalidKeys(f"the certificate of {holder} was revoked; it must enroll with a new key.")
        return holder

    def _read_lists(self) -> tuple[list[tuple[int, int, int]], dict[int, tuple[str, str]], set[int]]:
        stamp = self._stamp()  # before reading: if a file changes meanwhile, it is read again
        issued, revoked = _read_lists(self._folder)
        return stamp, {entry.serial: (entry.holder, entry.key) for entry in issued}, revoked

    def _stamp(self) -> list[tuple[int, int, int]]:
        stamp = []
        for path in (self._folder / ISSUED, self._folder / REVOKED):
            with _explained(path, MAKE):
                found = path.stat()
            stamp.append((found.st_ino, found.st_size, found.st_mtime_ns))
        return stamp


def enroll(folder: Path, holder: str, study: str) -> bytes:
    """A PEM request for a certificate, also written to site.csr; makes site.key if there is none."""
    _check_name("holder", holder)
    _check_name("study", study)
    if not os.path.lexists(folder / "site.key"):
        _write(folder / "site.key", _key_pem(_new_key()))
    builder = x509.CertificateSigningRequestBuilder(_subject(holder, study))
    request = _pem(builder.sign(_read_key(folder / "site.key", ENROLL), hashes.SHA256()))
    _write(folder / "site.csr", request)
    return request


def install(folder: Path, certificate: bytes) -> datetime:
    """Keep the certificate that the coordinator signed as site.crt; returns until when it is valid."""
    found = _certificate(certificate)
    if _identity(found).key != _key_hash(_read_key(folder / "site.key", ENROLL).public_key()):
        raise InvalidKeys(f"the certificate is for another key than site.key; {RENEW}")
    request = _parse(_load_request, _read(folder / "site.csr", ENROLL), "site.csr")
    if (identity := _identity(found)) != _identity(request):
        raise InvalidKeys(f"site.csr is not for {identity.name!r} and {identity.study!r}; {RENEW}")
    _check(found, CLIENT, RENEW)
    _write(folder / "site.crt", _pem(found))
    return found.not_valid_after_utc


def pin(folder: Path, certificate: bytes, *, replace: bool = False) -> str:
    """Trust this certificate of the coordinator and no other; returns its fingerprint."""
    found, path = _certificate(certificate), folder / "coordinator.crt"
    _check(found, SERVER, PIN_AGAIN)
    _host(found)
    if not replace and os.path.lexists(path) and (pinned := _read_certificate(path, PIN)) != found:
        raise InvalidKeys(
            f"another certificate is pinned: {fingerprint(_pem(pinned))}. Ask the coordinator by telephone "
            f"whether it has a new one: {fingerprint(certificate)}. If so: hedgerow site enroll --replace"
        )
    _write(path, _pem(found))
    return fingerprint(certificate)


def fingerprint(certificate: bytes) -> str:
    """The SHA-256 of a PEM certificate, in groups of four hexadecimal digits."""
    return _certificate(certificate).fingerprint(hashes.SHA256()).hex(" ", 2)


def host_of(certificate: bytes) -> str:
    """The name or address that a coordinator's certificate is for."""
    return _host(_certificate(certificate))


@dataclass(frozen=True)
class SiteKeys:
    """What a site needs for TLS, in PEM format; `good_until` is when the first certificate expires."""

    holder: str
    study: str
    host: str
    key: bytes = field(repr=False)
    certificate: bytes
    coordinator: bytes
    good_until: datetime

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read and check the files of a site; an error says which step is missing."""
        key = _read_key(folder / "site.key", ENROLL)
        own = _read_certificate(folder / "site.crt", INSTALL)
        coordinator = _read_certificate(folder / "coordinator.crt", PIN)
        _check(own, CLIENT, RENEW)
        _check(coordinator, SERVER, PIN_AGAIN)
        holder, study, own_key = _identity(own)
        if own_key != _key_hash(key.public_key()):
            raise InvalidKeys(f"site.crt is for another key than site.key; {INSTALL}")
        if (other := _identity(coordinator).study) != study:
            raise InvalidKeys(f"coordinator.crt is of the study {other!r}, not of {study!r}; {PIN_AGAIN}")
        end = min(own.not_valid_after_utc, coordinator.not_valid_after_utc)
        return cls(holder, study, _host(coordinator), _key_pem(key), _pem(own), _pem(coordinator), end)


def _read_lists(folder: Path) -> tuple[list[Issued], set[int]]:
    """The certificates that were issued, and the serials of those that were revoked."""
    try:
        lines = [line.split("\t") for line in _read(folder / ISSUED, MAKE).decode().splitlines()]
        issued = [Issued(int(s, 16), name, datetime.fromisoformat(end), key) for s, name, end, key in lines]
        return issued, {int(serial, 16) for serial in _read(folder / REVOKED, MAKE).decode().split()}
    except ValueError as error:
        raise InvalidKeys(f"{ISSUED} or {REVOKED} in {folder} is damaged; restore it.") from error


def _write_lists(folder: Path, issued: Sequence[Issued], revoked: set[int]) -> None:
    """Revocations are written first, so that a holder never has two keys that are good."""
    _write(folder / REVOKED, "".join(f"{serial:x}\n" for serial in sorted(revoked)).encode())
    lines = (f"{e.serial:x}\t{e.holder}\t{e.good_until.isoformat()}\t{e.key}\n" for e in issued)
    _write(folder / ISSUED, "".join(lines).encode())


def _issue(folder: Path, name: str, key: Any, days: int, *extensions: x509.ExtensionType) -> x509.Certificate:
    """A certificate that the authority signs; it expires with the authority at the latest."""
    authority = _read_certificate(folder / "authority.crt", MAKE)
    authority_key = _read_key(folder / "authority.key", MAKE)
    if (end := authority.not_valid_after_utc) <= _now():
        raise InvalidKeys("the authority has expired; make another in a new folder, and enroll all sites.")
    subject = _subject(name, _identity(authority).study)
    builder = _builder(subject, key, min(_end(days), end), IS_NO_AUTHORITY, SIGNS_HANDSHAKES, *extensions)
    return builder.issuer_name(authority.subject).sign(authority_key, hashes.SHA256())


def _builder(
    subject: x509.Name, key: Any, good_until: datetime, *extensions: x509.ExtensionType
) -> x509.CertificateBuilder:
    builder = x509.CertificateBuilder().subject_name(subject).public_key(key).not_valid_after(good_until)
    builder = builder.not_valid_before(_now() - CLOCK_DIFFERENCE).serial_number(x509.random_serial_number())
    for extension in extensions:
        critical = isinstance(extension, x509.BasicConstraints | x509.KeyUsage)
        builder = builder.add_extension(extension, critical)
    return builder


def _check(
    found: x509.Certificate, purpose: x509.ExtendedKeyUsage, step: str, now: datetime | None = None
) -> None:
    """Refuse a certificate that has other purposes, can sign others, or is not valid now."""
    owner, now = "coordinator" if purpose == SERVER else "site", now or _now()
    kinds = (x509.ExtendedKeyUsage, x509.BasicConstraints)
    if [_extension(found, kind) for kind in kinds] != [purpose, IS_NO_AUTHORITY]:
        raise InvalidKeys(f"this is not the certificate of a {owner}; check which file it is.")
    if now < found.not_valid_before_utc:
        raise InvalidKeys(f"the certificate of the {owner} is not valid yet; check this machine's clock.")
    if now > (end := found.not_valid_after_utc):
        raise InvalidKeys(f"the certificate of the {owner} expired on {end:%Y-%m-%d}; {step}")


def _extension(certificate: x509.Certificate, kind: type[Any]) -> Any:
    return next((found.value for found in certificate.extensions if isinstance(found.value, kind)), None)


def _host(certificate: x509.Certificate) -> str:
    names = list(_extension(certificate, x509.SubjectAlternativeName) or ())
    if len(names) != 1 or names[0] != _general_name(str(names[0].value)):
        raise InvalidKeys("the certificate does not name exactly one host; ask the coordinator for its own.")
    return str(names[0].value)


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        if not HOST.fullmatch(host):
            raise InvalidKeys(f"{host!r} is no host; give the name or address of the coordinator.") from None
        return x509.DNSName(host)


def _identity(found: x509.Certificate | x509.CertificateSigningRequest) -> Identity:
    kinds = (NameOID.COMMON_NAME, NameOID.ORGANIZATION_NAME)
    match [found.subject.get_attributes_for_oid(kind) for kind in kinds]:
        case [[name], [study]]:
            return Identity(str(name.value), str(study.value), _key_hash(found.public_key()))
    raise InvalidKeys("there must be exactly one common name and one organisation; enroll with Hedgerow.")


def _subject(common_name: str, study: str) -> x509.Name:
    named = {NameOID.COMMON_NAME: common_name[:MOST_COMMON_NAME], NameOID.ORGANIZATION_NAME: study}
    return x509.Name([x509.NameAttribute(kind, value) for kind, value in named.items()])


def _check_name(what: str, name: str) -> None:
    if not NAME.fullmatch(name):
        raise InvalidKeys(f"{what} = {name!r}; use letters, digits, - and _, at most 63 of them.")


def _now() -> datetime:
    return datetime.now(UTC).replace(microsecond=0)


def _end(days: int) -> datetime:
    if not 0 < days <= MOST_DAYS:
        raise InvalidKeys(f"days = {days}; a certificate is valid for 1 to {MOST_DAYS} days.")
    return _now() + timedelta(days=days)


def _new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption())


def _key_hash(key: object) -> str:
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        raise InvalidKeys("the key is not an ECDSA key on the curve P-256; enroll with Hedgerow.")
    der = key.public_bytes(form.Encoding.DER, form.PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(der).hexdigest()


def _pem(found: x509.Certificate | x509.CertificateSigningRequest) -> bytes:
    """This certificate or request and nothing else."""
    return found.public_bytes(form.Encoding.PEM)


def _certificate(pem: bytes) -> x509.Certificate:
    return _parse(x509.load_pem_x509_certificate, pem, "the certificate")


def _read_certificate(path: Path, step: str) -> x509.Certificate:
    return _parse(x509.load_pem_x509_certificate, _read(path, step), str(path))


def _load_request(pem: bytes) -> x509.CertificateSigningRequest:
    request = x509.load_pem_x509_csr(pem)
    if not request.is_signature_valid:
        raise ValueError("not signed with its own key")
    return request


def _parse(load: Callable[[bytes], Signed], pem: bytes, what: str) -> Signed:
    """The first certificate or request in PEM format, with names and a key as Hedgerow makes them."""
    if len(pem) > MOST_PEM:
        raise InvalidKeys(f"{what} has more than {MOST_PEM} bytes; check which file it is.")
    try:
        found = load(pem)
        _ = found.subject, found.extensions, found.public_key()  # each raises an error if it is damaged
    except Exception as error:  # of many classes, for bytes that anybody may have sent
        raise InvalidKeys(f"{what} is not in PEM format, or was damaged or changed; get it again.") from error
    _identity(found)  # raises an error if it has other names or another kind of key
    return found


def _read_key(path: Path, step: str) -> ec.EllipticCurvePrivateKey:
    pem = _read(path, step, secret=True)
    try:
        key = form.load_pem_private_key(pem, None)
    except (TypeError, ValueError, UnsupportedAlgorithm) as error:
        raise InvalidKeys(f"{path} is damaged, or has a password; restore it from its backup.") from error
    _key_hash(key.public_key())
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    return key


def _read(path: Path, step: str, *, secret: bool = False) -> bytes:
    """The bytes of a file that nobody else may change nor, if it is secret, read."""
    with _explained(path, step):
        check_own(path.parent)
        check_own(path, secret=secret)
        return path.read_bytes()


def _write(path: Path, content: bytes) -> None:
    """Put a file that its owner alone may read in the place of `path`, as a whole."""
    new = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    with _explained(path, "make its folder first."):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        check_own(path.parent)
        check_own(path)
        try:
            with os.fdopen(open_own(new, os.O_WRONLY | os.O_EXCL), "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            new.replace(path)
        finally:
            new.unlink(missing_ok=True)


@contextmanager
def _explained(path: Path, step: str) -> Iterator[None]:
    """Raise what goes wrong with a file as InvalidKeys; `step` says how to make one that is missing."""
    try:
        yield
    except InvalidStore as error:
        raise InvalidKeys(str(error)) from error
    except FileNotFoundError as error:
        raise InvalidKeys(f"there is no {path}; {step}") from error
    except OSError as error:
        raise InvalidKeys(f"{path} cannot be used: {error.strerror}; correct that first.") from error


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Let one process at a time change the lists of certificates."""
    import fcntl  # a coordinator runs on a POSIX system; a site may not

    with _explained(folder, MAKE):
        descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
