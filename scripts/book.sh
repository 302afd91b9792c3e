#!/usr/bin/env bash
# The book of README.md and docs/, as pages with a search, in target/book: `make book`.
# usage: book.sh
set -eu
cd "$(dirname "$0")/.."
# shellcheck source-path=SCRIPTDIR source=packages.sh
. scripts/packages.sh

# Below target/, so that nothing of the user's is replaced. Three minutes once; without its features for watching and serving.
mdbook=0.5.4
tools=$PWD/target/book-tools
if [ ! -x "$tools/bin/mdbook" ] || [ "$("$tools/bin/mdbook" --version)" != "mdbook v$mdbook" ]; then
    say "installing mdbook $mdbook into target/book-tools"
    "${CARGO:-cargo}" install -q --locked --force --no-default-features --features search --root "$tools" --target-dir "$tools/build" "mdbook@$mdbook" >&2 || {
        say "could not install mdbook $mdbook (cargo install)"
        exit 1
    }
    rm -rf "$tools/build"
fi

# The documents stand in the book as they do here; what they refer to besides is beside them. The list of chapters is written from docs/.
source=target/book-source
rm -rf "$source" target/book
mkdir -p "$source"
sed 's|](\([a-z]\)|](docs/\1|; s|](\.\./|](|' docs/SUMMARY.md > "$source/SUMMARY.md"
cp --parents ./*.md LICENSE examples/cargo-app/{Makefile,Cargo.toml,build.rs} "$source"
grep -ohE '\]\(\.\./[^)#]+' docs/*.md | cut -c 6- | sort -u | while read -r linked; do
    if [ -f "$linked" ]; then cp --parents "$linked" "$source"; fi
done
cp -r docs "$source/docs"
rm "$source/docs/SUMMARY.md"
# mdBook makes index.html of README.md, and leaves links to it as they are.
find "$source" -name '*.md' ! -name SUMMARY.md -exec sed -i 's|\(](\([^)]*/\)\{0,1\}\)README\.md|\1index.md|g' {} +
"$tools/bin/mdbook" build
say "the book is target/book/index.html"
