#!/usr/bin/env bash
# Builds README.md and docs/ as a book with a search, in target/book: `make book`.
# usage: book.sh
set -eu
cd "$(dirname "$0")/.."
# shellcheck source-path=SCRIPTDIR source=packages.sh
. scripts/packages.sh

# Below target/, so that the user's own tools stay unchanged. The build takes three minutes, once; it omits the watch and serve features.
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

# The book has the same directory layout as the repository, so that relative links work. Other linked files are copied, too.
source=target/book-source
rm -rf "$source" target/book
mkdir -p "$source"
sed 's|](\([a-z]\)|](docs/\1|; s|](\.\./|](|' docs/SUMMARY.md > "$source/SUMMARY.md"
cp --parents ./*.md LICENSE examples/cargo-app/{Makefile,Cargo.toml,build.rs} "$source"
grep -rohE --include='*.md' '\]\((\.\./)+[^)#]+' docs | sed -E 's|^\]\((\.\./)+||' | sort -u | while read -r linked; do
    if [ -f "$linked" ]; then cp --parents "$linked" "$source"; fi
done
cp -r docs "$source/docs"
rm "$source/docs/SUMMARY.md"
# mdBook turns README.md into index.html, but does not update links to it.
find "$source" -name '*.md' ! -name SUMMARY.md -exec sed -i 's|\(](\([^)]*/\)\{0,1\}\)README\.md|\1index.md|g' {} +
"$tools/bin/mdbook" build
say "the book is target/book/index.html"
