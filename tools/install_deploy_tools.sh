#!/usr/bin/env bash
# Install into .build/bin what judges deploy/ in the tests and is no Python package: helm, compose-go (the reader of
# `docker compose`) and promtool. What cannot be had on this machine is named, and its tests are skipped.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

HELM=v3.22.0
COMPOSE=v2.16.2
bin="$PWD/.build/bin"
mkdir -p "$bin"

has() { [[ -x "$bin/$1" ]] || command -v "$1" >/dev/null; }

missing() { echo "$1 is not installed: $2; its tests are skipped" >&2; }

# Two minutes on two processors; the other installs take seconds.
if ! has helm; then
    if command -v go >/dev/null; then
        GOBIN="$bin" CGO_ENABLED=0 go install "helm.sh/helm/v3/cmd/helm@$HELM"
    else
        missing helm "it is built with Go"
    fi
fi

if ! has compose-go; then
    if command -v go >/dev/null; then
        GOBIN="$bin/compose" CGO_ENABLED=0 go install "github.com/compose-spec/compose-go/v2/cmd@$COMPOSE"
        mv "$bin/compose/cmd" "$bin/compose-go"
        rmdir "$bin/compose"
    else
        missing compose-go "it is built with Go"
    fi
fi

# Taken out of Debian's package rather than installed with it, which would start a Prometheus.
if ! has promtool; then
    if command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null; then
        folder="$(mktemp -d)"
        trap 'rm -rf "$folder"' EXIT
        chmod 755 "$folder"
        (cd "$folder" && { apt-get download -qq prometheus 2>/dev/null || { apt-get update -qq && apt-get download -qq prometheus; }; })
        dpkg-deb --extract "$folder"/prometheus_*.deb "$folder/files"
        install "$folder/files/usr/bin/promtool" "$bin/promtool"
    else
        missing promtool "it comes from Debian's package of Prometheus"
    fi
fi
