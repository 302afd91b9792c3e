; Assembled by llvm-as 22.
target datalayout = "e-m:e-i64:64"
@e = weak constant { ptr, ptr, i64, i32, i32 } zeroinitializer, section "omp_offloading_entries"
