; Assembled by llvm-as 22.
target datalayout = "e-m:e-p:32:32-i128:128-f64:32:64"
@e = weak constant { ptr, ptr, i32, i32, i32 } zeroinitializer, section "omp_offloading_entries"
