#!/usr/bin/env bash
# Writes the first inputs of the fuzz targets: small files from compilers and LLVM's tools of several releases.
# usage: seeds.sh DIR     Skips compilers that are not installed (LLVM 14, 16, 19, nvcc).
set -eu
out=${1:?usage: seeds.sh DIR}
mkdir -p "$out"
out=$(cd "$out" && pwd)
top=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

llvm=/usr/lib/llvm-22/bin
have() { [ -x "/usr/lib/llvm-$1/bin/$2" ]; }
into() { mkdir -p "$out/$1"; cp "$2" "$out/$1/$3"; }
# With leading bytes that select how the target reads the rest.
tagged() { mkdir -p "$out/$1"; { printf "%b" "$4"; cat "$2"; } > "$out/$1/$3"; }

# ---- contents of containers -------------------------------------------------------------------------------------------------

printf 'HOST' > host; printf 'DEVICE-A' > a; printf 'DEVICE-BB' > b; : > empty
cat > c.c <<'C'
extern int other(int); __attribute__((weak)) int data = 1; int common; static int hidden = 2;
int fun(int x) { return other(x) + data + common + hidden; }
C
"$llvm/clang" -O1 -c c.c -o c.o
"$llvm/clang" -O1 -g1 -ffunction-sections -c c.c -o debug.o
"$llvm/clang" -O1 -c -m32 c.c -o c32.o
"$llvm/clang" -O1 -c --target=s390x-linux-gnu c.c -o big.o
"$llvm/clang" -O1 -c --target=mips64el-linux-gnu c.c -o mips.o
"$llvm/clang" -O1 -c --target=x86_64-pc-windows-msvc c.c -o c.obj
"$llvm/clang" -O1 -c -emit-llvm c.c -o c.bc
echo 'V1 { global: fun; local: *; };' > versions
"$llvm/clang" -shared -fPIC -nostdlib -Wl,--version-script=versions c.c -o c.so
printf 'template<class T> inline T twice(T x) { static T last; last = x; return x + x; }\nint f() { return twice(2); }\n' > group.cpp
"$llvm/clang++" -O0 -c group.cpp -o group.o
echo 'int main() { int x = 0;
#pragma omp target map(tofrom: x)
  x = 1;
  return x; }' > omp.c
"$llvm/clang" -O1 -fopenmp -fopenmp-targets=x86_64-pc-linux-gnu -c omp.c -o omp.o
for release in 14 16 19; do
    if have $release clang; then
        "/usr/lib/llvm-$release/bin/clang" -O1 -fopenmp -fopenmp-targets=x86_64-pc-linux-gnu -fopenmp-new-driver -c omp.c -o omp$release.o 2>/dev/null || true
        "/usr/lib/llvm-$release/bin/clang" -O1 -c -emit-llvm c.c -o c$release.bc
    fi
done

# Device code with the names of OpenMP kernels.
for options in -O1 '-O0 -g' '-O1 -foffload-lto=thin'; do
    # shellcheck disable=SC2086
    "$llvm/clang" $options -fopenmp --offload-arch=gfx90a -nogpulib --offload-device-only -c omp.c -o device.bc
    into stable_names device.bc "amd${options// /}.bc"
    # shellcheck disable=SC2086
    "$llvm/clang" ${options%%-foffload*} -fopenmp -fopenmp-targets=x86_64-pc-linux-gnu --offload-device-only -c omp.c -o device.o
    into stable_names device.o "cpu${options// /}.o"
done
into stable_names omp.o omp.o

# ---- kpack ------------------------------------------------------------------------------------------------------------------

kpack() { # NAME SCHEME
    printf '{"output":"k","group":"g","family":"gfx9","arches":["gfx90a","gfx942"],"scheme":"%s","entries":[["lib/a.so#0","gfx90a","a"],["lib/a.so#1","gfx90a","b"],["lib/a.so#0","gfx942","b"]]}' "$2" |
        python3 "$top/tests/suite/kpack/make.py"
    into kpack k "$1"
}
kpack none.kpack none
if command -v zstd >/dev/null; then kpack zstd.kpack zstd-per-kernel; fi
printf '{"output":"reference","reference":{"kpack_search_paths":["../.kpack/a_@GFXARCH@.kpack"],"kernel_name":"lib/a.so"}}' |
    python3 "$top/tests/suite/kpack/make.py"
into kpack reference reference
cat > wrappers.s <<'S'
.section .hipFatBinSegment,"aw"
.long 0x4B504948, 1
.quad reference, 0
.section .rocm_kpack_ref,"a"
reference: .incbin "reference"
S
"$llvm/clang" -c wrappers.s -o wrappers.o
into kpack wrappers.o program

# ---- bundles ----------------------------------------------------------------------------------------------------------------

targets='host-x86_64-unknown-linux-gnu-,hip-amdgcn-amd-amdhsa--gfx906:xnack+,hipv4-amdgcn-amd-amdhsa--gfx9-4-generic'
bundler() { "$llvm/clang-offload-bundler" "$@"; }
bundler -type=bc -targets=$targets -input=host -input=a -input=b -output=plain.bc
bundler -type=bc -bundle-align=64 -targets=host-x86_64-linux-gnu-,openmp-nvptx64-nvidia-cuda--sm_70 -input=empty -input=a -output=aligned.bc
bundler -type=o -bundle-align=4096 -targets=host-x86_64-unknown-linux-gnu,hipv4-amdgcn-amd-amdhsa--gfx906 -input=/dev/null -input=a -output=hip.hipfb
cat plain.bc plain.bc > two.bc
for bundle in plain.bc aligned.bc hip.hipfb two.bc; do into bundle $bundle $bundle; done
for release in 14 16 19; do
    if have $release clang-offload-bundler; then
        "/usr/lib/llvm-$release/bin/clang-offload-bundler" -type=bc \
            -targets=host-x86_64-unknown-linux-gnu,openmp-amdgcn-amd-amdhsa-gfx906:xnack+ -inputs=host,a -outputs=old$release.bc 2>/dev/null
        into bundle old$release.bc old$release.bc
    fi
done

bundler -type=bc -compress -targets=$targets -input=c.o -input=a -input=b -output=v3.bc
COMPRESSED_BUNDLE_FORMAT_VERSION=2 bundler -type=bc -compress -targets=$targets -input=c.o -input=a -input=b -output=v2.bc
cat v3.bc v2.bc > both.bc
# No installed tool writes version 1 or zlib compression any more, so the script does.
python3 - plain.bc <<'PY'
import hashlib, struct, sys, zlib
plain = open(sys.argv[1], "rb").read()
digest = hashlib.md5(plain).digest()[:8]
packed = zlib.compress(plain)
open("v1-zlib.bc", "wb").write(b"CCOB" + struct.pack("<HHI", 1, 0, len(plain)) + digest + packed)
open("v2-zlib.bc", "wb").write(b"CCOB" + struct.pack("<HHII", 2, 0, 24 + len(packed), len(plain)) + digest + packed)
open("v3-zlib.bc", "wb").write(b"CCOB" + struct.pack("<HHQQ", 3, 0, 32 + len(packed), len(plain)) + digest + packed)
zstd = open("v3.bc", "rb").read()
open("v1-zstd.bc", "wb").write(b"CCOB" + struct.pack("<HHI", 1, 1, struct.unpack_from("<Q", zstd, 16)[0]) + zstd[24:])
PY
for bundle in v3.bc v2.bc both.bc v1-zlib.bc v2-zlib.bc v3-zlib.bc v1-zstd.bc; do into compressed $bundle $bundle; done

# ---- offload binaries -------------------------------------------------------------------------------------------------------

packager() { "$llvm/llvm-offload-binary" "$@"; }
packager -o one.bin --image=file=a,triple=nvptx64-nvidia-cuda,arch=sm_70,kind=cuda
packager -o three.bin --image=file=c.bc,triple=amdgcn-amd-amdhsa,arch=gfx906,kind=openmp,feature=+xnack \
    --image=file=a,triple=amdgcn-amd-amdhsa,arch=gfx90a,kind=hip --image=file=empty,triple=x,kind=sycl
for binary in one.bin three.bin; do into offload_binary $binary $binary; done
if have 19 clang-offload-packager; then
    /usr/lib/llvm-19/bin/clang-offload-packager -o old.bin --image=file=a,triple=amdgcn-amd-amdhsa,arch=gfx906,kind=hip
    into offload_binary old.bin old.bin
fi
# Versions 2 and 3 come with the next LLVM release.
python3 - <<'PY'
import struct, zlib
def plain(version, extra):
    head = 32 + extra
    images = [b"IMAGE-1", b"IMAGE-TWO"]
    table = b"\0triple\0amdgcn-amd-amdhsa\0arch\0gfx906\0gfx90a\0"
    at = {name: table.index(name + b"\0") for name in (b"triple", b"amdgcn-amd-amdhsa", b"arch", b"gfx906", b"gfx90a")}
    strings_at = head + 40 * len(images)
    table_at = strings_at + 24 * 2 * len(images)
    image_at = (table_at + len(table) + 7) // 8 * 8
    entries = strings = body = b""
    for index, (image, arch) in enumerate(zip(images, (b"gfx906", b"gfx90a"))):
        entries += struct.pack("<HHIQQQQ", 1, 4, 0, strings_at + 48 * index, 2, image_at + len(body), len(image))
        for key, value in ((b"triple", b"amdgcn-amd-amdhsa"), (b"arch", arch)):
            strings += struct.pack("<QQQ", table_at + at[key], table_at + at[value], len(value))
        body += image
    rest = entries + strings + table
    rest += b"\0" * (image_at - head - len(rest)) + body
    rest += b"\0" * (-(head + len(rest)) % 8)
    header = b"\x10\xff\x10\xad" + struct.pack("<IQQQ", version, head + len(rest), head, len(images))
    return header, rest
header, rest = plain(2, 0)
open("v2.bin", "wb").write(header + rest)
header, rest = plain(3, 8)
open("v3.bin", "wb").write(header + struct.pack("<Q", 0) + rest)
packed = zlib.compress(rest)
header = header[:8] + struct.pack("<Q", 40 + len(packed)) + header[16:]
open("v3-zlib.bin", "wb").write(header + struct.pack("<Q", 40 + len(rest)) + packed)
PY
for binary in v2.bin v3.bin v3-zlib.bin; do into offload_binary $binary $binary; done

# ---- objects, archives, scripts, command lines -------------------------------------------------------------------------------

"$llvm/clang-offload-bundler" -type=o -targets=$targets -input=c.o -input=a -input=b -output=fat.o
for object in c.o debug.o c32.o big.o mips.o group.o omp.o fat.o; do
    for how in 0 1 2 3; do tagged elf_edit $object $object.$how "\\x0$how"; done
    into link_inputs $object $object
done
for object in c.obj c.so c.bc one.bin omp14.o omp19.o; do if [ -f $object ]; then into link_inputs $object $object; fi; done
"$llvm/llvm-ar" rcs gnu.a omp.o a
"$llvm/llvm-ar" rcs --format=bsd bsd.a c.o a
"$llvm/llvm-ar" rcs --format=coff coff.a c.obj
"$llvm/llvm-ar" rcsT thin.a a b
"$llvm/llvm-ar" rc nested.a gnu.a a-member-with-a-name-longer-than-sixteen 2>/dev/null || "$llvm/llvm-ar" rc nested.a gnu.a
for archive in gnu.a bsd.a coff.a thin.a nested.a; do into link_inputs $archive $archive; done
echo '/* GNU ld script */ OUTPUT_FORMAT(elf64-x86-64) INPUT(-lc a "b c") GROUP ( /lib/x.so AS_NEEDED ( y.a ) ) SEARCH_DIR(=/usr/lib) INCLUDE s.ld' > script.ld
into link_inputs script.ld script.ld

for bitcode in c.bc c14.bc c19.bc; do if [ -f $bitcode ]; then head -c 256 $bitcode > cut.bc; tagged small_readers cut.bc $bitcode '\x00'; fi; done
printf '%b' '\xde\xc0\x17\x0b\x00\x00\x00\x00\x14\x00\x00\x00\x00\x01\x00\x00\x07\x00\x00\x00' | cat - cut.bc > wrapped.bc
tagged small_readers wrapped.bc wrapped.bc '\x00'
printf '\xef\xbb\xbf /DEFAULTLIB:"my lib.lib" -defaultlib:uuid /include:_g /alternatename:__a=__b /nodefaultlib:libcmt' > directives
tagged small_readers directives directives '\x01'
tagged small_readers c.so c.so '\x02'
tagged small_readers a spirv '\x03'
for file in c.o c.obj gnu.a script.ld; do head -c 64 $file > first; tagged small_readers first magic-$file '\x05'; done
printf 'OFFLDIMG\x01\0\0\0\x01\0\0\0\x56\0\0\0\x01\0\0\0\x54\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0\x01\x02\x03\x04\x05\x06\x07\x08\x48\0\0\0\x4a\0\0\0\x4d\0\0\0\x02\0\0\0\x9a\x5f\x01\0\0\0\0\0a\0id\0gfx90a\0d\0' > table
tagged small_readers table external-images '\x04'

mkdir -p "$out/link_line"
printf '\x00--host-triple=x86_64-unknown-linux-gnu\0--linker-path=/usr/bin/ld\0--wrapper-jobs=4\0--device-linker=amdgcn=-v\0--\0-o\0out\0-L=/usr/lib\0@r\0-lc\0a.o\xff--whole-archive "b c.a" -Bstatic -z now\n' > "$out/link_line/wrapper"
printf '\x01-pie\0-m\0elf_x86_64\0--start-group\0-la\0--end-group\0--start-lib\0b.o\0--end-lib\0-dynamic-linker\0/lib/ld.so\0-o\0x\0--format=binary\0d\xff' > "$out/link_line/ld"
printf '\x00--host-triple=x86_64-pc-windows-msvc\0-out:a.exe\0/libpath:c\0-defaultlib:libcmt\0-wholearchive:d.lib\0@r\xff"e\\f.obj" -nologo' > "$out/link_line/windows"

# ---- the tools: a byte that selects one, its command line, and the file `a` ------------------------------------------------------

# line TARGET NAME SELECTION FILE ARGUMENTS...
line() {
    mkdir -p "$out/$1"
    { printf '%b' "$3"; printf '%s\0' "${@:5}" | head -c -1; printf '\xff'; cat "$4"; } > "$out/$1/$2"
}
pack=(-o out "--image=file=a,triple=amdgcn-amd-amdhsa,arch=gfx906:xnack+,kind=hip,feature=x")
line front_packager pack '\x00' a "${pack[@]}" '--image=file=b,kind=openmp'
line front_packager pack2 '\x01' c.bc "${pack[@]}" --format-version=2 --legacy-kinds
line front_packager extract '\x00' three.bin a '--image=file=out,arch=gfx906' '--image=triple=amdgcn-amd-amdhsa'
line front_packager all '\x00' omp.o a --archive
line front_packager named '\x00' gnu.a a --archive '--image=file=out.a,kind=openmp'
line front_packager v3 '\x00' v3-zlib.bin a '--image=' --error-on-no-match=true
if [ -f omp14.o ]; then line front_packager old '\x00' omp14.o a; fi
line front_packager help '\x00' empty --help-hidden

python3 -c '
import zipfile
with zipfile.ZipFile("x.zip", "w", zipfile.ZIP_DEFLATED) as out:
    out.write("three.bin", "pkg/three.so")
    out.write("a", "stored", zipfile.ZIP_STORED)
    with out.open("zip64", "w", force_zip64=True) as member: member.write(b"DEVICE-A")
'
tagged readers x.zip x.zip '\x0b'
for form in gnu posix v7; do
    cp c.o member.o
    tar -c --format=$form -f $form.tar member.o a
    tagged readers $form.tar $form.tar '\x0c'
done
(echo start; head -c 4000000 /dev/zero; echo end) > holes && cp --sparse=always holes sparse
tar -cS --format=gnu -f sparse-gnu.tar sparse
for version in 0.0 0.1 1.0; do tar -cS --format=posix --sparse-version=$version -f sparse-$version.tar sparse; done
for tar in sparse-*.tar; do tagged readers "$tar" "$tar" '\x0c'; done
for program in gzip xz zstd bzip2; do
    $program -c gnu.tar > gnu.tar.$program
    tagged readers gnu.tar.$program gnu.tar.$program '\x0d'
done
for how in 0 1 2 3 4; do
    for file in x.zip gnu.tar sparse-1.0.tar gnu.tar.{gzip,xz,zstd,bzip2} plain.bc hip.hipfb both.bc v1-zlib.bc v2-zlib.bc three.bin v3-zlib.bin omp.o fat.o c.obj c.bc gnu.a thin.a a; do
        line inspect $file.$how "\\x0$how" $file a
    done
done
if [ -f omp14.o ]; then line inspect omp14 '\x00' omp14.o a; fi
line inspect two '\x00' a a b
line inspect kpack '\x00' k a

amd=hip-amdgcn-amd-amdhsa--gfx906:xnack+ host=host-x86_64-unknown-linux-gnu-
cuda=openmp-nvptx64-nvidia-cuda--sm_70
bundler -type=ii -targets=$host,$cuda -input=host -input=a -output=text.ii
bundler -type=s -targets=$host,$cuda -input=host -input=a -output=text.s
"$llvm/llvm-ar" rc bundles.a plain.bc fat.o v3.bc
for type in ii s ll bc o a; do
    case $type in ii) file=text.ii ;; s) file=text.s ;; a) file=bundles.a ;; o) file=fat.o ;; *) file=plain.bc ;; esac
    line front_bundler list.$type '\x00' $file -list -type=$type -input=a
    line front_bundler unbundle.$type '\x00' $file -unbundle -type=$type -input=a -targets=$amd,$host -output=o1 -output=o2 \
        -allow-missing-bundles
    line front_bundler bundle.$type '\x00' c.o -type=$type -targets=$host,$amd -input=a -input=b -output=out
done
line front_bundler packed '\x00' both.bc -unbundle -type=bc -inputs=a -targets=hip-amdgcn-amd-amdhsa-gfx906:xnack+ -outputs=o1 -verbose
line front_bundler check '\x00' bundles.a -unbundle -type=a -check-input-archive -hip-openmp-compatible -input=a -targets=$amd -output=o1
line front_bundler compress '\x00' c.bc -type=bc -compress -compression-level=1 -bundle-align=64 -targets=$host,$amd -input=a -input=b -output=out
line front_bundler hip '\x00' hip.hipfb -list -type=o -input=a '-###' -debug-only=CodeObjectCompatibility
line front_bundler coff '\x00' c.obj -type=o -targets=$host,$amd -input=a -input=b -output=out

line front_wrapper openmp '\x00' three.bin --kind=openmp --triple=x86_64-unknown-linux-gnu -o out.bc a b
line front_wrapper hip '\x00' hip.hipfb --kind=hip -o out.s a
line front_wrapper cuda '\x00' a --kind=cuda --triple=i386-pc-windows-msvc --emit=obj -o out.o a
line front_wrapper old '\x01' c.so -target x86_64-pc-linux-gnu -o out.bc --offload-arch=gfx906 a --offload-arch=gfx90a b -add-omp-offload-notes

# ---- readers of one format, selected by a byte ---------------------------------------------------------------------------------

tagged readers text.ii text.ii '\x00'
for file in plain.bc hip.hipfb aligned.bc; do tagged readers $file $file '\x01'; done
for file in v3.bc v1-zlib.bc v2-zlib.bc; do tagged readers $file $file '\x02'; done
tagged readers v3-zlib.bin v3-zlib.bin '\x03'
for which in 5 6 7 8 9; do for file in c.o fat.o c.obj omp.o c.so; do tagged readers $file $file.$which "\\x0$which"; done; done
tagged readers c.bc c.bc '\x0a'
nvcc=$(sed -n 's|^nvcc path=||p' "${OFFLD_CUDA:-$top/target/cuda}/cuda.txt" 2>/dev/null || true)
if [ -n "$nvcc" ]; then
    echo '__device__ int x; __global__ void k() { x = 1; }' > m.cu
    "$nvcc/bin/nvcc" -rdc=true -gencode=arch=compute_80,code=sm_80 -gencode=arch=compute_80,code=lto_80 -c m.cu -o m.o
    tagged readers m.o m.o '\x0e'
    into inspect m.o m.o
    tagged edit m.o m.o '\x01\x00\x01\x00'
fi

# ---- the editor: the fates of the images, in order, and a file -----------------------------------------------------------------------

# Finished programs with registration code from LLVM's tool, linked as small as possible.
small=(-z max-page-size=512 -z common-page-size=512 -z noseparate-code -z norelro --unresolved-symbols=ignore-all --no-rosegment)
for image in a b; do
    "$llvm/llvm-offload-binary" -o $image.img "--image=file=$image,triple=amdgcn-amd-amdhsa,arch=gfx90$image,kind=openmp"
done
registered() { # NAME KIND FILE…
    "$llvm/llvm-offload-wrapper" --kind="$2" --triple=x86_64-unknown-linux-gnu "${@:3}" -o "$1.bc"
    "$llvm/clang" -Wno-override-module -c -fPIC "$1.bc" -o "$1.o"
    "$llvm/ld.lld" "${small[@]}" -shared "$1.o" -o "$1.so"
    "$llvm/ld.lld" "${small[@]}" -z pack-relative-relocs -pie -e 0 "$1.o" -o "$1.relr"
    "$llvm/ld.lld" "${small[@]}" -e 0 "$1.o" -o "$1.exe"
}
registered openmp openmp a.img b.img
registered hip hip plain.bc

for fates in '\x00\x01' '\x01\x00' '\x02\x00' '\x02\x01'; do
    for file in {openmp,hip}.{so,relr,exe} fat.o omp.o c.obj plain.bc hip.hipfb both.bc v3.bc three.bin v3-zlib.bin text.ii bundles.a; do
        tagged edit $file "$file.${fates//\\x0/}" "$fates$fates$fates$fates"
    done
done
