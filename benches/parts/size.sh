# shellcheck shell=bash
# Rows of `offld size`, on a library of PyPI with 159 MiB, beside NVIDIA's lister of images and the tool that counts the bytes of CUDA code.

curand=10.3.10.19
cubloaty=0.2.0b1

# The library and cubloaty, in target/size.
size_tools() {
    local folder=$1
    cuobjdump=$(awk '$1 == "cuda" { for (i = 2; i <= NF; i++) if (sub(/^path=/, "", $i)) print $i }' "$benches/../target/cuda/cuda.txt" 2>/dev/null)/bin/cuobjdump
    [ -x "$cuobjdump" ] || fail 'cuobjdump is missing (make setup-cuda)'
    mkdir -p "$folder"
    if [ ! -e "$folder/libcurand.so.10" ]; then
        say "downloading libcurand $curand"
        python3 -m pip download -q --disable-pip-version-check --no-deps --dest "$folder" "nvidia-curand-cu12==$curand" || fail 'libcurand cannot be downloaded'
        python3 -c 'import sys, zipfile; open(sys.argv[2], "wb").write(zipfile.ZipFile(sys.argv[1]).read("nvidia/curand/lib/libcurand.so.10"))' \
            "$folder"/nvidia_curand*.whl "$folder/libcurand.so.10"
    fi
    if [ ! -e "$folder/cubloaty-$cubloaty" ]; then
        say "downloading cubloaty $cubloaty"
        python3 -m pip install -q --root-user-action=ignore --disable-pip-version-check --target "$folder/python" "cubloaty==$cubloaty" || fail 'cubloaty cannot be downloaded'
        : > "$folder/cubloaty-$cubloaty"
    fi
}

group_size() {
    local folder library cuobjdump
    folder=$(realpath -m -- "$benches/../target/size")
    library=$folder/libcurand.so.10
    size_tools "$folder"
    export PYTHONPATH=$folder/python
    row size-listed 'offld size of libcurand, beside cuobjdump --list-elf' floor_is='cat of the file' floor="cat $library" \
        theirs="$cuobjdump --list-elf $library" ours="$offld size $library"
    row size-counted 'offld size of libcurand, beside cubloaty' floor_is='cat of the file' floor="cat $library" \
        theirs="python3 -m cubloaty $library" ours="$offld size $library"
    row size-inspected 'offld inspect --kernels of libcurand, beside cuobjdump --list-elf' floor_is='cat of the file' floor="cat $library" \
        theirs="$cuobjdump --list-elf $library" ours="$offld inspect --kernels $library"
    unset PYTHONPATH
}
