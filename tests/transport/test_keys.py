"""Keys that stay where they were made, certificates that say what they are for, and real TLS with both."""

from __future__ import annotations

import base64
import ipaddress
import os
import re
import stat
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from hypothesis import given
from hypothesis import strategies as st

from hedgerow.transport import keys
from hedgerow.transport.keys import (
    CertificateVerifier,
    InvalidKeys,
    SiteKeys,
    enroll,
    fingerprint,
    install,
    make_authority,
    pin,
    renew_coordinator,
    revoke,
    sign,
)

HOLDERS = ("north", "south")
SERVER, CLIENT = ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH
EXAMPLE = x509.DNSName("example.org")


@dataclass(frozen=True)
class Parties:
    """A coordinator's folder of keys, and the folder of one site."""

    coordinator: Path
    site: Path

    def enroll_and_sign(self, holder: str = "north", **options) -> bytes:
        return sign(self.coordinator, enroll(self.site, holder, "malaria"), HOLDERS, **options)[1]

    def verifier(self) -> CertificateVerifier:
        return CertificateVerifier(self.coordinator, "malaria", HOLDERS)

    def coordinator_certificate(self) -> bytes:
        return (self.coordinator / "coordinator.crt").read_bytes()


def make_parties(folder: Path) -> Parties:
    make_authority(folder / "keys", "malaria", "127.0.0.1")
    return Parties(folder / "keys", folder / "site")


@pytest.fixture
def parties(tmp_path: Path) -> Parties:
    return make_parties(tmp_path)


@pytest.fixture
def ready(parties: Parties) -> Parties:
    """A site that has enrolled, installed and pinned."""
    install(parties.site, parties.enroll_and_sign())
    pin(parties.site, parties.coordinator_certificate())
    return parties


@pytest.fixture
def days_later(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Sets the clock of the module, counted from the real time."""
    return lambda days: monkeypatch.setattr(keys, "_now", lambda: now(days))


def now(days: float = 0) -> datetime:
    return datetime.now(UTC).replace(microsecond=0) + timedelta(days=days)


def refused(sentence: str):
    return pytest.raises(InvalidKeys, match=re.escape(sentence))


def certificate_of(pem: bytes) -> x509.Certificate:
    return x509.load_pem_x509_certificate(pem)


def key_of(path: Path) -> ec.EllipticCurvePrivateKey:
    key = load_pem_private_key(path.read_bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    return key


def key_pem(key, encryption=None) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption or NoEncryption())


def extensions_of(pem: bytes) -> dict[type, object]:
    return {type(extension.value): extension.value for extension in certificate_of(pem).extensions}


def names_of(pem: bytes) -> dict[x509.ObjectIdentifier, str]:
    return {attribute.oid: str(attribute.value) for attribute in certificate_of(pem).subject}


def subject(*names: str, study: str | None = "malaria") -> x509.Name:
    attributes = [x509.NameAttribute(NameOID.COMMON_NAME, name) for name in names]
    if study is not None:
        attributes.append(x509.NameAttribute(NameOID.ORGANIZATION_NAME, study))
    return x509.Name(attributes)


def request_pem(name: x509.Name, key=None, *extensions: x509.ExtensionType) -> bytes:
    builder = x509.CertificateSigningRequestBuilder(name)
    for extension in extensions:
        builder = builder.add_extension(extension, critical=True)
    key = key or ec.generate_private_key(ec.SECP256R1())
    algorithm = None if isinstance(key, ed25519.Ed25519PrivateKey) else hashes.SHA256()
    return builder.sign(key, algorithm).public_bytes(Encoding.PEM)


def certificate_pem(
    name: x509.Name,
    public_key,
    signer,
    issuer: x509.Name,
    purposes=(),
    names=(),
    authority: bool | None = False,
    serial: int | None = None,
) -> bytes:
    """A certificate that Hedgerow would not make."""
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(issuer).public_key(public_key)
    builder = builder.serial_number(serial or x509.random_serial_number())
    builder = builder.not_valid_before(now(-1)).not_valid_after(now(9))
    if authority is not None:
        builder = builder.add_extension(x509.BasicConstraints(authority, None), critical=True)
    if purposes:
        builder = builder.add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return builder.sign(signer, hashes.SHA256()).public_bytes(Encoding.PEM)


def self_signed(purposes=(SERVER,), names=(EXAMPLE,), authority: bool | None = False) -> bytes:
    key = ec.generate_private_key(ec.SECP256R1())
    name = subject("example.org")
    return certificate_pem(name, key.public_key(), key, name, purposes, names, authority)


# The authority and the coordinator's certificate


def test_the_authority_signs_certificates_and_nothing_else(parties: Parties):
    pem = (parties.coordinator / "authority.crt").read_bytes()
    assert names_of(pem) == {
        NameOID.COMMON_NAME: "hedgerow authority of malaria",
        NameOID.ORGANIZATION_NAME: "malaria",
    }
    found = extensions_of(pem)
    assert found.keys() == {x509.BasicConstraints, x509.KeyUsage}
    assert found[x509.BasicConstraints] == x509.BasicConstraints(ca=True, path_length=0)
    assert usages(found[x509.KeyUsage]) == {"key_cert_sign", "crl_sign"}
    check_kind(pem, parties, days=730)


def test_the_coordinators_certificate_is_for_a_server_with_one_name(parties: Parties):
    pem = parties.coordinator_certificate()
    assert names_of(pem) == {NameOID.COMMON_NAME: "127.0.0.1", NameOID.ORGANIZATION_NAME: "malaria"}
    found = extensions_of(pem)
    assert found.keys() == {
        x509.BasicConstraints,
        x509.KeyUsage,
        x509.ExtendedKeyUsage,
        x509.SubjectAlternativeName,
    }
    assert found[x509.BasicConstraints] == x509.BasicConstraints(ca=False, path_length=None)
    assert usages(found[x509.KeyUsage]) == {"digital_signature"}
    assert list(found[x509.ExtendedKeyUsage]) == [SERVER]
    assert list(found[x509.SubjectAlternativeName]) == [x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    check_kind(pem, parties, days=730)
    assert certificate_of(pem).public_key() == key_of(parties.coordinator / "coordinator.key").public_key()


def test_a_sites_certificate_is_for_a_client(parties: Parties):
    pem = parties.enroll_and_sign()
    assert names_of(pem) == {NameOID.COMMON_NAME: "north", NameOID.ORGANIZATION_NAME: "malaria"}
    check_is_for_a_client_only(pem)
    check_kind(pem, parties, days=360)


def check_is_for_a_client_only(pem: bytes) -> None:
    found = extensions_of(pem)
    assert found.keys() == {x509.BasicConstraints, x509.KeyUsage, x509.ExtendedKeyUsage}
    assert found[x509.BasicConstraints] == x509.BasicConstraints(ca=False, path_length=None)
    assert usages(found[x509.KeyUsage]) == {"digital_signature"}
    assert list(found[x509.ExtendedKeyUsage]) == [CLIENT]


def usages(usage: x509.KeyUsage) -> set[str]:
    names = ("digital_signature", "content_commitment", "key_encipherment", "data_encipherment")
    names += ("key_agreement", "key_cert_sign", "crl_sign")
    return {name for name in names if getattr(usage, name)}


def check_kind(pem: bytes, parties: Parties, days: int) -> None:
    found = certificate_of(pem)
    assert found.version is x509.Version.v3
    assert isinstance(found.signature_hash_algorithm, hashes.SHA256)
    assert isinstance(found.public_key().curve, ec.SECP256R1)
    assert found.serial_number.bit_length() > 100
    assert abs(found.not_valid_after_utc - now(days)) < timedelta(minutes=5)
    found.verify_directly_issued_by(certificate_of((parties.coordinator / "authority.crt").read_bytes()))


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("trees.example.org", x509.DNSName("trees.example.org")),
        ("10.1.2.3", x509.IPAddress(ipaddress.ip_address("10.1.2.3"))),
        ("2001:db8::1", x509.IPAddress(ipaddress.ip_address("2001:db8::1"))),
        ("a" * 60 + "." + "b" * 60 + ".org", x509.DNSName("a" * 60 + "." + "b" * 60 + ".org")),
    ],
)
def test_a_host_is_a_name_or_an_address(tmp_path: Path, host: str, name: x509.GeneralName):
    study = "s" * 63  # longer names of authorities and hosts are cut in the subject, where nobody reads them
    make_authority(tmp_path / "keys", study, host)
    pem = (tmp_path / "keys" / "coordinator.crt").read_bytes()
    assert list(extensions_of(pem)[x509.SubjectAlternativeName]) == [name]
    install(tmp_path / "site", sign(tmp_path / "keys", enroll(tmp_path / "site", "north", study), HOLDERS)[1])
    pin(tmp_path / "site", pem)
    assert SiteKeys.load(tmp_path / "site").host == host


@pytest.mark.parametrize("file", ["authority.key", "authority.crt", "coordinator.key", "revoked.txt"])
def test_an_authority_is_never_overwritten(parties: Parties, file: str):
    for path in parties.coordinator.iterdir():
        if path.name != file:
            path.unlink()
    with refused(f"{file} exists; keep it, or make the authority in another folder."):
        make_authority(parties.coordinator, "malaria", "127.0.0.1")
    assert [path.name for path in parties.coordinator.iterdir()] == [file]


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"study": "a study"}, "study = 'a study'; use letters, digits"),
        ({"study": ""}, "study = ''; use letters"),
        ({"host": "*.example.org"}, "'*.example.org' is no host; give the name or address"),
        ({"host": "example.org:8002"}, "is no host"),
        ({"days": 0}, "days = 0; a certificate is valid for 1 to 3650 days."),
        ({"days": 10**9}, "a certificate is valid for 1 to 3650 days."),
    ],
)
def test_an_authority_of_wrong_values_is_not_made(tmp_path: Path, values: dict, sentence: str):
    with refused(sentence):
        make_authority(**{"folder": tmp_path / "keys", "study": "malaria", "host": "example.org"} | values)
    assert not (tmp_path / "keys").exists()


def test_a_renewed_coordinator_has_a_new_key_and_the_same_authority(parties: Parties):
    authority = (parties.coordinator / "authority.crt").read_bytes()
    before = certificate_of(parties.coordinator_certificate())
    renew_coordinator(parties.coordinator, "example.org", 30)
    pem = parties.coordinator_certificate()
    check_kind(pem, parties, days=30)
    assert certificate_of(pem).public_key() == key_of(parties.coordinator / "coordinator.key").public_key()
    assert certificate_of(pem).public_key() != before.public_key()
    assert list(extensions_of(pem)[x509.SubjectAlternativeName]) == [x509.DNSName("example.org")]
    assert (parties.coordinator / "authority.crt").read_bytes() == authority


def test_no_certificate_outlives_the_authority(parties: Parties, days_later):
    end = certificate_of((parties.coordinator / "authority.crt").read_bytes()).not_valid_after_utc
    days_later(700)
    assert certificate_of(parties.enroll_and_sign()).not_valid_after_utc == end
    renew_coordinator(parties.coordinator, "127.0.0.1", 90)
    assert certificate_of(parties.coordinator_certificate()).not_valid_after_utc == end
    days_later(731)
    with refused("the authority has expired; make another in a new folder, and enroll all sites."):
        parties.enroll_and_sign()


@pytest.mark.parametrize(
    "use",
    [
        lambda folder: sign(folder, request_pem(subject("north")), HOLDERS),
        lambda folder: renew_coordinator(folder, "example.org"),
        lambda folder: revoke(folder, "north"),
        lambda folder: CertificateVerifier(folder, "malaria", HOLDERS),
    ],
)
def test_nothing_is_done_without_an_authority(tmp_path: Path, use):
    with refused("make the authority of the study first, or restore the folder from its backup."):
        use(tmp_path / "keys")
    assert not (tmp_path / "keys").exists()


# Signing requests


def test_a_signed_certificate_is_listed(parties: Parties):
    pem = parties.enroll_and_sign()
    [line] = (parties.coordinator / "issued.tsv").read_text().splitlines()
    serial, holder, good_until, key = line.split("\t")
    found = certificate_of(pem)
    assert int(serial, 16) == found.serial_number
    assert holder == "north"
    assert datetime.fromisoformat(good_until) == found.not_valid_after_utc
    assert re.fullmatch("[0-9a-f]{64}", key)


def test_no_extension_of_a_request_is_copied(parties: Parties):
    request = request_pem(
        subject("north"),
        None,
        x509.BasicConstraints(ca=True, path_length=5),
        x509.ExtendedKeyUsage([SERVER, ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE]),
        x509.SubjectAlternativeName([x509.DNSName("example.org")]),
        x509.KeyUsage(True, False, False, False, False, True, True, False, False),
    )
    holder, pem = sign(parties.coordinator, request, HOLDERS)
    assert holder == "north"
    check_is_for_a_client_only(pem)
    assert b"example.org" not in certificate_of(pem).public_bytes(Encoding.DER)


def test_no_other_name_of_a_request_is_copied(parties: Parties):
    extra = x509.NameAttribute(NameOID.EMAIL_ADDRESS, "north@example.org")
    _, pem = sign(parties.coordinator, request_pem(x509.Name([*subject("north"), extra])), HOLDERS)
    assert names_of(pem) == {NameOID.COMMON_NAME: "north", NameOID.ORGANIZATION_NAME: "malaria"}


def swapped_key(request: bytes) -> bytes:
    """A request that was changed after it was signed: it has another public key."""
    der = x509.load_pem_x509_csr(request).public_bytes(Encoding.DER)
    old = point_of(x509.load_pem_x509_csr(request).public_key())
    new = point_of(ec.generate_private_key(ec.SECP256R1()).public_key())
    return pem_of(der.replace(old, new), "CERTIFICATE REQUEST")


def point_of(key) -> bytes:
    numbers = key.public_numbers()
    return numbers.x.to_bytes(32, "big") + numbers.y.to_bytes(32, "big")


def pem_of(der: bytes, kind: str) -> bytes:
    return f"-----BEGIN {kind}-----\n{base64.encodebytes(der).decode()}-----END {kind}-----\n".encode()


UNREADABLE = "is not in PEM format, or was damaged or changed; get it again."
WRONG_NAMES = "there must be exactly one common name and one organisation; enroll with Hedgerow."
WRONG_KEY = "the key is not an ECDSA key on the curve P-256; enroll with Hedgerow."


@pytest.mark.parametrize(
    ("request_of_a_site", "sentence"),
    [
        (request_pem(subject("east")), "the request is from 'east', not a holder of the study"),
        (
            request_pem(subject("north", study="measles")),
            "for the study 'measles'; enroll for 'malaria' instead",
        ),
        (request_pem(subject("north", "south")), WRONG_NAMES),
        (request_pem(subject()), WRONG_NAMES),
        (request_pem(subject("north", study=None)), WRONG_NAMES),
        (request_pem(subject("north"), ec.generate_private_key(ec.SECP384R1())), WRONG_KEY),
        (request_pem(subject("north"), rsa.generate_private_key(65537, 2048)), WRONG_KEY),
        (request_pem(subject("north"), ed25519.Ed25519PrivateKey.generate()), WRONG_KEY),
        (swapped_key(request_pem(subject("north"))), UNREADABLE),
        (request_pem(subject("north"))[:200], UNREADABLE),
        (b"", UNREADABLE),
        (b"\n" * 17_000 + request_pem(subject("north")), "the request has more than 16384 bytes"),
        (self_signed(), UNREADABLE),
    ],
)
def test_a_wrong_request_is_not_signed(parties: Parties, request_of_a_site: bytes, sentence: str):
    with refused(sentence):
        sign(parties.coordinator, request_of_a_site, HOLDERS)
    assert not (parties.coordinator / "issued.tsv").read_bytes()


def test_a_request_is_not_signed_for_an_invalid_time(parties: Parties):
    with refused("days = -1; a certificate is valid for"):
        parties.enroll_and_sign(days=-1)
    assert not (parties.coordinator / "issued.tsv").read_bytes()


def test_the_same_key_may_be_signed_again_and_both_certificates_are_good(parties: Parties):
    first, second = parties.enroll_and_sign(), parties.enroll_and_sign()
    third = parties.enroll_and_sign(renew=True)
    assert [parties.verifier().holder_of(pem) for pem in (first, second, third)] == ["north"] * 3
    assert len({certificate_of(pem).serial_number for pem in (first, second, third)}) == 3


def test_another_key_is_signed_only_to_renew_and_revokes_the_first(parties: Parties):
    verifier = parties.verifier()
    first = parties.enroll_and_sign()
    (parties.site / "site.key").unlink()
    with refused("north has a certificate that is still good, for another key. Ask the holder"):
        parties.enroll_and_sign()
    assert verifier.holder_of(first) == "north"
    second = parties.enroll_and_sign(renew=True)
    assert verifier.holder_of(second) == "north"
    with refused("the certificate of north was revoked; it must enroll with a new key."):
        verifier.holder_of(first)


def test_another_key_may_be_signed_when_the_first_has_expired(parties: Parties, days_later):
    parties.enroll_and_sign(days=10)
    (parties.site / "site.key").unlink()
    days_later(11)
    assert parties.verifier().holder_of(parties.enroll_and_sign()) == "north"


def test_renewing_one_holder_does_not_revoke_another(parties: Parties, tmp_path: Path):
    other = Parties(parties.coordinator, tmp_path / "other")
    north, south = parties.enroll_and_sign(), other.enroll_and_sign("south")
    (parties.site / "site.key").unlink()
    parties.enroll_and_sign(renew=True)
    assert parties.verifier().holder_of(south) == "south"
    with refused("revoked"):
        parties.verifier().holder_of(north)


# Revocation


def test_a_revocation_counts_at_once_in_a_running_process(parties: Parties):
    verifier = parties.verifier()
    first, second = parties.enroll_and_sign(), parties.enroll_and_sign()
    assert verifier.holder_of(first) == verifier.holder_of(second) == "north"
    assert revoke(parties.coordinator, "north") == 2
    for pem in (first, second):
        with refused("the certificate of north was revoked"):
            verifier.holder_of(pem)
    assert revoke(parties.coordinator, "north") == 0


def test_a_serial_that_is_written_to_the_file_by_hand_is_revoked(parties: Parties):
    verifier, pem = parties.verifier(), parties.enroll_and_sign()
    assert verifier.holder_of(pem) == "north"
    with (parties.coordinator / "revoked.txt").open("a") as file:
        file.write(f"{certificate_of(pem).serial_number:X}")
    with refused("revoked"):
        verifier.holder_of(pem)


def test_a_revoked_key_is_not_signed_again(parties: Parties):
    parties.enroll_and_sign()
    revoke(parties.coordinator, "north")
    for renew in (False, True):
        with refused("this key was revoked; north must delete its site.key and enroll again."):
            parties.enroll_and_sign(renew=renew)
    (parties.site / "site.key").unlink()
    assert parties.verifier().holder_of(parties.enroll_and_sign()) == "north"


def test_nothing_can_be_revoked_that_was_never_issued(parties: Parties):
    with refused("no certificate was ever issued to 'north'; check the name of the holder."):
        revoke(parties.coordinator, "north")


def test_concurrent_changes_of_the_lists_are_all_kept(parties: Parties):
    names = [f"h{i}" for i in range(24)]

    def sign_and_revoke(name: str) -> None:
        sign(parties.coordinator, request_pem(subject(name)), names)
        assert revoke(parties.coordinator, name) == 1

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(sign_and_revoke, names))
    assert len((parties.coordinator / "issued.tsv").read_text().splitlines()) == len(names)
    assert len((parties.coordinator / "revoked.txt").read_text().splitlines()) == len(names)


@pytest.mark.parametrize("file", ["issued.tsv", "revoked.txt"])
def test_without_its_lists_a_running_coordinator_admits_nobody(parties: Parties, file: str):
    verifier, pem = parties.verifier(), parties.enroll_and_sign()
    assert verifier.holder_of(pem) == "north"
    (parties.coordinator / file).rename(parties.coordinator / "elsewhere")
    with refused(f"{file}; make the authority of the study first, or restore the folder from its backup."):
        verifier.holder_of(pem)
    (parties.coordinator / file).write_bytes(b"\xff no list\n")
    with refused("is damaged; restore it."):
        verifier.holder_of(pem)
    (parties.coordinator / "elsewhere").replace(parties.coordinator / file)
    assert verifier.holder_of(pem) == "north"


# The verifier


def test_the_verifier_needs_the_authority_of_its_study(parties: Parties):
    with refused("is for the study 'malaria'; name the folder of 'measles'."):
        CertificateVerifier(parties.coordinator, "measles", HOLDERS)


def test_a_certificate_of_another_authority_with_the_same_names_is_refused(parties: Parties, tmp_path: Path):
    others = make_parties(tmp_path / "others")
    pem = Parties(others.coordinator, parties.site).enroll_and_sign()
    own = parties.enroll_and_sign()
    parties.verifier().holder_of(own)
    with refused("the certificate is not from the authority of this study; enroll."):
        parties.verifier().holder_of(pem)


def test_a_certificate_is_refused_before_and_after_its_time(parties: Parties):
    verifier, pem = parties.verifier(), parties.enroll_and_sign()
    end = certificate_of(pem).not_valid_after_utc
    assert verifier.holder_of(pem, end) == "north"
    assert verifier.holder_of(pem, now(-0.04)) == "north"  # an hour ago, because clocks differ
    with refused(f"the certificate of the site expired on {end:%Y-%m-%d}; make a new request"):
        verifier.holder_of(pem, end + timedelta(seconds=1))
    with refused("the certificate of the site is not valid yet; check this machine's clock."):
        verifier.holder_of(pem, now(-1))


def test_a_holder_that_left_the_study_is_refused(parties: Parties):
    pem = parties.enroll_and_sign()
    with refused("'north' of 'malaria' is not a holder of this study; add it there."):
        CertificateVerifier(parties.coordinator, "malaria", ["south"]).holder_of(pem)


def by_the_authority(parties: Parties, **others) -> bytes:
    """A certificate that somebody made with the authority's key, but not with Hedgerow."""
    authority = certificate_of((parties.coordinator / "authority.crt").read_bytes())
    usual = {"name": subject("north"), "purposes": [CLIENT], "issuer": authority.subject}
    usual |= {"public_key": ec.generate_private_key(ec.SECP256R1()).public_key()}
    return certificate_pem(**usual | others, signer=key_of(parties.coordinator / "authority.key"))


@pytest.mark.parametrize(
    ("others", "sentence"),
    [
        ({}, "issued.tsv does not list this certificate of north; sign a new request."),
        ({"name": subject("north", study="measles")}, "'north' of 'measles' is not a holder of this study"),
        ({"purposes": [SERVER]}, "this is not the certificate of a site"),
        ({"purposes": [CLIENT, SERVER]}, "this is not the certificate of a site"),
        ({"purposes": []}, "this is not the certificate of a site"),
        ({"authority": True}, "this is not the certificate of a site"),
        ({"authority": None}, "this is not the certificate of a site"),
        ({"issuer": subject("somebody else")}, "not from the authority"),
        ({"name": subject("north", "south")}, WRONG_NAMES),
        ({"public_key": ec.generate_private_key(ec.SECP384R1()).public_key()}, WRONG_KEY),
    ],
)
def test_only_certificates_that_were_issued_as_they_are_admit(parties: Parties, others: dict, sentence: str):
    with refused(sentence):
        parties.verifier().holder_of(by_the_authority(parties, **others))


def test_the_serial_of_another_certificate_does_not_admit(parties: Parties):
    serial = certificate_of(parties.enroll_and_sign()).serial_number
    with refused("does not list this certificate"):
        parties.verifier().holder_of(by_the_authority(parties, serial=serial))
    with refused("does not list this certificate"):
        parties.verifier().holder_of(by_the_authority(parties, serial=serial, name=subject("south")))


@pytest.mark.parametrize("file", ["authority.crt", "coordinator.crt"])
def test_the_coordinators_own_certificates_admit_nobody(parties: Parties, file: str):
    with refused("this is not the certificate of a site; check which file it is."):
        parties.verifier().holder_of((parties.coordinator / file).read_bytes())


# The site


def test_a_site_loads_what_it_enrolled_installed_and_pinned(ready: Parties):
    found = SiteKeys.load(ready.site)
    assert (found.holder, found.study, found.host) == ("north", "malaria", "127.0.0.1")
    assert found.key == (ready.site / "site.key").read_bytes()
    assert found.certificate == (ready.site / "site.crt").read_bytes()
    assert found.coordinator == ready.coordinator_certificate()
    assert found.good_until == certificate_of(found.certificate).not_valid_after_utc


def test_keys_are_good_until_the_first_certificate_expires(ready: Parties):
    renew_coordinator(ready.coordinator, "127.0.0.1", 30)
    pin(ready.site, ready.coordinator_certificate(), replace=True)
    end = certificate_of(ready.coordinator_certificate()).not_valid_after_utc
    assert SiteKeys.load(ready.site).good_until == end


def test_each_missing_step_is_named(parties: Parties):
    with refused("make a key and a request first: hedgerow site enroll"):
        SiteKeys.load(parties.site)
    with refused("make a key and a request first: hedgerow site enroll"):
        install(parties.site, self_signed())
    pem = parties.enroll_and_sign()
    with refused("install the certificate that the coordinator signed: hedgerow site install"):
        SiteKeys.load(parties.site)
    install(parties.site, pem)
    with refused("pin the certificate of the coordinator: hedgerow site enroll"):
        SiteKeys.load(parties.site)
    pin(parties.site, parties.coordinator_certificate())
    SiteKeys.load(parties.site)
    (parties.site / "site.csr").unlink()
    with refused("make a key and a request first: hedgerow site enroll"):
        install(parties.site, pem)


def test_expired_certificates_are_named_with_what_to_do(ready: Parties, days_later):
    days_later(361)
    with refused("make a new request, and ask the coordinator to sign it: hedgerow site enroll"):
        SiteKeys.load(ready.site)
    install(ready.site, ready.enroll_and_sign(days=3650))
    days_later(-2)
    with refused("the certificate of the site is not valid yet"):
        SiteKeys.load(ready.site)
    days_later(0)
    renew_coordinator(ready.coordinator, "127.0.0.1", 20)
    pin(ready.site, ready.coordinator_certificate(), replace=True)
    days_later(365)
    with refused("ask the coordinator for a new invitation: hedgerow site enroll --replace"):
        SiteKeys.load(ready.site)
    with refused("the certificate of the coordinator expired on"):
        pin(ready.site, ready.coordinator_certificate())


def test_enrolling_again_keeps_the_key_and_a_renewed_certificate_replaces_the_first(ready: Parties):
    key, before = (ready.site / "site.key").read_bytes(), (ready.site / "site.crt").read_bytes()
    request = enroll(ready.site, "north", "malaria")
    assert (ready.site / "site.csr").read_bytes() == request
    assert (ready.site / "site.key").read_bytes() == key
    _, pem = sign(ready.coordinator, request, HOLDERS, 500, renew=True)
    assert install(ready.site, pem) == certificate_of(pem).not_valid_after_utc
    assert SiteKeys.load(ready.site).certificate == pem != before


@pytest.mark.parametrize(
    ("names", "sentence"), [(("no rth", "malaria"), "holder = 'no rth'"), (("north", "mal/aria"), "study = ")]
)
def test_a_site_does_not_enroll_with_names_that_cannot_be(tmp_path: Path, names: tuple, sentence: str):
    with refused(sentence):
        enroll(tmp_path / "site", *names)
    assert not (tmp_path / "site").exists()


def test_a_certificate_for_another_key_is_not_installed(parties: Parties, tmp_path: Path):
    pem = parties.enroll_and_sign()
    enroll(tmp_path / "other", "north", "malaria")
    with refused("the certificate is for another key than site.key; make a new request"):
        install(tmp_path / "other", pem)
    assert not (tmp_path / "other" / "site.crt").exists()


@pytest.mark.parametrize(
    ("others", "sentence"),
    [
        ({"name": subject("south")}, "site.csr is not for 'south' and 'malaria'; make"),
        ({"name": subject("north", study="measles")}, "site.csr is not for 'north' and 'measles'; make"),
        ({"purposes": [SERVER]}, "this is not the certificate of a site"),
        ({"authority": True}, "this is not the certificate of a site"),
    ],
)
def test_a_certificate_that_was_not_asked_for_is_not_installed(parties: Parties, others: dict, sentence: str):
    enroll(parties.site, "north", "malaria")
    public_key = key_of(parties.site / "site.key").public_key()
    with refused(sentence):
        install(parties.site, by_the_authority(parties, public_key=public_key, **others))
    assert not (parties.site / "site.crt").exists()


def test_an_expired_certificate_is_not_installed(parties: Parties, days_later):
    pem = parties.enroll_and_sign()
    days_later(361)
    with refused("the certificate of the site expired on"):
        install(parties.site, pem)


def test_a_certificate_of_an_earlier_key_is_not_loaded(ready: Parties):
    (ready.site / "site.key").unlink()
    enroll(ready.site, "north", "malaria")
    with refused("site.crt is for another key than site.key; install the certificate"):
        SiteKeys.load(ready.site)


def test_the_coordinator_of_another_study_is_not_loaded(ready: Parties, tmp_path: Path):
    make_authority(tmp_path / "measles", "measles", "127.0.0.1")
    pin(ready.site, (tmp_path / "measles" / "coordinator.crt").read_bytes(), replace=True)
    with refused("coordinator.crt is of the study 'measles', not of 'malaria'; ask the coordinator"):
        SiteKeys.load(ready.site)


def test_a_fingerprint_can_be_read_out(parties: Parties):
    pem = parties.coordinator_certificate()
    found = pin(parties.site, pem)
    assert found == fingerprint(pem)
    assert re.fullmatch("[0-9a-f]{4}( [0-9a-f]{4}){15}", found)
    assert bytes.fromhex(found) == certificate_of(pem).fingerprint(hashes.SHA256())


def test_another_certificate_is_pinned_only_to_replace_the_first(ready: Parties):
    first = ready.coordinator_certificate()
    renew_coordinator(ready.coordinator, "127.0.0.1", 90)
    second = ready.coordinator_certificate()
    assert pin(ready.site, first) == fingerprint(first)
    with refused(f"another certificate is pinned: {fingerprint(first)}. Ask the coordinator by telephone"):
        pin(ready.site, second)
    assert SiteKeys.load(ready.site).coordinator == first
    assert pin(ready.site, second, replace=True) == fingerprint(second) != fingerprint(first)
    assert SiteKeys.load(ready.site).coordinator == second


ONE_HOST = "the certificate does not name exactly one host; ask the coordinator for its own."


@pytest.mark.parametrize(
    ("certificate", "sentence"),
    [
        (self_signed(names=()), ONE_HOST),
        (self_signed(names=[x509.DNSName("a.org"), x509.DNSName("b.org")]), ONE_HOST),
        (self_signed(names=[x509.RFC822Name("example.org")]), ONE_HOST),
        (self_signed(names=[x509.DNSName("*.example.org")]), "'*.example.org' is no host"),
        (self_signed(purposes=[CLIENT]), "this is not the certificate of a coordinator; check which file"),
        (self_signed(purposes=[SERVER, CLIENT]), "this is not the certificate of a coordinator"),
        (self_signed(purposes=()), "this is not the certificate of a coordinator"),
        (self_signed(authority=True), "this is not the certificate of a coordinator"),
        (self_signed(authority=None), "this is not the certificate of a coordinator"),
        (b"-----BEGIN CERTIFICATE-----\n", f"the certificate {UNREADABLE}"),
        (b"\n" * 17_000 + self_signed(), "the certificate has more than 16384 bytes"),
    ],
)
def test_a_wrong_certificate_is_not_pinned(tmp_path: Path, certificate: bytes, sentence: str):
    with refused(sentence):
        pin(tmp_path / "site", certificate)
    assert not (tmp_path / "site").exists()


def test_a_coordinator_is_not_pinned_before_its_time(parties: Parties, days_later):
    days_later(-1)
    with refused("the certificate of the coordinator is not valid yet; check this machine's clock."):
        pin(parties.site, parties.coordinator_certificate())


def test_only_the_first_certificate_of_a_file_is_kept(ready: Parties):
    """gRPC would trust every certificate in the file."""
    first, other = ready.coordinator_certificate(), self_signed()
    pin(ready.site, b"For you:\n" + first + other)
    assert (ready.site / "coordinator.crt").read_bytes() == first
    (ready.site / "coordinator.crt").write_bytes(first + other)
    assert SiteKeys.load(ready.site).coordinator == first
    install(ready.site, (ready.site / "site.crt").read_bytes() + other)
    assert other not in (ready.site / "site.crt").read_bytes()


# Files


def test_folders_and_files_are_for_their_owner_alone(tmp_path: Path):
    before = os.umask(0)
    try:
        parties = make_parties(tmp_path)
        install(parties.site, parties.enroll_and_sign())
        pin(parties.site, parties.coordinator_certificate())
    finally:
        os.umask(before)
    for folder in (parties.coordinator, parties.site):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}
    assert {path.name for path in parties.site.iterdir()} == {
        *("site.key", "site.csr", "site.crt", "coordinator.crt"),
    }


def test_private_keys_are_in_their_files_only(ready: Parties):
    """Neither as text, nor as the number that they are, nor in what is printed."""
    request = enroll(ready.site, "north", "malaria")
    _, pem = sign(ready.coordinator, request, HOLDERS)
    loaded = SiteKeys.load(ready.site)
    public = [request, pem, loaded.certificate, loaded.coordinator]
    files = [path for folder in (ready.coordinator, ready.site) for path in folder.iterdir()]
    public += [path.read_bytes() for path in files if path.suffix != ".key"]
    private = [path for path in files if path.suffix == ".key"]
    assert len(private) == 3
    assert "PRIVATE" not in repr(loaded)
    for path in private:
        number = key_of(path).private_numbers().private_value.to_bytes(32, "big")
        lines = path.read_bytes().splitlines()[1:-1]
        for content in public:
            assert b"PRIVATE" not in content
            assert number not in content
            assert number.hex().encode() not in content.lower()
            assert not any(line in content for line in lines)
            for block in re.findall(rb"-----BEGIN [A-Z ]+-----(.*?)-----END", content, re.DOTALL):
                assert number not in base64.b64decode(block)


@pytest.mark.parametrize("mode", [0o640, 0o604])
def test_a_key_that_others_may_read_is_refused(ready: Parties, mode: int):
    (ready.site / "site.key").chmod(mode)
    for use in (SiteKeys.load, lambda folder: enroll(folder, "north", "malaria")):
        with refused("site.key may be read by other users; take that right away: chmod 600"):
            use(ready.site)
    (ready.coordinator / "authority.key").chmod(mode)
    with refused("authority.key may be read by other users"):
        renew_coordinator(ready.coordinator, "example.org")


@pytest.mark.parametrize("file", ["site.crt", "coordinator.crt"])
def test_a_file_that_others_may_change_is_refused(ready: Parties, file: str):
    (ready.site / file).chmod(0o644)
    SiteKeys.load(ready.site)
    (ready.site / file).chmod(0o622)
    with refused(f"{file} may be written by other users"):
        SiteKeys.load(ready.site)


def test_a_list_that_others_may_change_is_refused(ready: Parties):
    (ready.coordinator / "revoked.txt").chmod(0o666)
    with refused("revoked.txt may be written by other users"):
        ready.verifier()
    with refused("revoked.txt may be written by other users"):
        revoke(ready.coordinator, "north")


def test_a_folder_that_others_may_change_is_refused(ready: Parties, tmp_path: Path):
    ready.site.chmod(0o777)
    with refused("site may be written by other users"):
        SiteKeys.load(ready.site)
    open_folder = tmp_path / "open"
    open_folder.mkdir()
    open_folder.chmod(0o777)
    with refused("open may be written by other users"):
        make_authority(open_folder, "malaria", "example.org")
    assert not list(open_folder.iterdir())


@pytest.mark.parametrize(
    ("file", "use"),
    [
        ("site.key", SiteKeys.load),
        ("coordinator.crt", SiteKeys.load),
        ("site.csr", lambda folder: enroll(folder, "north", "malaria")),
    ],
)
def test_links_are_neither_read_nor_written(ready: Parties, tmp_path: Path, file: str, use):
    elsewhere = (ready.site / file).rename(tmp_path / "elsewhere")
    (ready.site / file).symlink_to(elsewhere)
    before = elsewhere.read_bytes()
    with refused(f"{file} is a link; put what it points to in its place"):
        use(ready.site)
    assert elsewhere.read_bytes() == before


def test_files_of_another_user_are_refused(ready: Parties, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with refused("belongs to another user"):
        SiteKeys.load(ready.site)


def test_a_folder_in_the_place_of_a_file_is_explained(parties: Parties):
    (parties.site / "site.key").mkdir(parents=True, mode=0o700)
    (parties.site / "site.key").chmod(0o700)
    with refused("site.key cannot be used: Is a directory; correct that first."):
        enroll(parties.site, "north", "malaria")


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "site.key is damaged, or has a password; restore it from its backup."),
        (
            key_pem(ec.generate_private_key(ec.SECP256R1()), BestAvailableEncryption(b"secret")),
            "site.key is damaged, or has a password",
        ),
        (key_pem(ec.generate_private_key(ec.SECP384R1())), WRONG_KEY),
        (key_pem(ed25519.Ed25519PrivateKey.generate()), WRONG_KEY),
    ],
)
def test_a_wrong_key_is_refused_and_kept(ready: Parties, content: bytes, sentence: str):
    (ready.site / "site.key").write_bytes(content)
    for use in (SiteKeys.load, lambda folder: enroll(folder, "north", "malaria")):
        with refused(sentence):
            use(ready.site)
    assert (ready.site / "site.key").read_bytes() == content


def test_a_failed_write_leaves_the_file_as_it_was(ready: Parties, monkeypatch: pytest.MonkeyPatch):
    before = {path: path.read_bytes() for path in ready.coordinator.iterdir()}

    def fail(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with refused("revoked.txt cannot be used: No space left on device; correct that first."):
        revoke(ready.coordinator, "north")
    assert {path: path.read_bytes() for path in ready.coordinator.iterdir()} == before


# Bytes of anybody


@dataclass(frozen=True)
class Targets:
    """Everything that reads bytes which somebody has sent, and real examples of them."""

    parties: Parties
    verifier: CertificateVerifier
    examples: tuple[tuple[str, bytes], ...]

    def try_all(self, content: bytes) -> None:
        for use in (
            lambda: sign(self.parties.coordinator, content, HOLDERS, renew=True),
            lambda: self.verifier.holder_of(content),
            lambda: install(self.parties.site, content),
            lambda: pin(self.parties.site, content),
            lambda: fingerprint(content),
        ):
            with suppress(InvalidKeys):
                use()


@pytest.fixture(scope="module")
def targets(tmp_path_factory: pytest.TempPathFactory) -> Targets:
    parties = make_parties(tmp_path_factory.mktemp("targets"))
    certificate = parties.enroll_and_sign()
    examples = (
        ("CERTIFICATE REQUEST", (parties.site / "site.csr").read_bytes()),
        ("CERTIFICATE", certificate),
        ("CERTIFICATE", parties.coordinator_certificate()),
    )
    return Targets(parties, parties.verifier(), examples)


@given(content=st.binary(max_size=300))
def test_random_bytes_are_refused(targets: Targets, content: bytes):
    targets.try_all(content)
    targets.try_all(pem_of(content, "CERTIFICATE"))
    targets.try_all(pem_of(content, "CERTIFICATE REQUEST"))


@given(data=st.data())
def test_damaged_text_raises_nothing_else(targets: Targets, data: st.DataObject):
    _, pem = data.draw(st.sampled_from(targets.examples))
    start = data.draw(st.integers(0, len(pem)))
    end = data.draw(st.integers(start, len(pem)))
    targets.try_all(pem[:start] + data.draw(st.binary(max_size=8)) + pem[end:])
    targets.try_all(pem[:start])


@given(data=st.data())
def test_damaged_certificates_and_requests_raise_nothing_else(targets: Targets, data: st.DataObject):
    """The bytes inside the text are changed, so that the damage reaches the parsers of names, keys and extensions."""
    kind, pem = data.draw(st.sampled_from(targets.examples))
    der = bytearray(base64.b64decode(b"".join(pem.splitlines()[1:-1])))
    for _ in range(data.draw(st.integers(1, 3))):
        der[data.draw(st.integers(0, len(der) - 1))] = data.draw(st.integers(0, 255))
    targets.try_all(pem_of(bytes(der), kind))


def test_a_change_of_any_signed_byte_of_a_certificate_is_refused_by_the_verifier(targets: Targets):
    """Bytes around the signature are not signed, and some can change; neither names, key nor serial are there."""
    kind, pem = targets.examples[1]
    der, signed = certificate_of(pem).public_bytes(Encoding.DER), certificate_of(pem).tbs_certificate_bytes
    first = der.index(signed)
    for place in range(first, first + len(signed)):
        changed = der[:place] + bytes([der[place] ^ 1]) + der[place + 1 :]
        with pytest.raises(InvalidKeys):
            targets.verifier.holder_of(pem_of(changed, kind))


def test_huge_files_are_refused_before_they_are_parsed(targets: Targets):
    for _, pem in targets.examples:
        huge = pem * (20_000_000 // len(pem))
        for use in (
            lambda content: sign(targets.parties.coordinator, content, HOLDERS),
            targets.verifier.holder_of,
            lambda content: install(targets.parties.site, content),
            lambda content: pin(targets.parties.site, content),
            fingerprint,
        ):
            with refused("has more than 16384 bytes; check which file it is."):
                use(huge)


# Real TLS


@contextmanager
def serving(key: bytes, certificate: bytes, authority: bytes, verifier: CertificateVerifier) -> Iterator[int]:
    """A gRPC server that says which holder is calling; its port."""

    def who_am_i(_request: bytes, context: grpc.ServicerContext) -> bytes:
        [pem] = context.auth_context()["x509_pem_cert"]
        try:
            return verifier.holder_of(pem).encode()
        except InvalidKeys as error:
            context.abort(grpc.StatusCode.PERMISSION_DENIED, str(error))

    handlers = {"WhoAmI": grpc.unary_unary_rpc_method_handler(who_am_i)}
    server = grpc.server(ThreadPoolExecutor(2))
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("test", handlers)])
    credentials = grpc.ssl_server_credentials([(key, certificate)], authority, require_client_auth=True)
    port = server.add_secure_port("127.0.0.1:0", credentials)
    server.start()
    try:
        yield port
    finally:
        server.stop(0).wait()


def call(port: int, trusted: bytes, key: bytes | None, certificate: bytes | None) -> str:
    credentials = grpc.ssl_channel_credentials(trusted, key, certificate)
    with grpc.secure_channel(f"127.0.0.1:{port}", credentials) as channel:
        return channel.unary_unary("/test/WhoAmI")(b"", timeout=20).decode()


def coordinator_files(parties: Parties) -> tuple[bytes, bytes, bytes]:
    files = ("coordinator.key", "coordinator.crt", "authority.crt")
    return tuple((parties.coordinator / file).read_bytes() for file in files)


def unavailable(sentence: str):
    return pytest.raises(grpc.RpcError, match=f"UNAVAILABLE(.|\n)*{sentence}")


def test_a_site_reaches_the_pinned_coordinator_until_it_is_revoked(ready: Parties):
    site = SiteKeys.load(ready.site)
    with serving(*coordinator_files(ready), ready.verifier()) as port:
        assert call(port, site.coordinator, site.key, site.certificate) == "north"
        revoke(ready.coordinator, "north")
        with pytest.raises(grpc.RpcError, match="the certificate of north was revoked"):
            call(port, site.coordinator, site.key, site.certificate)


def test_a_site_refuses_another_certificate_of_the_same_authority_for_the_same_host(ready: Parties):
    site = SiteKeys.load(ready.site)
    renew_coordinator(ready.coordinator, "127.0.0.1", 90)
    with serving(*coordinator_files(ready), ready.verifier()) as port:
        with unavailable("CERTIFICATE_VERIFY_FAILED"):
            call(port, site.coordinator, site.key, site.certificate)
        pin(ready.site, ready.coordinator_certificate(), replace=True)
        renewed = SiteKeys.load(ready.site)
        assert call(port, renewed.coordinator, renewed.key, renewed.certificate) == "north"


def test_a_site_refuses_a_certificate_that_the_pinned_one_has_signed(ready: Parties):
    """A pinned certificate is trusted itself, not as an authority."""
    site, pinned = SiteKeys.load(ready.site), certificate_of(ready.coordinator_certificate())
    key = ec.generate_private_key(ec.SECP256R1())
    signer = key_of(ready.coordinator / "coordinator.key")
    names = [x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    signed = certificate_pem(subject("127.0.0.1"), key.public_key(), signer, pinned.subject, [SERVER], names)
    chain = signed + ready.coordinator_certificate()
    authority = (ready.coordinator / "authority.crt").read_bytes()
    with (
        serving(key_pem(key), chain, authority, ready.verifier()) as port,
        unavailable("CERTIFICATE_VERIFY_FAILED"),
    ):
        call(port, site.coordinator, site.key, site.certificate)


def test_a_site_refuses_the_pinned_coordinator_under_another_address(ready: Parties):
    renew_coordinator(ready.coordinator, "example.org", 90)
    pin(ready.site, ready.coordinator_certificate(), replace=True)
    site = SiteKeys.load(ready.site)
    with (
        serving(*coordinator_files(ready), ready.verifier()) as port,
        unavailable("Hostname Verification Check failed"),
    ):
        call(port, site.coordinator, site.key, site.certificate)


def test_a_coordinator_refuses_sites_without_a_certificate_of_its_authority(ready: Parties, tmp_path: Path):
    site = SiteKeys.load(ready.site)
    stranger = Parties(make_parties(tmp_path / "others").coordinator, tmp_path / "stranger")
    foreign = stranger.enroll_and_sign()
    with serving(*coordinator_files(ready), ready.verifier()) as port:
        with unavailable(""):
            call(port, site.coordinator, None, None)
        with unavailable(""):
            call(port, site.coordinator, (stranger.site / "site.key").read_bytes(), foreign)
