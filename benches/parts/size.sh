# shellcheck shell=bash
# Rows of `offld size`, on a library of PyPI with 159 MiB, beside NVIDIA's lister of images and the tool that counts the bytes of CUDA code.

curand=10.3.10.19
cubloaty=0.2.0b1

# The library and cubloaty, in target/size, and NVIDIA's lister: `cuobjdump` is its path, empty where it is missing. What cannot be had
# leaves out the rows that need it, and says so.
size_tools() {
    local folder=$1 list=${OFFLD_CUDA:-$benches/../target/cuda}/cuda.txt
    cuobjdump=''
    if [ -r "$list" ]; then
        cuobjdump=$(awk '$1 == "cuda" { for (i = 2; i <= NF; i++) if (sub(/^path=/, "", $i)) print $i }' "$list")/bin/cuobjdump
    fi
    if [ ! -x "$cuobjdump" ]; then
        cuobjdump=''
        leave_out "NVIDIA's cuobjdump is missing (make setup-cuda)" size-listed size-inspected
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
    [ -z "$cuobjdump" ] || row size-listed 'offld size of libcurand, beside cuobjdump --list-elf' floor_is='cat of the file' floor="cat $library" \
        theirs="$cuobjdump --list-elf $library" ours="$offld size $library"
    [ ! -e "$folder/cubloaty-$cubloaty" ] || row size-counted 'offld size of libcurand, beside cubloaty' floor_is='cat of the file' floor="cat $library" \
        theirs="python3 -m cubloaty $library" ours="$offld size $library"
    [ -z "$cuobjdump" ] || row size-inspected 'offld inspect --kernels of libcurand, beside cuobjdump --list-elf' floor_is='cat of the file' floor="cat $library" \
        theirs="$cuobjdump --list-elf $library" ours="$offld inspect --kernels $library"
    unset PYTHONPATH
}
