; Names as Windows on i386 has them. Assembled by llvm-as 22.
target datalayout = "e-m:x-p:32:32"
@x = global i32 0
@"\01_raw" = global i32 0
