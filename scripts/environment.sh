#!/usr/bin/env bash
# Make or refresh the project's own virtual environment.
#
#   scripts/environment.sh PYTHON FOLDER [EXTRA]
#
# Installs the project itself (editable), with the named extra if one is given. Needs Python >= 3.11 with venv, and a
# package index that pip can reach. The Makefile calls it when pyproject.toml is newer than the last installation.
set -euo pipefail

python=$1 folder=$2 extra=${3:-}

if ! command -v "$python" >/dev/null 2>&1; then
    echo "greenroom: no '$python' here. Install Python 3.11 or newer, or name one: make PYTHON=/path/to/python3 ..." >&2
    exit 1
fi
if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
    echo "greenroom needs Python 3.11 or newer; '$python' is $("$python" -V 2>&1 | cut -d' ' -f2)." >&2
    echo "Name another one: make PYTHON=python3.12 ..." >&2
    exit 1
fi
if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    echo "greenroom: '$python' can not make virtual environments (no venv or ensurepip)." >&2
    echo "On Debian and Ubuntu they are a package of their own: apt-get install python3-venv" >&2
    exit 1
fi

# A console script starts with the absolute path of its interpreter, so an environment that was moved or copied, or whose
# Python is gone, is made again.
if [ -e "$folder" ] && ! "$folder/bin/pip" --version >/dev/null 2>&1; then
    echo "greenroom: $folder does not work any more (moved, or its Python is gone); making it again"
    rm -rf "$folder"
fi
if [ ! -e "$folder" ]; then
    echo "greenroom: making $folder with $("$python" -V 2>&1)"
    "$python" -m venv "$folder"
fi

echo "greenroom: installing the project${extra:+ with its $extra tools} into $folder"
PIP_DISABLE_PIP_VERSION_CHECK=1 "$folder/bin/pip" install --quiet --editable ".${extra:+[$extra]}"
