# shellcheck shell=bash
# Rows of the container tools, with code objects of hundreds of megabytes.

targets=-targets=host-x86_64-unknown-linux-gnu-,hip-amdgcn-amd-amdhsa--gfx906,hip-amdgcn-amd-amdhsa--gfx90a

# KEY TITLE TOOL ARGUMENTS FLOOR-IS FLOOR [NAME=VALUE...]: "OUT" is each side's own output.
container_row() {
    row "$1" "$2" runs="$LARGE_RUNS" before=settled floor_is="$5" floor="${6//OUT/out.floor}" theirs="$llvm/bin/$3 ${4//OUT/out.theirs}" \
        ours="$links/$3 ${4//OUT/out.ours}" "${@:7}"
}

# Checks that both outputs (a list or an image) are equal.
same_output() { cmp -s out.theirs out.ours || echo 'the outputs differ'; }

group_containers() {
    local mib=${SIZE:-256} what bundler=clang-offload-bundler packager=llvm-offload-binary
    code 0 "$mib" one
    code "$mib" "$mib" two
    : > host
    mkdir both
    ln one two both
    what="2 x $mib MiB"
    local bundle="-type=bc $targets -input=host -input=one -input=two -output=OUT"
    local unbundle="-type=bc -unbundle -targets=hip-amdgcn-amd-amdhsa--gfx90a -output=OUT"
    local list='-type=bc -list -input='
    container_row bundle "bundle $what" $bundler "$bundle" 'cp of the bytes' 'cp -r both OUT' after=same_output
    mv out.ours bundle
    container_row list "list $what" $bundler "${list}bundle" 'true' /bin/true
    container_row unbundle 'unbundle one' $bundler "$unbundle -input=bundle" 'cp of the bytes' 'cp one OUT' after=same_output
    container_row compress "bundle $what, compressed" $bundler "-compress $bundle" 'cp of the bytes' 'cp -r both OUT' after=no_larger
    mv out.ours bundle
    container_row list-compressed "list $what, compressed" $bundler "${list}bundle" 'true' /bin/true
    container_row unbundle-compressed 'unbundle one, compressed' $bundler "$unbundle -input=bundle" 'cp of the bytes' 'cp one OUT' \
        after=same_output
    local first=--image=file=one,triple=amdgcn-amd-amdhsa,arch=gfx906,kind=hip second=--image=file=two,triple=amdgcn-amd-amdhsa,arch=gfx90a,kind=hip
    container_row pack "pack $what" $packager "-o OUT $first $second" 'cp of the bytes' 'cp -r both OUT'
    mv out.ours pack
    container_row extract 'extract one' $packager 'pack --image=file=OUT,arch=gfx906' 'cp of the bytes' 'cp one OUT' after=same_output
    container_row wrap "wrap $mib MiB for HIP" llvm-offload-wrapper '--kind=hip --triple=x86_64-unknown-linux-gnu -o OUT.bc one' \
        'cp of the bytes' 'cp one OUT'
    rm -rf one two both bundle pack out.*
}
