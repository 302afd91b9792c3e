//! Faults of LLVM's wrapper in the handling of its command line, by number.

use super::super::Mode;
use super::*;

#[test]
fn f1_without_an_output_the_objects_are_still_linked() {
    assert_eq!(
        host(Role::Wrapper, "--host-triple=x86_64-pc-linux-gnu a.o"),
        "W a.o -lR"
    );
    assert_eq!(
        host(Role::Wrapper, "-m elf_x86_64 -lfoo a.o"),
        "-m elf_x86_64 W -lfoo a.o -lR"
    );
    assert_eq!(host(Role::Wrapper, ""), "W -lR");
    assert_eq!(host(Role::Ld, "--gc-sections"), "--gc-sections W -lR");
}

#[test]
fn f2_the_objects_are_linked_once_after_the_last_output() {
    assert_eq!(
        host(Role::Wrapper, "a.o -o x -o y b.o"),
        "a.o -o x -o y W b.o -lR"
    );
    assert_eq!(
        host(Role::Wrapper, "-ox a.o --output=y"),
        "-ox a.o --output=y W -lR"
    );
    assert_eq!(
        host(Role::Wrapper, "--output x a.o"),
        "--output x W a.o -lR"
    );
    assert_eq!(
        host(Role::Wrapper, "a.o -out:x.exe b.o"),
        "a.o -out:x.exe W b.o -lR"
    );
    assert_eq!(settings("a.o -o x -oy /out:z").output, Some("y".into()));
}

#[test]
fn f2_objects_are_inserted_only_where_they_are_linked() {
    // The linker drops an unreferenced object between --start-lib and --end-lib, and treats one
    // after -b binary as data.
    assert_eq!(
        host(Role::Ld, "a.o --start-lib b.o -o x c.o --end-lib"),
        "W a.o --start-lib b.o -o x c.o --end-lib -lR"
    );
    assert_eq!(
        host(Role::Ld, "-b binary data -b elf64-x86-64 a.o"),
        "W -b binary data -b elf64-x86-64 a.o -lR"
    );
    assert_eq!(
        host(Role::Ld, "--start-group a.a b.a --end-group"),
        "--start-group W a.a b.a --end-group -lR"
    );
}

#[test]
fn f3_library_is_a_library() {
    assert_eq!(
        inputs("--library foo --library=bar -library baz -lq -l r -l:libs.a"),
        ["-lfoo", "-lbar", "-lbaz", "-lq", "-lr", "-l:libs.a"]
    );
    assert!(settings("--library foo").host.library_dirs.is_empty());
    assert_eq!(
        host(Role::Wrapper, "--library foo -o x"),
        "--library foo -o x W -lR"
    );
}

#[test]
fn f4_pop_state_restores() {
    assert_eq!(
        inputs(
            "--push-state --whole-archive -Bstatic --as-needed A.a --pop-state B.a --whole-archive C.a --no-whole-archive D.a"
        ),
        ["A.a+whole+static+needed", "B.a", "C.a+whole", "D.a"]
    );
    assert_eq!(
        inputs("--pop-state a.o --push-state --push-state --whole-archive b.a --pop-state c.a"),
        ["a.o", "b.a+whole", "c.a"]
    );
}

#[test]
fn f5_option_values_are_not_inputs() {
    // `-T` is searched only as a linker script.
    for line in [
        "-T script.o -m elf_x86_64 -e main a.o",
        "-Tscript.o -melf_x86_64 -emain -uf a.o",
    ] {
        assert_eq!(inputs(line), ["-T script.o", "a.o"]);
    }
    assert_eq!(
        inputs(
            "-dynamic-linker /lib64/ld.so --dynamic-linker=/lib/ld.so -I /lib/ld.so -soname x.so -h x.so a.o"
        ),
        ["a.o"]
    );
    assert_eq!(
        inputs(
            "-plugin p.so -plugin-opt x --plugin-opt=y -rpath d -rpath-link d -R d -z now -znow a.o"
        ),
        ["a.o"]
    );
    assert_eq!(
        inputs(
            "--version-script v.map --dynamic-list d.list --defsym a=b -Map m.map -Ttext 0x1000 -Ttext=0 a.o"
        ),
        ["a.o"]
    );
    assert_eq!(
        inputs(
            "--wrap f --undefined g --require-defined h --sysroot / --section-start .x=1 --just-symbols s.o a.o"
        ),
        ["a.o"]
    );
    assert_eq!(
        inputs(
            "-y s -Y p -A a -c m -f x -F y -P a -O 2 -C d -dT s --chroot d --threads 4 -G 8 a.o"
        ),
        ["-T s", "a.o"]
    );
    // These options take no operand, although their first letter does.
    assert_eq!(
        inputs(
            "-emit-relocs a.o -eh-frame-hdr b.o -export-dynamic c.o -unique d.o -build-id e.o --threads f.o -G g.o"
        ),
        ["a.o", "b.o", "c.o", "d.o", "e.o", "f.o", "g.o"]
    );
    assert_eq!(settings("-omagic a.o").output, Some("magic".into()));
    assert_eq!(settings("--omagic a.o").output, None);
    // A missing operand, or one that looks like an option, is not guessed.
    assert_eq!(inputs("a.o -T"), ["a.o"]);
    assert_eq!(inputs("-z --start-lib a.o"), ["a.o"]);
}

#[test]
fn f6_start_lib_makes_objects_lazy() {
    assert_eq!(
        inputs("a.o --start-lib b.o c.o --end-lib d.o"),
        ["a.o", "b.o+lazy", "c.o+lazy", "d.o"]
    );
    assert_eq!(
        inputs("-( a.a b.a -) c.a --start-group d.a --end-group"),
        ["a.a+group0", "b.a+group0", "c.a", "d.a+group1"]
    );
}

#[test]
fn f18_static_and_dynamic_apply_to_later_inputs() {
    assert_eq!(
        inputs(
            "-la -Bstatic -lb -Bdynamic -lc -dn -ld -dy -le -non_shared -lf -call_shared -lg -static -lh"
        ),
        [
            "-la",
            "-lb+static",
            "-lc",
            "-ld+static",
            "-le",
            "-lf+static",
            "-lg",
            "-lh+static"
        ]
    );
    assert!(settings("-static a.o").host.static_link);
    assert!(!settings("-Bstatic a.o").host.static_link);
}

#[test]
fn f23_help_and_version_are_ours_only_alone() {
    let mode = |role, line| arguments(role, line).mode();
    for role in [Role::Wrapper, Role::Ld] {
        assert_eq!(mode(role, "--help"), Mode::Help { hidden: false });
        assert_eq!(mode(role, "--help-hidden"), Mode::Help { hidden: true });
        assert_eq!(mode(role, "--version"), Mode::Version);
        assert_eq!(mode(role, "-version"), Mode::Version);
        for line in [
            "-o x a.o --version",
            "--help a.o",
            "-v",
            "-V",
            "--verbose",
            "-help",
            "--host-triple=x --version",
        ] {
            assert_eq!(mode(role, line), Mode::Link, "{line}");
        }
    }
    assert_eq!(
        host(Role::Wrapper, "--host-triple=x -o x a.o --version --help"),
        "-o x W a.o -lR --version --help"
    );
    assert_eq!(joined(&arguments(Role::Ld, "-v").host_line(&[], &[])), "-v");
}
