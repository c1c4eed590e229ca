#!/bin/sh
# Check the page's JavaScript (format, lint, types), or format it: run.sh check|fmt. Needs Node and npm, for development only.
set -eu
cd "$(dirname "$0")/../.."

web=src/stepscope/hub/web
tools=tools/page/node_modules
said="$1: page"

# Without Node the rest of the checks goes on; in CI it must not.
skip() {
    echo "$said skipped: $1" >&2
    case "${CI:-}" in "" | 0 | false) exit 0 ;; *) exit 1 ;; esac
}

command -v node >/dev/null && command -v npm >/dev/null || skip "node and npm are not installed (apt-get install nodejs npm)"
node -e 'const [a, b] = process.versions.node.split("."); process.exit(a > 20 || (a == 20 && b >= 19) ? 0 : 1)' ||
    skip "Node $(node --version) is too old, 20.19 is needed"

if [ ! -e "$tools/.ready" ] || [ tools/page/package-lock.json -nt "$tools/.ready" ]; then
    echo "setup: tools/page"
    npm ci --silent --no-fund --no-audit --prefix tools/page || skip "npm could not install tools/page/package-lock.json"
    touch "$tools/.ready"
fi

set -- "$1" "$web/**/*.js" "!$web/vendor/**" "tools/page/*.js" "tests/web/node/*.js"
kind=$1
shift
prettier="$tools/.bin/prettier --config tools/page/prettier.config.js --log-level warn --no-error-on-unmatched-pattern"
if [ "$kind" = fmt ]; then
    $tools/.bin/eslint --config tools/page/eslint.config.js --fix --quiet $web >/dev/null || true
    exec $prettier --write "$@"
fi
echo "$said format" && $prettier --check "$@"
echo "$said lint" && $tools/.bin/eslint --config tools/page/eslint.config.js --max-warnings 0 $web
echo "$said types" && $tools/.bin/tsc --project tools/page/tsconfig.json
