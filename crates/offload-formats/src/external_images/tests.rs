//! Tests of tables of external images.

use std::io::Write;

use super::*;

fn table() -> Table {
    let image = |name: &str, arch: &str, devices| ExternalImage {
        name: name.to_owned(),
        id: format!("hipv4-amdgcn-amd-amdhsa--{arch}"),
        arch: arch.to_owned(),
        size: 4096,
        digest: 0x0123_4567_89ab_cdef,
        devices,
    };
    Table {
        kind: OffloadKind::Hip,
        directory: "saxpy.images".to_owned(),
        images: vec![
            image("gfx90a-1.co", "gfx90a", Devices::Amd(90010)),
            image("x.img", "x86_64", Devices::Host),
            image("s.spv", "amdgcnspirv", Devices::Any),
        ],
    }
}

#[test]
fn tables_are_read_as_they_are_written() {
    let one = table().write().unwrap();
    assert_eq!(read_all(&one), Ok(vec![table()]));
    // Tables of several objects, aligned by the linker.
    let mut both = one.clone();
    both.resize(both.len().next_multiple_of(ALIGN as usize), 0);
    both.extend(&one);
    both.extend([0; 5]);
    assert_eq!(read_all(&both), Ok(vec![table(), table()]));
    assert_eq!(read_all(&[0; 64]), Ok(Vec::new()));
}

#[test]
fn every_damaged_byte_is_harmless() {
    let good = table().write().unwrap();
    for at in 0..good.len() {
        for value in [0, 1, 0x7f, 0xff] {
            let mut bad = good.clone();
            bad[at] = value;
            let _ = read_all(&bad);
        }
        assert!(read_all(&good[..at]).is_err() || at == 0, "{at}");
    }
    let mut bad = good.clone();
    bad[8] = 2;
    let fault = read_all(&bad).unwrap_err();
    assert_eq!(
        (fault.what, fault.at),
        ("unknown version of external images", 8)
    );
}

#[test]
fn file_names_are_not_paths() {
    for name in ["", ".", "..", "../x", "/etc/passwd"] {
        let mut table = table();
        table.images[1].name = name.to_owned();
        let fault = read_all(&table.write().unwrap()).unwrap_err();
        let at = HEADER + ROW + 16;
        let what = "a file name of the table of images is a path";
        assert_eq!((fault.what, fault.at), (what, at as u64), "{name:?}");
    }
    let mut table = table();
    table.directory = "a\0b".to_owned();
    assert_eq!(table.write(), None);
}

#[test]
fn devices_are_those_that_run_the_code() {
    let of = |triple: &str, arch: &str| Devices::of(&Target::new(triple, arch), "x86_64");
    let amd = "amdgcn-amd-amdhsa";
    assert_eq!(of(amd, "gfx90a:xnack+"), Devices::Amd(90010));
    assert_eq!(of(amd, "gfx1100"), Devices::Amd(110_000));
    assert_eq!(of(amd, "gfx9-4-generic"), Devices::AmdFamily(9));
    assert_eq!(of(amd, "gfx1250-strict"), Devices::Any);
    assert_eq!(of("x86_64-pc-linux-gnu", ""), Devices::Host);
    assert_eq!(of("aarch64-linux-gnu", ""), Devices::Any);
    assert_eq!(of("nvptx64-nvidia-cuda", "sm_90"), Devices::Any);
    assert_eq!(of("spirv64-amd-amdhsa", "amdgcnspirv"), Devices::Any);
}

#[test]
fn the_digest_is_that_of_the_loader() {
    // From the specification of XXH64, and `xxhsum -H1`.
    let digest = |bytes: &[u8]| {
        let mut digest = Digest::default();
        digest.write_all(bytes).unwrap();
        digest.finish()
    };
    assert_eq!(digest(b""), 0xef46_db37_51d8_e999);
    assert_eq!(digest(b"abc"), 0x44bc_2cf5_ad77_0999);
}
