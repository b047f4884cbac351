"""Will the others accept this kit? Asked before a site starts, and until the server has let it in.

A site's main process imports this module: it stays light.
"""

from __future__ import annotations

import json
import socket
import ssl
from datetime import UTC, datetime
from pathlib import Path

from hedgerow.errors import HedgerowError
from hedgerow.transport import HOST, NAME


class InvalidKit(HedgerowError):
    """A kit that the others will not accept."""


def check_certificate(kit: Path) -> datetime:
    """Until when the kit's certificate is good; raises with the reason if the others will not accept it."""
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature

    startup = kit / "startup"
    mine = next((path for path in (startup / "client.crt", startup / "server.crt") if path.is_file()), None)
    if mine is None:
        raise InvalidKit(f"{kit} is not a kit: it has no certificate.")
    certificate = x509.load_pem_x509_certificate(mine.read_bytes())
    root = x509.load_pem_x509_certificate((startup / "rootCA.pem").read_bytes())
    try:
        certificate.verify_directly_issued_by(root)
    except (InvalidSignature, ValueError, TypeError) as error:
        raise InvalidKit(f"{mine} is not of this network: it was not issued by its rootCA.pem.") from error
    now = datetime.now(UTC)
    for what, one in (("certificate", certificate), ("network's root certificate", root)):
        if not one.not_valid_before_utc <= now <= one.not_valid_after_utc:
            raise InvalidKit(
                f"the {what} is good from {one.not_valid_before_utc:%Y-%m-%d} to {one.not_valid_after_utc:%Y-%m-%d}, "
                "not today; ask the coordinator for a new kit (hedgerow network provision --renew)."
            )
    until: datetime = min(certificate.not_valid_after_utc, root.not_valid_after_utc)
    return until


def name_of(kit: Path) -> str:
    """The holder whose kit it is, by its certificate."""
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    path = kit / "startup" / "client.crt"
    try:
        subject = x509.load_pem_x509_certificate(path.read_bytes()).subject
    except (OSError, ValueError) as error:
        raise InvalidKit(f"{kit} is not the kit of a holder: it has no certificate.") from error
    names = [str(one.value) for one in subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    if len(names) != 1 or not NAME.fullmatch(names[0]):
        raise InvalidKit(f"{path} does not name a holder.")
    return names[0]


def server_of(kit: Path) -> tuple[str, int]:
    """Host and port of the server that a holder's kit is for."""
    path = kit / "startup" / "fed_client.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
        host, _, port = config["servers"][0]["service"]["target"].rpartition(":")
        if HOST.fullmatch(host) and 0 < int(port) < 2**16:
            return host, int(port)
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        pass
    raise InvalidKit(f"{path} does not say where the server is.")


def knock(kit: Path, seconds: float = 3.0) -> None:
    """See whether the server and a holder's kit accept each other; raises with the reason if they do not.

    Raises `OSError` if the server cannot be reached. FLARE tries again and again in all these cases, and says little.
    """
    startup = kit / "startup"
    host, port = server_of(kit)
    context = ssl.create_default_context(cafile=startup / "rootCA.pem")
    context.load_cert_chain(startup / "client.crt", startup / "client.key")
    try:
        with (
            socket.create_connection((host, port), timeout=10) as plain,
            context.wrap_socket(plain, server_hostname=host) as secure,
        ):
            secure.settimeout(seconds)
            # The server judges after our part of the handshake, and hangs up if it does not like what it saw.
            heard = secure.recv(1)
    except TimeoutError:
        return
    except ssl.SSLCertVerificationError as error:
        raise InvalidKit(
            f"{host}:{port} is not the server of this kit's network: {error.verify_message}."
        ) from error
    except (ssl.SSLError, ConnectionResetError):
        heard = b""
    if not heard:
        raise InvalidKit(
            f"the server {host}:{port} does not accept this kit's certificate; ask the coordinator for a new kit."
        )
