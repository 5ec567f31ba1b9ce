#!/usr/bin/env bash
# Renews the pinned versions in scripts/locks/: the newest that pyproject.toml and the *.in files admit, for every platform.
# The files name no index, so that any index can serve them.
set -euo pipefail
cd "$(dirname "$0")/.."

compile() {
  .venv/bin/uv pip compile --quiet --universal --upgrade --python-version 3.11 --no-header --no-annotate "$@"
}

compile pyproject.toml --all-extras --output-file scripts/locks/dev.lock
compile scripts/locks/clients.in --output-file scripts/locks/clients.lock
compile scripts/locks/aiperf.in --output-file scripts/locks/aiperf.lock
compile scripts/locks/peers.in --output-file scripts/locks/peers.lock
compile scripts/locks/engine.in --override scripts/locks/engine.overrides --output-file scripts/locks/engine.lock
compile scripts/locks/sglang.in --override scripts/locks/sglang.overrides --output-file scripts/locks/sglang.lock
(cd scripts/locks/agents && npm install --package-lock-only --ignore-scripts --omit-lockfile-registry-resolved --no-audit --no-fund)
git --no-pager diff --stat -- scripts/locks
