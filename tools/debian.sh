#!/bin/sh
# Install the Debian packages given as arguments where they are missing; without the right to, name them.
set -eu

missing=
for package in "$@"; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q ' installed$' || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "setup: installing$missing"
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq
    # shellcheck disable=SC2086  # a list of names, each an argument of its own
    apt-get install -y -qq --no-install-recommends $missing >/dev/null
else
    echo "setup: not installed, what needs it is skipped or refused; as root: apt-get install$missing" >&2
fi
