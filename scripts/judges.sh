#!/usr/bin/env bash
# Install the judges that are not Python: other people's clients and rules, coding agents (1.1 GB, of which 0.4 GB are
# loaded), and the programs they need.
#
#   scripts/judges.sh               the npm packages in tests/judges/*/ as their lock files say, and the frameworks in
#                                   tests/judges/peers; needs node, npm and Python with venv
#   scripts/judges.sh --programs    before that, from Debian's packages, each of the programs that is missing
#
# Without them their tests are skipped and say so; with GREENROOM_JUDGES=required, as in the CI, they fail instead.
set -euo pipefail
cd "$(dirname "$0")/.."

# A program, and the Debian packages that bring it.
programs=(
    "chromium chromium"
    "curl curl"
    "gcc gcc libc6-dev"
    "nginx nginx"
    "node nodejs"
    "npm npm"
    "pgbouncer pgbouncer"
    "postgres postgresql"
    "systemd-analyze systemd"
)

# Debian keeps the server of PostgreSQL out of PATH, one folder for each version; and /usr/sbin, for all but root.
have() {
    command -v "$1" >/dev/null 2>&1 && return
    [ -x "/usr/sbin/$1" ] && return
    [ "$1" = postgres ] && compgen -G "/usr/lib/postgresql/*/bin/postgres" >/dev/null
}

say() { echo "judges: $*"; }

fail() {
    echo "judges: $*" >&2
    exit 1
}

install_programs() {
    local entry program packages missing=() wanted=()
    for entry in "${programs[@]}"; do
        read -r program packages <<<"$entry"
        have "$program" && continue
        missing+=("$program")
        read -ra packages <<<"$packages"
        wanted+=("${packages[@]}")
    done
    if [ ${#missing[@]} -eq 0 ]; then
        say "all programs are here"
        return
    fi

    command -v apt-get >/dev/null 2>&1 ||
        fail "no ${missing[*]} here, and no apt-get to install it with; install it by hand"
    local as_root=()
    if [ "$(id -u)" -ne 0 ]; then
        command -v sudo >/dev/null 2>&1 ||
            fail "no ${missing[*]} here, and neither root nor sudo to install it; as root: apt-get install ${wanted[*]}"
        as_root=(sudo -n)
    fi
    say "installing ${wanted[*]}"
    # apt reads signatures as a user of its own, who can not enter a private TMPDIR.
    "${as_root[@]}" env -u TMPDIR apt-get update -qq </dev/null ||
        fail "apt-get update failed; no ${missing[*]} here"
    "${as_root[@]}" env -u TMPDIR DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -qq --no-install-recommends "${wanted[@]}" </dev/null >/dev/null ||
        fail "apt-get could not install ${wanted[*]}"
    hash -r
    for program in "${missing[@]}"; do
        have "$program" || fail "there is still no $program after installing ${wanted[*]}"
    done
}

install_packages() {
    command -v npm >/dev/null 2>&1 || fail "no npm here; install Node.js, or run: scripts/judges.sh --programs"
    local lock folder
    for lock in tests/judges/*/package-lock.json; do
        folder=$(dirname "$lock")
        # npm leaves its own copy of the lock file behind when it is done.
        if [ "$folder/node_modules/.package-lock.json" -nt "$lock" ]; then
            say "$folder is as its lock file says"
            continue
        fi
        say "npm ci in $folder"
        npm ci --prefix "$folder" --no-audit --no-fund --ignore-scripts --loglevel=error </dev/null >/dev/null ||
            fail "npm ci failed in $folder"
    done
    say "programs:" $(npm ls --prefix tests/judges/programs --depth 0 --parseable --long 2>/dev/null | sed -n 's/.*node_modules.*:\(.*\)/\1/p')
}

# The frameworks beside which docs/coming-from.md stands have dependencies of their own, and so an environment of their own.
install_peers() {
    local folder=.cache/peers/coming-from wanted=tests/judges/peers/requirements.txt
    if [ "$folder/.stamp" -nt "$wanted" ]; then
        say "$folder is as $wanted says"
        return
    fi
    say "pip install in $folder"
    "${PYTHON:-python3}" -m venv --clear "$folder" || fail "no environment for $wanted"
    "$folder/bin/pip" install --quiet --disable-pip-version-check --requirement "$wanted" || fail "pip install failed"
    touch "$folder/.stamp"
}

[ "${1:-}" = "--programs" ] && install_programs
install_packages
install_peers
