; Symbols of all kinds. Assembled by llvm-as 22.
target triple = "x86_64-unknown-linux-gnu"
module asm ".globl from_asm; from_asm: jmp to_asm@PLT"
@global = global i32 0
@hidden = hidden global i32 0
@protected = protected global i32 0
@local = internal global i32 0
@weak = weak global i32 0
@common = common global i32 0
@missing = external global i32
@maybe = extern_weak global i32
@"\01raw" = global i32 0
@inlined = available_externally global i32 0
@tls = thread_local global i32 0
@0 = global i32 0
@llvm.used = appending global [1 x ptr] [ptr @local], section "llvm.metadata"
@alias = weak alias i32, ptr @local
@chosen = hidden ifunc void (), ptr @choose
define void @f() { call void @g() ret void }
define linkonce_odr hidden void @inline() { ret void }
define weak_odr void @odr() { ret void }
define internal ptr @choose() { ret ptr @f }
declare void @g()
declare void @llvm.trap()
