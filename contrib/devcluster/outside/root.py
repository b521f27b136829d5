"""Builds the root folder that every cage has as its read-only base: Debian testing with Slurm, pyslurm and a venv.

A root is built beside its place and renamed when it is complete, so that one with the right name is always whole.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from outside import recipe, registries
from outside.errors import CannotRunError
from outside.progress import say, step

_HERE = Path(__file__).resolve().parent.parent
_ENTER = _HERE / "chroot.sh"
_PARTIAL = "partial-"
_KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
_LOG_LINES = 15

VENV_PYTHON = "/opt/venv/bin/python"
REPO = "/opt/hyp-submit"
"""Where the checkout is mounted in a cage."""

# The checkout is mounted read-only; its bytecode goes here, beside that of everything else.
_BYTECODE = "/var/cache/pycache"
_PTH = f'{REPO}\nimport sys; sys.pycache_prefix = "{_BYTECODE}"\n'
_COMMAND = f'#!/bin/sh\nexec {VENV_PYTHON} -m hyp_submit "$@"\n'

_DPKG_OPTIONS = """\
force-unsafe-io
path-exclude=/usr/share/doc/*
path-exclude=/usr/share/man/*
path-exclude=/usr/share/locale/*
"""
# A testing release that looks expired is better than none: the folder is for tests, and rebuilt at will.
_APT = ("apt-get", "-q", "-y", "-o", "Acquire::Check-Valid-Until=false", "--no-install-recommends")


def cache_folder() -> Path:
    """Where root folders are kept."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "hyp-submit" / "devcluster"


def path_of(wanted: recipe.Recipe) -> Path:
    """Where the root of this recipe is, or will be."""
    return cache_folder() / f"root-{wanted.key}"


def ensure(wanted: recipe.Recipe) -> Path:
    """The root of this recipe, built if it is not there yet. Raises `CannotRunError`."""
    root = path_of(wanted)
    if not root.is_dir():
        with locked():
            if not root.is_dir():  # another process may have built it while this one waited
                _build(wanted, root)
    return root


@contextmanager
def locked() -> Iterator[None]:
    """Only one process builds or removes roots at a time."""
    cache = cache_folder()
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("waiting for another devcluster that builds the root folder")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def remove(root: Path) -> None:
    """Take a root away; to be called with `locked`. One that is half removed does not keep its name."""
    doomed = root.with_name(f"{_PARTIAL}{root.name}-removed")
    root.rename(doomed)
    shutil.rmtree(doomed)


def cached() -> list[Path]:
    """Every complete root."""
    return sorted(cache_folder().glob("root-*"))


def remove_partial() -> None:
    """Take away what interrupted builds left; to be called with `locked`."""
    for folder in cache_folder().glob(f"{_PARTIAL}*"):
        shutil.rmtree(folder)


def _build(wanted: recipe.Recipe, root: Path) -> None:
    if any(map(str.isspace, str(root))):
        raise CannotRunError(
            f"debootstrap cannot build in {root}, for the space in it: set XDG_CACHE_HOME to another folder"
        )
    say(f"building the root folder {root} (some minutes, once)")
    remove_partial()
    _ensure_debootstrap()
    partial = root.with_name(f"{_PARTIAL}{wanted.key}")
    partial.mkdir(mode=0o755)
    try:
        _Build(wanted, partial, root.parent / "build.log").run()
        partial.rename(root)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def _ensure_debootstrap() -> None:
    missing = [] if shutil.which("debootstrap") else ["debootstrap"]
    if not _KEYRING.exists():
        missing.append("debian-archive-keyring")
    if not missing:
        return
    if not shutil.which("apt-get"):
        raise CannotRunError(
            f"{' and '.join(missing)} missing, and there is no apt-get to install with: "
            "install it with this system's own package manager"
        )
    with step(f"installing {' and '.join(missing)} on this machine with apt-get"):
        _install_on_host(missing)


def _install_on_host(missing: Sequence[str]) -> None:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for arguments in (["update"], ["-y", "--no-install-recommends", "install", *missing]):
        argv = ["apt-get", "-q", *arguments]
        done = subprocess.run(
            argv, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise CannotRunError(
                f"{' '.join(argv)} failed: {done.stderr.strip()}: install {' and '.join(missing)} by hand"
            )


@dataclass(frozen=True, slots=True)
class _Build:
    """One build: `root` is the unfinished folder, `log` takes what the tools print."""

    wanted: recipe.Recipe
    root: Path
    log: Path

    def run(self) -> None:
        self.log.write_bytes(b"")
        with step(f"base system, Debian {self.wanted.suite}"):
            self._debootstrap()
        with step("Slurm, compiler and Python"):
            self._install_packages()
        slurm = self._slurm_release()
        with step("Python packages"):
            self._install_requirements()
        with step(f"pyslurm {self.wanted.pyslurm} for Slurm {slurm}"):
            self._install_pyslurm(slurm)
        with step("finishing"):
            self._finish()

    def _debootstrap(self) -> None:
        # The host's debootstrap may be older than the suite, but each has a script for sid, and it does for testing.
        script = "/usr/share/debootstrap/scripts/sid"
        options = ("--variant=minbase", "--include=ca-certificates", f"--keyring={_KEYRING}")
        argv = ("debootstrap", *options, self.wanted.suite, str(self.root), registries.debian_mirror(), script)
        self._call(("--mount-proc", "--", *argv), {**_plain_environment(), **registries.proxy_environment()})

    def _install_packages(self) -> None:
        self._write("/usr/sbin/policy-rc.d", "#!/bin/sh\nexit 101\n", mode=0o755)  # no service may be started
        self._write("/etc/dpkg/dpkg.cfg.d/devcluster", _DPKG_OPTIONS)
        bundle = registries.ca_bundle()
        if bundle:
            self._write("/build/ca.pem", bundle.read_text(encoding="utf-8"))
        self._inside(*_APT, "update")
        self._inside(*_APT, "install", *self.wanted.packages)
        for name, number in recipe.USERS.items():
            self._inside("useradd", "--create-home", "--user-group", f"--uid={number}", "--shell=/bin/bash", name)

    def _slurm_release(self) -> str:
        """`26.05` and the like. Raises if pyslurm is not known to compile against it."""
        header = (self.root / "usr/include/slurm/slurm_version.h").read_text(encoding="utf-8")
        words = next(line for line in header.splitlines() if line.startswith("#define SLURM_VERSION_NUMBER ")).split()
        number = int(words[2], 16)
        release = f"{number >> 16 & 0xFF}.{number >> 8 & 0xFF:02}"
        if release not in recipe.PYSLURM_FOR_SLURM:
            known = ", ".join(recipe.PYSLURM_FOR_SLURM)
            raise CannotRunError(
                f"Debian {self.wanted.suite} has Slurm {release}, but pyslurm {self.wanted.pyslurm} is known to work "
                f"with {known} only: extend PYSLURM_FOR_SLURM in {recipe.__file__}"
            )
        return release

    def _install_requirements(self) -> None:
        self._inside("python3", "-m", "venv", "/opt/venv")
        self._pip("install", "--no-compile", *self.wanted.requirements, *recipe.BUILD_REQUIREMENTS)

    def _install_pyslurm(self, slurm: str) -> None:
        name = f"pyslurm-{self.wanted.pyslurm}"
        source = "--no-deps", "--no-build-isolation"
        self._pip("download", *source, "--no-binary=:all:", "--dest=/build", f"pyslurm=={self.wanted.pyslurm}")
        self._inside("tar", "--extract", "--no-same-owner", f"--file=/build/{name}.tar.gz", "--directory=/build")
        if not self.wanted.pyslurm.startswith(slurm):
            # Its setup refuses any Slurm but the one that its version names.
            major, minor = (int(part) for part in slurm.split("."))
            self._write(f"/build/{name}/pyslurm/version.py", f'__version__ = "{major}.{minor}.0"\n')
        self._write("/build/setup.cfg", f"[build_ext]\nparallel = {os.cpu_count() or 1}\n")
        library = next((self.root / "usr/lib").glob("*/slurm-wlm"))
        self._pip(
            "install", "--no-compile", *source, f"/build/{name}",
            CFLAGS=" ".join(("-O0", "-g0", "-w", *recipe.PYSLURM_FOR_SLURM[slurm])),
            DIST_EXTRA_CONFIG="/build/setup.cfg",
            PYSLURM_BUILD_JOBS=str(os.cpu_count() or 1),
            SLURM_INCLUDE_DIR="/usr/include",
            SLURM_LIB_DIR=f"/{library.relative_to(self.root)}",
        )  # fmt: skip

    def _finish(self) -> None:
        packages = next((self.root / "opt/venv/lib").glob("python3*")) / "site-packages"
        (packages / "hyp-submit.pth").write_text(_PTH, encoding="utf-8")
        self._write("/usr/local/bin/hyp-submit", _COMMAND, mode=0o755)
        library = f"/usr/lib/{packages.parent.name}"
        self._inside(
            VENV_PYTHON, "-m", "compileall", "-q", "-j0", library, f"/{packages.relative_to(self.root)}",
            PYTHONPYCACHEPREFIX=_BYTECODE,
        )  # fmt: skip
        self._inside("install", "--directory", "--mode=0777", f"{_BYTECODE}{REPO}")
        self._inside(*_APT, "clean")
        for leftover in ("build", "var/lib/apt/lists"):
            shutil.rmtree(self.root / leftover)
        (self.root / "etc/resolv.conf").unlink(missing_ok=True)

    def _write(self, path: str, text: str, mode: int = 0o644) -> None:
        target = self.root / path.removeprefix("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
        target.chmod(mode)

    def _pip(self, *arguments: str, **environment: str) -> None:
        self._inside(VENV_PYTHON, "-m", "pip", *arguments, **environment)

    def _inside(self, *argv: str, **environment: str) -> None:
        """Run a program in the root, with this host's way to the registries."""
        certificates = {}
        if (self.root / "build/ca.pem").exists():
            certificates = dict.fromkeys(("PIP_CERT", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"), "/build/ca.pem")
        self._call(
            ("--", "sh", str(_ENTER), str(self.root), *argv),
            {
                **_plain_environment(),
                **registries.proxy_environment(),
                **registries.pip_environment(),
                **certificates,
                **environment,
            },
        )

    def _call(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        """Run `command` (options of unshare, `--`, argv) in namespaces that end when this process does, in any way."""
        argv = ("setpriv", "--pdeathsig=KILL", "unshare", "--mount", "--pid", "--fork", "--kill-child", *command)
        with self.log.open("ab") as log:
            process = subprocess.Popen(argv, env=dict(environment), stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            try:
                code = process.wait()
            except BaseException:
                process.kill()
                process.wait()
                raise
        if code != 0:
            tail = "\n".join(self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-_LOG_LINES:])
            program = command[command.index("--") + 1 :]
            shown = program[3:] if program[0] == "sh" else program
            raise CannotRunError(
                f"{' '.join(shown[:4])} … failed: if it is for the network, look at this machine's settings of proxies "
                f"and mirrors; the log {self.log} ends:\n{tail}"
            )


def _plain_environment() -> dict[str, str]:
    return {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": "/root",
        "LANG": "C.UTF-8",
        "DEBIAN_FRONTEND": "noninteractive",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_NO_CACHE_DIR": "1",
        "PIP_ROOT_USER_ACTION": "ignore",
    }
