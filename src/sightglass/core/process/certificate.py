"""The certificate of a server with TLS: from files, or made here.

One that is made here is signed by itself. Browsers warn of it, and people compare its fingerprint with the one that the
server printed. For a port that the user chose it is stored, as the links are, and so accepted only once.
"""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import ipaddress
import os
import ssl
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from sightglass.core.errors import MissingExtraError, TransportError

from .files import write_private

VALID: Final = datetime.timedelta(days=397)  # browsers take no certificate for longer than 398 days
RENEWED: Final = datetime.timedelta(days=30)  # a server hardly runs for longer than this
EARLIER: Final = datetime.timedelta(days=1)  # valid from yesterday: clocks differ


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """A certificate and its key, ready to be used.

    Attributes:
        context: What connections are encrypted with.
        fingerprint: The SHA-256 of the certificate, as browsers show it.
        self_made: Whether it was made here, so that browsers warn of it.
    """

    context: ssl.SSLContext = field(repr=False)
    fingerprint: str
    self_made: bool = False

    @classmethod
    def load(cls, certificate: Path, key: Path) -> Certificate:
        """Read a certificate, with those that it depends on after it, and its key.

        Raises:
            TransportError: The files cannot be read, or do not belong together.
        """
        try:
            return _certificate(certificate, key, self_made=False)
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            reason = error.strerror or error if isinstance(error, OSError) else error
            message = f"Expected a certificate and its key without a passphrase, in PEM, in {str(certificate)!r} and "
            raise TransportError(f"{message}{str(key)!r}: {reason}") from None

    @classmethod
    def make(cls, names: Iterable[str], *, stored: Path | None = None) -> Certificate:
        """Make a certificate for the names and addresses of a server.

        Args:
            names: The names and addresses.
            stored: A file in a folder that only this user can enter: the certificate in it is used if it is for these
                names and valid for long enough, else it is replaced.

        Raises:
            MissingExtraError: The package `cryptography` is not installed.
            OSError: The certificate cannot be written.
        """
        wanted = frozenset(name for name in names if name.isascii())  # certificates know no others
        if stored is not None and _is_usable(stored, wanted):
            with contextlib.suppress(OSError, ValueError):
                return _certificate(stored, stored, self_made=True)
        with tempfile.TemporaryDirectory() as folder:  # of mode 0700; OpenSSL reads files only
            path = stored or Path(folder) / "page.pem"
            write_private(path, made(wanted))
            return _certificate(path, path, self_made=True)


def _certificate(certificate: Path, key: Path, *, self_made: bool) -> Certificate:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key, password=lambda: "")  # without this, OpenSSL asks at the terminal
    context.set_alpn_protocols(["http/1.1"])
    text = certificate.read_text()
    start = text.index("-----BEGIN CERTIFICATE-----")
    first, end, _ = text[start:].partition("-----END CERTIFICATE-----")
    digest = hashlib.sha256(ssl.PEM_cert_to_DER_cert(first + end)).digest()
    return Certificate(context=context, fingerprint=digest.hex(":").upper(), self_made=self_made)


def _is_usable(path: Path, names: frozenset[str]) -> bool:
    """Return whether the certificate in a file is for these names, and valid for long enough."""
    x509 = _x509()
    try:
        certificate = x509.load_pem_x509_certificate(path.read_bytes())
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (OSError, ValueError, x509.ExtensionNotFound):
        return False
    remaining = certificate.not_valid_after_utc - datetime.datetime.now(datetime.UTC)
    return {str(name.value) for name in found} == names and remaining > RENEWED


def made(names: Iterable[str], *, valid: datetime.timedelta = VALID) -> bytes:
    """Return a new key and a certificate for these names, in PEM.

    Raises:
        MissingExtraError: The package `cryptography` is not installed.
    """
    x509 = _x509()
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, f"sightglass {os.urandom(4).hex()}")])
    now = datetime.datetime.now(datetime.UTC)
    signed = (
        x509.CertificateBuilder(subject_name=name, issuer_name=name, public_key=key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - EARLIER)
        .not_valid_after(now - EARLIER + valid)
        .add_extension(x509.SubjectAlternativeName([_alternative(name) for name in sorted(names)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([x509.oid.ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(key, hashes.SHA256())
    )
    plain = serialization.NoEncryption()
    pem = serialization.Encoding.PEM
    written: bytes = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain) + signed.public_bytes(pem)
    return written


def _alternative(name: str) -> Any:
    x509 = _x509()
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _x509() -> Any:
    """Return the module of certificates.

    Raises:
        MissingExtraError: `cryptography` is not installed.
    """
    try:
        from cryptography import x509
    except ImportError:
        raise MissingExtraError("cryptography", extra="tls", purpose="A certificate made at the start") from None
    return x509
