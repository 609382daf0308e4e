#!/usr/bin/env bash
# Get with npm what browsers run on the pages of the site: the program that draws the diagrams, and the one that lets a page
# search that was opened from a folder. Without npm one line says what the site lacks, and it is built without them.
#
#   scripts/site/assets.sh FOLDER
set -euo pipefail

folder=$1
for package in mermaid@11.12.0 iframe-worker@1.0.4; do
    place=$folder/$package
    [ -e "$place" ] && continue
    if ! command -v npm >/dev/null 2>&1; then
        echo "make docs: npm is missing: diagrams are shown as text, and the search needs a server"
        exit 0
    fi
    mkdir -p "$folder" && scratch=$(mktemp -d "$folder/new.XXXXXX")
    (cd "$scratch" && npm pack --silent "$package" >/dev/null && tar -xzf ./*.tgz && rm ./*.tgz)
    mv "$scratch/package" "$place" && rmdir "$scratch"
done
