#!/bin/bash
# The development environment in a virtual environment: setup.sh FOLDER. Run by make; safe to run again.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
folder=${1:-.venv}

fail() { echo "setup: $*" >&2; exit 3; }

python=
for candidate in python3 python3.14 python3.13 python3.12 python3.11; do
    if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
        python=$candidate
        break
    fi
done
[[ -n "$python" ]] || fail "no Python of 3.11 or later: install one (found: $(python3 --version 2>&1 || true))"
if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    [[ $EUID == 0 ]] && command -v apt-get >/dev/null ||
        fail "this Python has no venv: apt-get install python3-venv"
    echo "setup: installing python3-venv" >&2
    apt-get -qq update && apt-get -qq install --yes python3-venv >/dev/null
fi

echo "setup: $folder, with $("$python" --version)" >&2
[[ -x "$folder/bin/python" ]] || "$python" -m venv "$folder"
"$folder/bin/python" -m pip install --quiet --upgrade 'pip>=25.1'      # the first with dependency groups
"$folder/bin/python" -m pip install --quiet --editable . --group dev
