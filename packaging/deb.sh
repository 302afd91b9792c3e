#!/usr/bin/env bash
# Builds offld_VERSION_amd64.deb, and offld-dbgsym_VERSION_amd64.deb with the debug symbols. dpkg-shlibdeps determines the dependencies.
set -eu
# shellcheck source-path=SCRIPTDIR source=common.sh
. "$(dirname "$0")/common.sh"
cd "$WORK"

maintainer='offld maintainers <maintainers@offld.invalid>'
from=$TOP/packaging/debian
revision=$VERSION-1

rm -rf deb dbgsym shlibs
cp -a "$TREE" deb
mkdir -p deb/DEBIAN shlibs/debian

# Debian's zsh loads completions of packages from vendor-completions.
mkdir -p deb/usr/share/zsh/vendor-completions
mv deb/usr/share/zsh/site-functions/_offld deb/usr/share/zsh/vendor-completions/
rmdir deb/usr/share/zsh/site-functions

install -m 644 "$from/copyright" deb/usr/share/doc/offld/copyright
install -D -m 644 "$from/lintian-overrides" deb/usr/share/lintian/overrides/offld
printf 'offld (%s) unstable; urgency=medium\n\n  * What is new: /usr/share/doc/offld/changelog.gz\n\n -- %s  %s\n' \
    "$revision" "$maintainer" "$(date -u -R -d "@$SOURCE_DATE_EPOCH")" | gzip -9n > deb/usr/share/doc/offld/changelog.Debian.gz

printf 'Source: offld\n\nPackage: offld\nArchitecture: amd64\n' > shlibs/debian/control
depends=$(cd shlibs && dpkg-shlibdeps -O -e "$PROGRAMS/offld" -e "$PROGRAMS/offld-llvm" 2>/dev/null | sed -n 's/^shlibs:Depends=//p')
[ -n "$depends" ] || fail 'dpkg-shlibdeps found no dependencies'

build() { # DIR LEVEL, with the control file on stdin
    (cd "$1" && find usr -type f -print0 | sort -z | xargs -0 md5sum) > "$1/DEBIAN/md5sums"
    cat > "$1/DEBIAN/control"
    find "$1" -type d -exec chmod 755 {} +
    find "$1" -newermt "@$SOURCE_DATE_EPOCH" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
    dpkg-deb --root-owner-group -Zxz "-z$2" --threads-max=1 --build "$1" "$OUT" >/dev/null
}

# lint.sh sets DEB_LEVEL=0, because it only inspects the package.
build deb "${DEB_LEVEL:-6}" <<EOF
Package: offld
Version: $revision
Architecture: amd64
Maintainer: $maintainer
Installed-Size: $(du -k -s --apparent-size --exclude=DEBIAN deb | cut -f 1)
Depends: $depends
Suggests: clang-22, lld-22
Section: devel
Priority: optional
Description: $SUMMARY
$(cat "$from/description")
EOF

mkdir -p dbgsym/DEBIAN dbgsym/usr/lib/debug dbgsym/usr/share/doc
cp -a "$SYMBOLS/.build-id" dbgsym/usr/lib/debug/
ln -s offld dbgsym/usr/share/doc/offld-dbgsym
ids=$(cd "$SYMBOLS/.build-id" && find . -name '*.debug' | sed 's|^\./||; s|/||; s|\.debug$||' | sort | tr '\n' ' ')
# The debug sections are already compressed: higher levels take half a minute and save nothing.
build dbgsym 0 <<EOF
Package: offld-dbgsym
Source: offld
Version: $revision
Auto-Built-Package: debug-symbols
Architecture: amd64
Maintainer: $maintainer
Installed-Size: $(du -k -s --apparent-size --exclude=DEBIAN dbgsym | cut -f 1)
Depends: offld (= $revision)
Section: debug
Priority: optional
Description: debug symbols for offld
Build-Ids: ${ids% }
EOF
rm -rf deb dbgsym shlibs
