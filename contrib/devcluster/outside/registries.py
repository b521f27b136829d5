"""How this host reaches Debian's and Python's packages: the build of the root folder has to go the same way."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

DEBIAN = "http://deb.debian.org/debian"

_PROXIES = ("http_proxy", "https_proxy", "no_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY")
# Where and how pip looks for packages. What else may be set (targets, constraints, users) is about this host's Python.
_PIP_PLACES = ("INDEX_URL", "EXTRA_INDEX_URL", "FIND_LINKS", "NO_INDEX")
_PIP_NETWORK = ("TRUSTED_HOST", "PROXY", "TIMEOUT", "DEFAULT_TIMEOUT", "RETRIES")
_PIP = (*_PIP_PLACES, *_PIP_NETWORK)
_CA_VARIABLES = ("PIP_CERT", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")
_CA_DEFAULT = Path("/etc/ssl/certs/ca-certificates.crt")
_ONE_LINE = re.compile(r"^deb\s+(?:\[[^]]*\]\s+)?(?P<uri>\S+)\s+(?P<suite>\S+)", re.MULTILINE)


def debian_mirror(apt: Path = Path("/etc/apt"), os_release: Path = Path("/etc/os-release")) -> str:
    """The mirror that this host itself is installed from if it is a Debian, else Debian's own."""
    release = _os_release(os_release)
    if release.get("ID") == "debian":
        for uri, suites in _apt_sources(apt):
            if uri.startswith(("http://", "https://")) and release.get("VERSION_CODENAME", "testing") in suites:
                return uri.rstrip("/")
    return DEBIAN


def ca_bundle() -> Path | None:
    """The certificates that this host's Python programs trust, where there is such a file."""
    named = (os.environ.get(variable) for variable in _CA_VARIABLES)
    return next((path for path in (*(Path(name) for name in named if name), _CA_DEFAULT) if path.is_file()), None)


def proxy_environment() -> dict[str, str]:
    """Proxy settings of the environment, and apt's own if it has any."""
    found = {name: os.environ[name] for name in _PROXIES if name in os.environ}
    for scheme in ("http", "https"):
        configured = _output("apt-config", "shell", "proxy", f"Acquire::{scheme}::Proxy").strip()
        value = configured.removeprefix("proxy='").removesuffix("'")
        if value and value != "DIRECT":
            found.setdefault(f"{scheme}_proxy", value)
    return found


def pip_environment() -> dict[str, str]:
    """pip's settings about where packages come from, without those that name folders of this host."""
    settings = _pip_config()
    settings.update({key: os.environ[f"PIP_{key}"] for key in _PIP if f"PIP_{key}" in os.environ})
    remote = {key: " ".join(word for word in value.split() if _is_remote(word)) for key, value in settings.items()}
    return {f"PIP_{key}": value for key, value in remote.items() if value}


def _pip_config() -> dict[str, str]:
    """What pip's configuration files say, the more specific ones last."""
    settings = {}
    for line in _output(sys.executable, "-m", "pip", "config", "list").splitlines():
        name, _, value = line.partition("=")
        section, _, option = name.rpartition(".")
        key = option.upper().replace("-", "_")
        if section in ("global", "install", "download") and key in _PIP:
            settings[key] = str(ast.literal_eval(value))
    return settings


def _is_remote(word: str) -> bool:
    return not word.startswith(("/", ".", "~", "file:"))


def _os_release(path: Path) -> dict[str, str]:
    if not path.is_file():
        return {}
    pairs = (line.partition("=") for line in path.read_text(encoding="utf-8").splitlines())
    return {name: value.strip('"') for name, _, value in pairs}


def _apt_sources(apt: Path) -> list[tuple[str, list[str]]]:
    """(URI, suites) of each source, from both of apt's formats."""
    found = []
    folder = apt / "sources.list.d"
    for path in (apt / "sources.list", *sorted(folder.glob("*.list"))):
        if path.is_file():
            text = path.read_text(errors="replace")
            found += [(match["uri"], [match["suite"]]) for match in _ONE_LINE.finditer(text)]
    for path in sorted(folder.glob("*.sources")):
        for stanza in re.split(r"\n\s*\n", path.read_text(errors="replace")):
            fields = dict(re.findall(r"^(\w+):[ \t]*(.+)$", stanza, re.MULTILINE))
            found += [(uri, fields.get("Suites", "").split()) for uri in fields.get("URIs", "").split()]
    return found


def _output(*argv: str) -> str:
    """What a program prints; nothing if it is missing or fails."""
    try:
        return subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return ""
