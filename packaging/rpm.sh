#!/usr/bin/env bash
# Builds offld-VERSION-1.x86_64.rpm with Debian's rpmbuild.
set -eu
# shellcheck source-path=SCRIPTDIR source=common.sh
. "$(dirname "$0")/common.sh"
cd "$WORK"

rm -rf rpm
mkdir rpm
cp -a "$TREE" rpm/tree
install -D -m 644 "$TOP/LICENSE" rpm/tree/usr/share/licenses/offld/LICENSE
find rpm/tree -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
rpmbuild -bb --quiet --target x86_64 --nodeps -D "_topdir $WORK/rpm" -D "_dbpath $WORK/rpm/db" -D "offld_version $VERSION" \
    -D "offld_summary $SUMMARY" -D "offld_tree $WORK/rpm/tree" "$TOP/packaging/offld.spec" > rpm/log 2>&1 ||
    { cat rpm/log >&2; fail 'rpmbuild failed'; }
cp "rpm/RPMS/x86_64/offld-$VERSION-1.x86_64.rpm" "$OUT/"
rm -rf rpm
