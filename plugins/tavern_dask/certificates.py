"""Whether the address of a scheduler and the certificates for it can be right: Dask names no file, and asks for the
password of a key at the terminal."""

from __future__ import annotations

import ssl
from pathlib import Path

from cryptography.x509 import load_pem_x509_certificate
from distributed.comm import CommClosedError, get_address_host_port
from distributed.security import Security

from tavern_host import PluginContext, clock
from tavern_host.contracts.errors import Misconfigured, describe

_OWN = "extensions.tavern-dask."
_FILES = {"tlsCa": "tls_ca_file", "tlsCert": "tls_client_cert", "tlsKey": "tls_client_key"}


def security_of(address: str, context: PluginContext) -> Security | None:
    """Return the certificates that are set. Raises `Misconfigured` where the address is none, and where there are only
    some certificates, none for TLS, or such as cannot be used."""
    try:
        get_address_host_port(address)
    except ValueError as error:
        raise Misconfigured(f"{_OWN}scheduler is not such as tls://scheduler.example:8786, or local: {error}") from None
    files = {key: Path(path).expanduser().absolute() for key in _FILES if (path := context.settings.get(key))}
    if not files and not address.startswith(("tls:", "wss:")):
        return None
    if lacking := ", ".join(_OWN + key for key in _FILES if key not in files):
        raise Misconfigured(f"the certificates for the Dask cluster are not complete; not set: {lacking}")
    for key, path in files.items():
        try:
            content, tls = path.read_bytes(), ssl.create_default_context(cafile=files["tlsCa"])
            if key == "tlsCert" and (end := load_pem_x509_certificate(content).not_valid_after_utc) < clock.now():
                raise Misconfigured(f"{_OWN}{key}: {path} was valid until {end:%Y-%m-%d %H:%M} UTC")
            if key == "tlsKey":
                tls.load_cert_chain(files["tlsCert"], path, password="")  # a password would be asked for
        except (ssl.SSLError, ValueError):
            what = "no key of tlsCert in PEM, or has a password" if key == "tlsKey" else "no certificate in PEM"
            raise Misconfigured(f"{_OWN}{key}: {path} is {what}") from None
        except OSError as error:
            raise Misconfigured(f"{_OWN}{key}: {path} cannot be read: {error.strerror}") from None
    return Security(require_encryption=True, **{_FILES[key]: str(path) for key, path in files.items()})


def reason(error: BaseException) -> str:
    """Return why there is no connection."""
    need = "; both sides need TLS, with certificates of one authority, or neither"
    hint = need if isinstance(error, CommClosedError | ValueError | RuntimeError) else ""
    while isinstance(error.__cause__, Exception):
        error = error.__cause__
    is_late = isinstance(error, TimeoutError)
    return f"it does not answer in time ({_OWN}connectSeconds)" if is_late else describe(error) + hint
