# shellcheck shell=bash
# Rows of `offld size`, on a library from PyPI of 159 MiB, compared with cuobjdump, which lists images, and cubloaty, which counts the bytes of
# CUDA code.

curand=10.3.10.19
cubloaty=0.2.0b1

# Downloads the library and cubloaty into target/size, and sets `cuobjdump` to NVIDIA's tool, or to nothing if it is missing. Rows that need
# missing tools are skipped.
size_tools() {
    local folder=$1 list=${OFFLD_CUDA:-$benches/../target/cuda}/cuda.txt
    cuobjdump=''
    if [ -r "$list" ]; then
        cuobjdump=$(sed -n 's|^cuda path=||; s| before22=.*||p' "$list")/bin/cuobjdump
    fi
    if [ ! -x "$cuobjdump" ]; then
        cuobjdump=''
        leave_out "NVIDIA's cuobjdump not found (make setup-cuda)" size-listed size-inspected
    fi
    mkdir -p "$folder"
    if [ ! -e "$folder/libcurand.so.10" ]; then
        say "downloading libcurand $curand"
        python3 -m pip download -q --disable-pip-version-check --no-deps --dest "$folder" "nvidia-curand-cu12==$curand" &&
            python3 -c 'import sys, zipfile; open(sys.argv[2], "wb").write(zipfile.ZipFile(sys.argv[1]).read("nvidia/curand/lib/libcurand.so.10"))' \
                "$folder"/nvidia_curand*.whl "$folder/libcurand.so.10" || return 1
    fi
    if [ ! -e "$folder/cubloaty-$cubloaty" ]; then
        say "downloading cubloaty $cubloaty"
        python3 -m pip install -q --root-user-action=ignore --disable-pip-version-check --target "$folder/python" "cubloaty==$cubloaty" &&
            : > "$folder/cubloaty-$cubloaty"
    fi
    [ -e "$folder/cubloaty-$cubloaty" ] || leave_out "cubloaty $cubloaty cannot be downloaded" size-counted
}

group_size() {
    local folder library cuobjdump
    folder=$(realpath -m -- "$benches/../target/size")
    library=$folder/libcurand.so.10
    if ! size_tools "$folder"; then
        leave_out "libcurand $curand cannot be downloaded" size-listed size-counted size-inspected
        return
    fi
    export PYTHONPATH=$folder/python
    [ -z "$cuobjdump" ] || row size-listed 'offld size of libcurand, compared with cuobjdump --list-elf' floor_is='cat of the file' floor="cat $library" \
        theirs="$cuobjdump --list-elf $library" ours="$offld size $library"
    [ ! -e "$folder/cubloaty-$cubloaty" ] || row size-counted 'offld size of libcurand, compared with cubloaty' floor_is='cat of the file' floor="cat $library" \
        theirs="python3 -m cubloaty $library" ours="$offld size $library"
    [ -z "$cuobjdump" ] || row size-inspected 'offld inspect --kernels of libcurand, compared with cuobjdump --list-elf' floor_is='cat of the file' floor="cat $library" \
        theirs="$cuobjdump --list-elf $library" ours="$offld inspect --kernels $library"
    unset PYTHONPATH
}
