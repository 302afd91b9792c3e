//! Readers of single formats. The first byte selects one: text bundles, the header of a bundle as a
//! stream, compressed bundles as a stream, packed OffloadBinaries as a stream, fatbinaries, the
//! sections of fat objects, the kernels of device images, bundles in objects, late sections, notes,
//! bitcode, zip files, tar archives, compressed files, modules of nvcc.
#![no_main]

use std::io::{self, Read, Write};

use libfuzzer_sys::fuzz_target;
use offload_formats::bundle::{self, text};
use offload_formats::compose;
use offload_formats::compressed::{Header, Unpack};
use offload_formats::bundled_object::NewSection;
use offload_formats::deferred_section::{self, Wanted};
use offload_formats::offload_binary::Packed;
use offload_formats::bitstream;
use offload_formats::compression::{Compression, Unpacked};
use offload_formats::bundled_object;
use offload_formats::fatbin;
use offload_formats::kernels;
use offload_formats::nvcc;
use offload_formats::offload_sections;
use offload_formats::elf::notes;
use offload_formats::tar::{InMemory, Streamed, TarReader, fault_of};
use offload_formats::zip::{ZipFile, ZipReader};

fuzz_target!(|data: &[u8]| {
    let Some((which, data)) = data.split_first() else { return };
    let size = data.len() as u64;
    offld_fuzz::bounded(data.len(), || match which % 15 {
        0 => {
            let Ok(spans) = text::scan("//", data) else { return };
            let mut end = 0;
            for span in &spans {
                assert!(span.start >= end && span.start + span.size <= size);
                end = span.start + span.size;
            }
            // A bundled text is read back, unless it contains bundle markers itself.
            if !data.windows(5).any(|part| part == b"__STA" || part == b"__END") {
                let bundle =
                    [text::start_marker("//", "host-x").as_bytes(), data, text::end_marker("//", "host-x").as_bytes()].concat();
                let spans = text::scan("//", &bundle[..]).unwrap();
                assert_eq!((spans.len(), spans[0].size), (1, size));
            }
        }
        1 => {
            let Ok(head) = bundle::read_head(data, size) else { return };
            assert!(head.size <= size);
            assert!(head.slots.iter().all(|slot| slot.size == 0 || slot.offset + slot.size <= head.size));
        }
        2 => {
            let Ok(header) = Header::read(data, 0) else { return };
            let mut count = Count(0);
            let Ok(mut plain) = Unpack::new(header, &data[header.size as usize..], 0) else { return };
            if io::copy(&mut plain, &mut count).is_ok() {
                assert_eq!(count.0, header.plain_size);
            }
        }
        3 => {
            let Ok(Some(packed)) = Packed::of(data) else { return };
            assert!(packed.size() <= size);
            let _ = packed.inflate(&mut Count(0));
        }
        4 => {
            let Ok(all) = fatbin::read_all(data) else { return };
            let mut end = 0;
            for fatbin in &all {
                assert!(fatbin.at >= end && fatbin.at + fatbin.size <= size);
                end = fatbin.at + fatbin.size;
                for entry in &fatbin.entries {
                    assert!(fatbin::unpadded(entry.kind, entry.stored) <= entry.stored.len() as u64);
                }
            }
        }
        5 => drop(offload_sections::sections(data)),
        6 => {
            drop(kernels::read(data));
            drop(kernels::code::digests(data));
        }
        7 => objects(data),
        8 => {
            let wanted = Wanted { name: ".llvm.offloading", prefix: ".bss", listed: true };
            let _ = deferred_section::make_room(data.to_vec(), wanted);
        }
        9 => drop(notes::add_wrapper_notes(data)),
        11 => zip_members(data),
        12 => tar_members(data),
        13 => compressed(data),
        14 => modules(data),
        _ => {
            if let Ok(stream) = bitstream::read(data) {
                let _ = bitstream::write(&stream);
            }
            let _ = bitstream::images::insert(data, &[8]);
        }
    });
});

/// Relocatable code of nvcc: modules do not overlap, and the code of each is decompressed or put into an
/// object of its own.
fn modules(data: &[u8]) {
    let Ok(all) = nvcc::modules(data) else { return };
    let mut end = 0;
    for module in all.iter().take(4) {
        assert!(module.at >= end && module.fatbin.len() <= data.len());
        end = module.at + module.fatbin.len() as u64;
        // The copies of one small object may be many.
        for entry in fatbin::entries(module.fatbin).0.iter().take(4) {
            if entry.plain_size < 1 << 20 {
                let _ = entry.plain();
            }
            if entry.kind == fatbin::Kind::LtoIr {
                let uses = nvcc::HostUses::read(data).unwrap_or_default();
                if let Ok(object) = nvcc::lto_object(module, entry, &uses) {
                    let copied = nvcc::modules(&object).expect("an object of offld");
                    assert_eq!(copied.len(), 1);
                }
            }
        }
    }
    let _ = nvcc::module_ids(data);
}

/// Bundles in objects: reads, removes and adds bundles. An added bundle must be readable.
fn objects(data: &[u8]) {
    let readable = bundled_object::bundle_sections(data).is_ok();
    let _ = bundled_object::hip_sections(data);
    let new = [NewSection { id: "hip-x", size: 3 }];
    for plan in [bundled_object::without_bundles(data), bundled_object::with_sections(data, &new)] {
        let Ok(parts) = plan else { continue };
        let size: u64 = parts.iter().map(|part| part.size(|_| 3)).sum();
        if size > 4 * data.len() as u64 + 4096 {
            continue;
        }
        let object = compose::join(data, &parts, &[b"NEW"]).expect("parts are within the object");
        assert_eq!(object.len() as u64, size);
        assert!(!readable || bundled_object::bundle_sections(&object).is_ok());
    }
}

/// Members of a tar archive: in order, within the archive, and of the stated sizes. Reading from a
/// stream must give the same.
fn tar_members(data: &[u8]) {
    const MOST: u64 = 1 << 20;
    let size = data.len() as u64;
    let mut tar = TarReader::new(InMemory::new(data));
    let mut streamed = TarReader::new(Streamed::new(data));
    let mut end = 0;
    loop {
        let (member, other) = (tar.next_member(), streamed.next_member());
        assert_eq!(member.as_ref().ok(), other.as_ref().ok());
        let member = match member {
            Ok(Some(member)) => member,
            Ok(None) => break,
            Err(error) => {
                assert!(fault_of(&error).is_some());
                continue;
            }
        };
        assert!(member.header >= end && member.offset > member.header && member.size <= member.plain_size);
        let (mut count, mut same) = (Count(0), Count(0));
        let whole = io::copy(&mut tar.contents(&member).take(MOST), &mut count).is_ok();
        assert_eq!(whole, io::copy(&mut streamed.contents(&member).take(MOST), &mut same).is_ok());
        assert_eq!(count.0, same.0);
        assert!(!whole || count.0 == member.plain_size.min(MOST));
        end = member.offset;
        assert!(end <= size);
    }
}

/// A compressed file: after an error, reads keep failing, and the reader consumes at most the whole
/// input.
fn compressed(data: &[u8]) {
    const MOST: u64 = 4 << 20;
    let Some(compression) = Compression::of(data) else { return };
    let Ok(mut plain) = Unpacked::new(compression, data) else { return };
    if io::copy(&mut plain.by_ref().take(MOST), &mut Count(0)).is_err() {
        assert!(plain.read(&mut [0]).is_err());
    }
    assert!(plain.taken() <= data.len() as u64);
}

/// Members of a zip file: within the file, without overlaps, and of the sizes in the central
/// directory.
fn zip_members(data: &[u8]) {
    let Ok(zip) = ZipFile::read(data) else { return };
    let mut held = 0;
    for member in zip.members().flatten() {
        held += member.size;
        assert!(held <= data.len() as u64 && member.offset + member.size <= data.len() as u64);
        let Ok(mut plain) = ZipReader::new(&member, &data[member.offset as usize..][..member.size as usize]) else { continue };
        let mut count = Count(0);
        if io::copy(&mut plain, &mut count).is_ok() {
            assert_eq!(count.0, member.plain_size);
        }
    }
}

/// A writer that counts bytes.
struct Count(u64);

impl Write for Count {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
