//! Reading bitcode: host objects of clang 14 and 22 (assembled from their printed IR), and modules made up for the purpose.

use super::*;
use inkwell::context::Context;
use inkwell::memory_buffer::MemoryBuffer;

fn assemble(ir: &str) -> Result<Vec<u8>, Box<dyn Error>> {
    let context = Context::create();
    let text = MemoryBuffer::create_from_memory_range_copy(ir.as_bytes(), "ir");
    let module = context.create_module_from_ir(text).map_err(|error| error.to_string())?;
    let buffer = module.write_bitcode_to_memory();
    Ok(buffer.as_slice()[..buffer.get_size()].to_vec())
}

fn names(symbols: &[Symbol]) -> Vec<(&str, bool)> {
    symbols.iter().map(|symbol| (symbol.name.as_str(), symbol.weak)).collect()
}

#[test]
fn images_are_those_that_the_module_lists() -> Outcome {
    let found = embedded_images(&assemble(
        r#"
        @one = private constant [3 x i8] c"one", section ".llvm.offloading"
        @two = private constant [2 x i8] c"\00\01", section ".llvm.offloading"
        @unlisted = private constant [1 x i8] c"x", section ".llvm.offloading"
        @other = private constant [1 x i8] c"y", section ".other"
        @old = private constant [3 x i8] c"old", section ".llvm.offloading.nvptx64-nvidia-cuda.sm_70"
        @left = private constant [1 x i8] c"z", section ".llvm.offloading.relocatable"
        @empty = external constant [0 x i8]
        !llvm.embedded.objects = !{!0, !1, !2, !3, !4, !5}
        !0 = !{ptr @one, !".llvm.offloading"}
        !1 = !{ptr @two, !".llvm.offloading"}
        !2 = !{ptr @other, !".other"}
        !3 = !{null, !".llvm.offloading"}
        !4 = !{ptr @one}
        !5 = !{ptr @empty, !".llvm.offloading"}
        "#,
    )?)?;
    let found: Vec<_> = found.iter().map(|image| (image.section.as_str(), &image.bytes[..])).collect();
    let named = (".llvm.offloading.nvptx64-nvidia-cuda.sm_70", &b"old"[..]);
    assert_eq!(found, [(".llvm.offloading", &b"one"[..]), (".llvm.offloading", b"\0\x01"), named]);
    Ok(())
}

#[test]
fn symbols_are_those_of_the_object() -> Outcome {
    let symbols = symbols(&assemble(
        r#"
        target triple = "x86_64-unknown-linux-gnu"
        module asm ".globl from_asm; from_asm: jmp to_asm@PLT"
        @global = global i32 0
        @hidden = hidden global i32 0
        @local = internal global i32 0
        @weak = weak global i32 0
        @common = common global i32 0
        @missing = external global i32
        @maybe = extern_weak global i32
        @"\01raw" = global i32 0
        @inlined = available_externally global i32 0
        @llvm.used = appending global [1 x ptr] [ptr @local], section "llvm.metadata"
        @alias = alias i32, ptr @local
        define void @f() { call void @g() ret void }
        define linkonce_odr void @inline() { ret void }
        declare void @g()
        declare void @llvm.trap()
        "#,
    )?)?;
    assert_eq!(symbols.triple, X86);
    let defined = names(&symbols.defined);
    for wanted in [("global", false), ("hidden", false), ("weak", true), ("common", true), ("raw", false), ("alias", false)] {
        assert!(defined.contains(&wanted), "{wanted:?} {defined:?}");
    }
    assert!(defined.contains(&("f", false)) && defined.contains(&("inline", true)) && defined.contains(&("from_asm", true)));
    assert!(!defined.iter().any(|(name, _)| ["local", "inlined"].contains(name) || name.contains("llvm.")));
    assert!(symbols.defined.iter().any(|symbol| symbol.name == "hidden" && symbol.hidden));
    let undefined = names(&symbols.undefined);
    for wanted in [("missing", false), ("maybe", true), ("inlined", false), ("g", false), ("to_asm", false)] {
        assert!(undefined.contains(&wanted), "{wanted:?} {undefined:?}");
    }
    assert!(!undefined.iter().any(|(name, _)| name.contains("llvm.trap")));
    assert_eq!((symbols.entries, symbols.refers_to_bounds), (None, false));
    Ok(())
}

#[test]
fn names_are_as_windows_has_them() -> Outcome {
    let ir = "target datalayout = \"e-m:x-p:32:32\"\n@x = global i32 0\n@\"\\01_raw\" = global i32 0";
    assert_eq!(names(&symbols(&assemble(ir)?)?.defined), [("_x", false), ("_raw", false)]);
    Ok(())
}

#[test]
fn the_generation_is_read_off_the_entries() -> Outcome {
    let of = |ir: &str| -> Result<_, Box<dyn Error>> {
        let found = symbols(&assemble(ir)?)?;
        Ok((found.entries, found.refers_to_bounds))
    };
    assert_eq!(of(&reference("clang22-omp-host")?)?, (Some(Generation::Llvm21), false));
    let narrow = "@e = weak constant { ptr, ptr, i64, i32, i32 } zeroinitializer, section \"omp_offloading_entries\", align 1";
    assert_eq!(of(narrow)?, (Some(Generation::Llvm15), false));
    let wide =
        "@e = weak constant { i64, i16, i16, i32, ptr, ptr, i64, i64, ptr } zeroinitializer, section \"cuda_offloading_entries\"";
    assert_eq!(of(wide)?, (Some(Generation::Llvm20), false));
    let coff =
        "@e = weak constant { i64, i16, i16, i32, ptr, ptr, i64, i64, ptr } zeroinitializer, section \"llvm_offload_entries$OE\"";
    assert_eq!(of(coff)?, (Some(Generation::Llvm21), false));
    for generation in [Generation::Llvm14, Generation::Llvm15, Generation::Llvm20, Generation::Llvm21] {
        for host in [X86, "x86_64-pc-windows-msvc"] {
            let wrapped = symbols(&compile_bitcode(&plan(host, generation, vec![image(X86, "", b"X")]))?)?;
            assert_eq!((wrapped.entries, wrapped.refers_to_bounds), (None, true), "{generation:?} {host}");
        }
    }
    Ok(())
}

#[test]
fn what_clang_14_wrote_is_read() -> Outcome {
    // Typed pointers; assembled by llvm-as 14 from clang14-omp-host.ll, with an image in a section of its name.
    let bitcode = include_bytes!("clang14-host.bc");
    let found = symbols(bitcode)?;
    assert_eq!(found.entries, Some(Generation::Llvm14));
    assert!(names(&found.undefined).contains(&("__tgt_target_mapper", false)));
    let images = embedded_images(bitcode)?;
    assert_eq!(images, [Embedded { section: ".llvm.offloading.x86_64-unknown-linux-gnu.".to_owned(), bytes: b"RAW".to_vec() }]);
    Ok(())
}

#[test]
fn a_wrapped_module_is_read() -> Outcome {
    let bitcode = assemble("@x = global i32 0")?;
    let mut wrapped = 0x0b17_c0deu32.to_le_bytes().to_vec();
    for field in [0, 20, bitcode.len() as u32, 7] {
        wrapped.extend(field.to_le_bytes());
    }
    wrapped.extend(&bitcode);
    assert_eq!(names(&symbols(&wrapped)?.defined), [("x", false)]);
    Ok(())
}

#[test]
fn broken_bitcode_is_an_error() -> Outcome {
    let bitcode = assemble(&reference("clang22-omp-host")?)?;
    for bad in [&bitcode[..0], b"BC\xc0\xde", b"not bitcode at all..", &bitcode[..64], &bitcode[..bitcode.len() / 8 * 4]] {
        let error = symbols(bad).err().ok_or("no error")?.to_string();
        assert!(error.starts_with("LLVM cannot read this bitcode: "), "{error}");
    }
    Ok(())
}

#[test]
fn calls_run_side_by_side() -> Outcome {
    let bitcode = assemble(&reference("clang22-omp-host")?)?;
    let wanted = compile(&plan(X86, Generation::Llvm21, vec![image(X86, "", b"X")]))?;
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    (0..20).all(|_| {
                        let made = compile(&plan(X86, Generation::Llvm21, vec![image(X86, "", b"X")]));
                        made.is_ok_and(|made| made == wanted) && symbols(&bitcode).is_ok() && symbols(&bitcode[..64]).is_err()
                    })
                })
            })
            .collect();
        assert!(threads.into_iter().all(|thread| thread.join().is_ok_and(|fine| fine)));
    });
    Ok(())
}
