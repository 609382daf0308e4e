#!/usr/bin/env bash
# Build the sdist and from it the wheel, look into the wheel, install it into an empty environment and run it there.
#
#   [PYTHON=python3] scripts/check-package.sh BUILDER      BUILDER: an interpreter that has `build`
#
# Everything is made in one temporary folder, which is removed at the end.
set -euo pipefail

builder=$1
python=${PYTHON:-python3}
root=$(cd "$(dirname "$0")/.." && pwd -P)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export PIP_DISABLE_PIP_VERSION_CHECK=1

# setuptools leaves its own traces beside the sources, so it gets a copy to work on: what git knows, as it is on the disk.
mkdir "$scratch/source"
(cd "$root" && git ls-files -z --cached --others --exclude-standard | tar --null --ignore-failed-read -cf - -T -) \
    | tar -xf - -C "$scratch/source"
case $builder in /*) ;; *) builder=$root/$builder ;; esac

echo "package: building sdist and wheel"
"$builder" -m build --outdir "$scratch/dist" "$scratch/source" >"$scratch/build.log" 2>&1 || {
    cat "$scratch/build.log"
    exit 1
}
ls -1 "$scratch/dist"

"$builder" "$root/scripts/check_wheel.py" "$scratch"/dist/*.whl "$root"

echo "package: installing the wheel into an empty environment"
"$python" -m venv "$scratch/empty"
"$scratch/empty/bin/pip" install --quiet "$scratch"/dist/*.whl

mkdir "$scratch/elsewhere" "$scratch/elsewhere/notes"
cd "$scratch/elsewhere"
printf 'one\ntwo\n' >notes/a.txt
printf 'print("three")\n' >notes/b.py

export XDG_STATE_HOME=$scratch/state
echo "package: running it away from the repository"
"$scratch/empty/bin/python" -I -c 'import greenroom, greenroom.actors, greenroom.supervision, greenroom.transport'
"$scratch/empty/bin/python" -I -c 'from importlib.metadata import entry_points; entry_points(group="pytest11")["pytest_greenroom"]'
"$scratch/empty/bin/greenroom" --version
"$scratch/empty/bin/greenroom" demo --yes notes </dev/null
echo "package: ok"
