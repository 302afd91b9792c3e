//! Edits the output of a relocatable offload link (docs/spec/link-driver.md 9.1): removes linked
//! device images, and gives the entry tables and their bounds unique names. Without that, a later
//! link would link those images again and mix its entries with theirs.

use super::{Edit, SectionView, SymbolView, plan};
use crate::error::Error;
use crate::formats::compose::Part;
use crate::formats::elf::SHT_LLVM_OFFLOADING;
use crate::formats::offload_sections::{NAME, RELOCATABLE, entry_table, is_longer};
use crate::formats::u64_at;
use md5::{Digest, Md5};

/// Prefixes of the symbols of a table; the name of the table follows. The last one belongs to a
/// hidden global symbol of LLVM up to 19, which two relocatable outputs must not both define.
const BOUNDS: [&str; 3] = ["__start_", "__stop_", "__dummy."];
/// The name of that hidden symbol in LLVM 14 and 15.
pub(crate) const OLD_DUMMY: &str = "__dummy.omp_offloading.entry";

/// Whether this section of a relocatable output contains linked device code: `.llvm.offloading` by
/// name or type, or `.llvm.offloading.<triple>.<arch>` of LLVM 14.
pub fn is_fat_section(section: SectionView<'_>) -> bool {
    (section.name == NAME.as_bytes()
        || is_longer(section.name)
        || section.kind == SHT_LLVM_OFFLOADING)
        && !section.name.starts_with(RELOCATABLE.as_bytes())
}

/// Returns LLVM's tag of a relocatable output: the first 8 bytes of its MD5 digest as a
/// little-endian number, in hexadecimal without leading zeros.
pub fn entry_table_tag(output: &[u8]) -> String {
    format!("{:x}", u64_at(&Md5::digest(output), 0))
}

/// Returns the parts of the relocatable output `data` without its fat sections, and with `_<tag>`
/// appended to the names of its entry tables and their bounds. Marks the tables for linkers to
/// keep, because nothing refers to an entry, and because in ld.lld the bounds of a table do not
/// keep it alive by default.
pub fn rename_entry_tables(data: &[u8], tag: &str) -> Result<Vec<Part>, Error> {
    if tag.is_empty()
        || !tag
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    {
        return Err(Error::usage(format!(
            "invalid tag `{tag}`: expected letters, digits and _"
        )));
    }
    let tagged = |name: &[u8]| [name, b"_", tag.as_bytes()].concat();
    let is_table = |section: SectionView<'_>| entry_table(section.name).is_some();
    let rename_section = |section: SectionView<'_>| is_table(section).then(|| tagged(section.name));
    let rename_symbol = |symbol: SymbolView<'_>| {
        (!symbol.local && goes_with_a_table(symbol.name)).then(|| tagged(symbol.name))
    };
    let edit = Edit {
        remove: &is_fat_section,
        rename_section: &rename_section,
        rename_symbol: &rename_symbol,
        retain: &is_table,
    };
    Ok(plan(data, &edit)?)
}

fn goes_with_a_table(symbol: &[u8]) -> bool {
    let of_table = |prefix: &&str| symbol.strip_prefix(prefix.as_bytes()).and_then(entry_table);
    BOUNDS.iter().any(|prefix| of_table(prefix).is_some()) || symbol == OLD_DUMMY.as_bytes()
}
