; Assembled by llvm-as 22.
target datalayout = "e-m:e-i64:64"
@e = weak constant { i64, i16, i16, i32, ptr, ptr, i64, i64, ptr } zeroinitializer, section "cuda_offloading_entries"
