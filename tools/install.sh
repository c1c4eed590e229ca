#!/bin/sh
# install.sh VENV ARGUMENTS...: pip's `install` into an environment, done by uv where it can be had: several times faster.
# uv does not read pip's configuration, so it is given pip's indexes here, of its variables or its files.
# Environments made without pip are served by uv and pip of the developers' one, .venv.
venv=$1
shift
python=$venv/bin/python
first=$(dirname "$0")/../.venv/bin
pip="$python -m pip --disable-pip-version-check"
$python -c 'import pip' 2>/dev/null || pip="$first/python -m pip --disable-pip-version-check --python $python"
setting() { $pip config get "$1" 2>/dev/null; }
uv=$first/uv
[ -x "$uv" ] || uv=$venv/bin/uv

if [ -x "$uv" ] || $pip -qq install --only-binary :all: uv==0.13.7 2>/dev/null; then
    index=${PIP_INDEX_URL:-$(setting global.index-url)}
    more=${PIP_EXTRA_INDEX_URL:-$(setting global.extra-index-url)}
    links=${PIP_FIND_LINKS:-$(setting global.find-links)}
    [ -z "$index" ] || export UV_DEFAULT_INDEX="$index"
    [ -z "$more" ] || export UV_EXTRA_INDEX_URL="$more"
    [ -z "$links" ] || export UV_FIND_LINKS=$(echo $links | tr ' ' ,)
    export UV_INDEX_STRATEGY=unsafe-best-match
    "$uv" pip install --quiet --python "$python" "$@" && exit 0
    echo "setup: uv could not install it, trying pip" >&2
fi
exec $pip -qq install "$@"
