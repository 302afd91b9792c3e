//! The parts of a module's data layout that determine the sizes of integers and pointers and the
//! prefix of symbol names (source: LLVM's language reference, "Data Layout").

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Layout {
    /// Address space, size and alignment in bytes.
    pointers: Vec<(u64, u64, u64)>,
    /// Width in bits and alignment in bytes, sorted by width.
    integers: Vec<(u64, u64)>,
    /// The prefix of symbol names.
    pub prefix: &'static str,
}

impl Layout {
    /// Parses the layout `text`. Missing and malformed parts get LLVM's defaults.
    pub(super) fn read(text: &[u8]) -> Layout {
        let mut layout = Layout {
            pointers: vec![(0, 8, 8)],
            // LLVM's defaults, which most targets have. The default alignment of `i64` is 4 bytes.
            integers: vec![(1, 1), (8, 1), (16, 2), (32, 4), (64, 4)],
            prefix: "",
        };
        for part in String::from_utf8_lossy(text).split('-') {
            // Mach-O, and COFF on i386.
            if part == "m:o" || part == "m:x" {
                layout.prefix = "_";
            }
            layout.take(part);
        }
        layout
    }

    fn take(&mut self, part: &str) -> Option<()> {
        let mut fields = part.split(':');
        let kind = fields.next()?;
        let mut bytes = || fields.next()?.parse().ok().map(|bits: u64| bits / 8);
        if let Some(space) = kind.strip_prefix('p') {
            // Letters after `p` are properties of the pointers, which do not matter here.
            let space = space.trim_start_matches(|c: char| c.is_ascii_alphabetic());
            let space = if space.is_empty() {
                0
            } else {
                space.parse().ok()?
            };
            let size = bytes()?;
            let align = bytes().filter(|align| *align > 0).unwrap_or(size);
            self.pointers.retain(|(other, ..)| *other != space);
            self.pointers.push((space, size, align.max(1)));
        } else if let Some(width) = kind.strip_prefix('i') {
            let (width, align) = (width.parse().ok()?, bytes()?.max(1));
            self.integers.retain(|(other, _)| *other != width);
            self.integers.push((width, align));
            self.integers.sort();
        }
        Some(())
    }

    /// Size and alignment of an integer of `width` bits. The alignment is that of the next larger
    /// width in the layout, else that of the largest.
    pub(super) fn integer(&self, width: u64) -> (u64, u64) {
        let next = self
            .integers
            .iter()
            .find(|(other, _)| *other >= width)
            .or(self.integers.last());
        let align = next.map_or(1, |(_, align)| *align);
        (width.div_ceil(8).next_multiple_of(align), align)
    }

    /// Size and alignment of a pointer of the address space.
    pub(super) fn pointer(&self, space: u64) -> (u64, u64) {
        let pointer_of = |space| self.pointers.iter().find(|(other, ..)| *other == space);
        pointer_of(space)
            .or(pointer_of(0))
            .map_or((8, 8), |(_, size, align)| (*size, *align))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_the_target() {
        let x86_64 = Layout::read(
            b"e-m:e-p270:32:32-p271:32:32-p272:64:64-i64:64-i128:128-f80:128-n8:16:32:64-S128",
        );
        assert_eq!(
            (x86_64.pointer(0), x86_64.pointer(270), x86_64.pointer(3)),
            ((8, 8), (4, 4), (8, 8))
        );
        assert_eq!(
            (x86_64.integer(64), x86_64.integer(128), x86_64.integer(24)),
            ((8, 8), (16, 16), (4, 4))
        );
        let i386 = Layout::read(b"e-m:x-p:32:32-p270:32:32-i128:128-f64:32:64");
        assert_eq!(
            (i386.pointer(0), i386.integer(64), i386.prefix),
            ((4, 4), (8, 4), "_")
        );
        assert_eq!(Layout::read(b"").integer(64), (8, 4));
        assert_eq!(Layout::read(b"pe7:160:256:256:32").pointer(7), (20, 32));
        assert_eq!(
            Layout::read(b"p:x-i8-i:-p:::-i18446744073709551615:8").pointer(0),
            (8, 8)
        );
    }
}
