#!/bin/sh
# install.sh VENV ARGUMENTS...: pip's `install` into an environment, done by uv where it can be had: several times faster.
# uv does not read pip's configuration, so it is given pip's indexes here, of its variables or its files.
venv=$1
shift
python=$venv/bin/python
pip="$python -m pip --disable-pip-version-check -qq"
setting() { $python -m pip --disable-pip-version-check config get "$1" 2>/dev/null; }

if [ -x "$venv/bin/uv" ] || $pip install --only-binary :all: uv==0.13.7 2>/dev/null; then
    index=${PIP_INDEX_URL:-$(setting global.index-url)}
    more=${PIP_EXTRA_INDEX_URL:-$(setting global.extra-index-url)}
    links=${PIP_FIND_LINKS:-$(setting global.find-links)}
    [ -z "$index" ] || export UV_DEFAULT_INDEX="$index"
    [ -z "$more" ] || export UV_EXTRA_INDEX_URL="$more"
    [ -z "$links" ] || export UV_FIND_LINKS=$(echo $links | tr ' ' ,)
    export UV_INDEX_STRATEGY=unsafe-best-match
    "$venv/bin/uv" pip install --quiet --python "$python" "$@" && exit 0
    echo "setup: uv could not install it, trying pip" >&2
fi
exec $pip install "$@"
