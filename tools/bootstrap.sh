#!/bin/sh
# Creates .tools, a virtualenv with uv, with any Python 3.11 to 3.13.
# Usage: tools/bootstrap.sh [PYTHON]      By default the newest Python on PATH.
set -eu

UV_VERSION=0.13.8
NEWEST_FIRST="python3.13 python3.12 python3.11 python3 python"

# Prints the version of the Python at $1, or nothing if it does not run (pyenv has shims for Pythons that are not active).
version_of() {
    "$1" -c 'import sys; print("%d.%d.%d" % sys.version_info[:3])' 2>/dev/null </dev/null || true
}

# Prints the Python in $1 if it is set, otherwise every program on PATH with one of the names above, the best name first.
candidates() {
    if [ -n "$1" ]; then
        echo "$1"
        return
    fi
    for name in $NEWEST_FIRST; do
        old_ifs=$IFS
        IFS=:
        for folder in $PATH; do
            [ ! -x "${folder:-.}/$name" ] || echo "${folder:-.}/$name"
        done
        IFS=$old_ifs
    done
}

say() {
    echo "$@" >&2
}

no_python() {
    say "tarragon: no Python 3.11, 3.12 or 3.13."
    if [ -n "$found" ]; then
        say "Found, but not usable:"
        printf '%b' "$found" >&2
    fi
    say "Install one, for example:"
    if command -v apt-get >/dev/null 2>&1; then say "  apt:    sudo apt install python3 python3-venv    (Debian 12, Ubuntu 24.04 or newer)"; fi
    if command -v dnf >/dev/null 2>&1; then say "  dnf:    sudo dnf install python3.12"; fi
    say "  brew:   brew install python@3.12"
    say "  pyenv:  pyenv install 3.12 && pyenv local 3.12"
    say "  uv:     uv python install 3.12 && make PYTHON=\"\$(uv python find 3.12)\" demo"
    say "or choose one: make PYTHON=/path/to/python3.12 demo"
    exit 1
}

no_venv() {
    say "tarragon: $without_venv (Python $without_venv_version) cannot create a virtualenv: its module ensurepip is missing."
    say "On Debian and Ubuntu: sudo apt install python3-venv"
    say "or choose another Python: make PYTHON=/path/to/python3.12 demo"
    exit 1
}

find_python() {
    found=""
    without_venv=""
    list=$(candidates "$1")
    old_ifs=$IFS
    IFS='
'
    for candidate in $list; do
        IFS=$old_ifs
        version=$(version_of "$candidate")
        case $version in
        3.11.* | 3.12.* | 3.13.*)
            if "$candidate" -c 'import venv, ensurepip' 2>/dev/null </dev/null; then
                python=$candidate
                return
            fi
            without_venv=${without_venv:-$candidate}
            without_venv_version=${without_venv_version:-$version}
            ;;
        "") found="$found  $candidate (does not run)\n" ;;
        *) found="$found  $candidate (Python $version)\n" ;;
        esac
    done
    IFS=$old_ifs
    [ -z "$without_venv" ] || no_venv
    no_python
}

# Before 24.2 pip trusted only its own certificates, which lack private certificate authorities that the system trusts.
trust_the_system() {
    [ -z "${PIP_CERT:-}" ] || return 0
    case $(.tools/bin/python -m pip --version) in
    "pip 2"[0-3].* | "pip 24."[01]*) ;;
    *) return 0 ;;
    esac
    ! .tools/bin/python -m pip config list | grep -q '\.cert=' || return 0
    for bundle in "${SSL_CERT_FILE:-}" /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt \
        /etc/ssl/ca-bundle.pem /etc/ssl/cert.pem; do
        if [ -s "$bundle" ]; then
            PIP_CERT=$bundle
            export PIP_CERT
            return 0
        fi
    done
}

cd "$(dirname "$0")/.."
find_python "${1:-}"
say "tarragon: setting up with $python (Python $version)"
rm -rf .tools
"$python" -m venv .tools
trust_the_system
if ! .tools/bin/python -m pip install --quiet --disable-pip-version-check "uv==$UV_VERSION"; then
    rm -rf .tools
    say "tarragon: uv could not be installed from PyPI (see pip's message above)."
    say "Behind a proxy set https_proxy; if your network has its own certificate authority, set SSL_CERT_FILE."
    exit 1
fi
