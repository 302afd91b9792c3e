//! The bits of a bitstream, lowest first: numbers of fixed width, numbers in chunks (VBR), words
//! and bytes.

use crate::error::Malformed;

/// A position in a bitstream. Reading past the end is an error, which detects wrong lengths in the
/// data.
#[derive(Debug, Clone)]
pub(crate) struct Bits<'a> {
    data: &'a [u8],
    at: u64,
}

impl<'a> Bits<'a> {
    /// The bits of `data`, starting at bit number `at`.
    pub(crate) fn new(data: &'a [u8], at: u64) -> Self {
        Bits { data, at }
    }

    /// All data, including the part before the position.
    pub(crate) fn data(&self) -> &'a [u8] {
        self.data
    }

    /// The number of the next bit.
    pub(crate) fn at(&self) -> u64 {
        self.at
    }

    /// The number of all bits, including those before the position.
    pub(crate) fn len(&self) -> u64 {
        self.data.len() as u64 * 8
    }

    /// The error `what` at this position.
    pub(crate) fn fault(&self, what: &'static str) -> Malformed {
        Malformed::new(what, self.at / 8)
    }

    /// Reads a number of `width` bits, at most 64.
    pub(crate) fn fixed(&mut self, width: u32) -> Result<u64, Malformed> {
        let skip = (self.at % 8) as u32;
        let start = usize::try_from(self.at / 8).unwrap_or(usize::MAX);
        // Fast path: the bits are within eight bytes of the data.
        if width + skip <= 64
            && let Some(word) = self.data.get(start..).and_then(|rest| rest.first_chunk())
        {
            let word = u64::from_le_bytes(*word);
            self.at += u64::from(width);
            return Ok(word.checked_shr(skip).unwrap_or(0) & mask(width));
        }
        self.slowly(width)
    }

    /// The same as `fixed`, but byte by byte, for the end of the data.
    fn slowly(&mut self, width: u32) -> Result<u64, Malformed> {
        let mut value = 0;
        let mut got = 0;
        while got < width {
            let byte = usize::try_from(self.at / 8)
                .ok()
                .and_then(|at| self.data.get(at))
                .copied();
            let byte = byte.ok_or(Malformed::new(
                "the bitstream is cut short",
                self.data.len() as u64,
            ))?;
            let skip = (self.at % 8) as u32;
            let take = (8 - skip).min(width - got);
            value |= (u64::from(byte) >> skip & mask(take)) << got;
            got += take;
            self.at += u64::from(take);
        }
        Ok(value)
    }

    /// Reads a number in chunks of `width` bits (2 to 64). The highest bit of a chunk marks that
    /// another chunk follows.
    pub(crate) fn vbr(&mut self, width: u32) -> Result<u64, Malformed> {
        let more = 1u64 << (width - 1);
        let (mut value, mut shift) = (0u64, 0);
        loop {
            let chunk = self.fixed(width)?;
            let part = chunk & (more - 1);
            if shift >= 64 || (part << shift) >> shift != part {
                return Err(self.fault("a number of more than 64 bits"));
            }
            value |= part << shift;
            if chunk & more == 0 {
                return Ok(value);
            }
            shift += width - 1;
        }
    }

    /// Advances to the next 32-bit word. The skipped bits must be zeros, as LLVM writes them.
    pub(crate) fn align(&mut self) -> Result<(), Malformed> {
        let skipped = (32 - self.at % 32) % 32;
        if self.fixed(skipped as u32)? != 0 {
            return Err(self.fault("padding that is not zero"));
        }
        Ok(())
    }

    /// Skips `count` times `width` bits.
    pub(crate) fn pass(&mut self, count: u64, width: u32) -> Result<(), Malformed> {
        let end = count
            .checked_mul(width.into())
            .and_then(|bits| self.at.checked_add(bits))
            .filter(|end| *end <= self.len());
        self.at = end.ok_or_else(|| self.fault("a value past the end"))?;
        Ok(())
    }

    /// Returns the next `count` bytes. The position must be at the start of a byte.
    pub(crate) fn bytes(&mut self, count: u64) -> Result<&'a [u8], Malformed> {
        let bytes = crate::formats::slice(
            self.data,
            self.at / 8,
            count,
            "bytes past the end",
            self.at / 8,
        )?;
        self.at += count * 8;
        Ok(bytes)
    }

    /// Appends the next `count` bytes to `out`. The position may be within a byte.
    pub(crate) fn shifted_bytes(&mut self, count: u64, out: &mut Vec<u8>) -> Result<(), Malformed> {
        let (at, skip) = (self.at / 8, (self.at % 8) as u32);
        self.pass(count, 8)?;
        let covered = count + u64::from(skip > 0 && count > 0);
        let bytes = crate::formats::slice(self.data, at, covered, "bytes past the end", at)?;
        if skip == 0 {
            out.extend(bytes);
        } else {
            out.extend(bytes.windows(2).map(|pair| match pair {
                [low, high] => low >> skip | high << (8 - skip),
                _ => 0,
            }));
        }
        Ok(())
    }
}

/// The lowest `width` bits.
fn mask(width: u32) -> u64 {
    u64::MAX.checked_shr(64 - width.min(64)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_by_word_and_by_byte_agree() {
        let data: Vec<u8> = (0..40u32).map(|index| (index * 73 + 11) as u8).collect();
        for at in 0..100 {
            for width in 0..=64 {
                let (mut one, mut two) = (Bits::new(&data, at), Bits::new(&data, at));
                assert_eq!(one.fixed(width), two.slowly(width), "{at} {width}");
                assert_eq!(one.at(), two.at());
            }
        }
    }

    #[test]
    fn bytes_are_read_from_between_bytes() {
        let data: Vec<u8> = (0..40u32).map(|index| (index * 73 + 11) as u8).collect();
        for at in 0..20 {
            let (mut one, mut two, mut out) =
                (Bits::new(&data, at), Bits::new(&data, at), Vec::new());
            one.shifted_bytes(37, &mut out).unwrap();
            assert_eq!(
                out,
                (0..37)
                    .map(|_| two.fixed(8).unwrap() as u8)
                    .collect::<Vec<_>>()
            );
            assert_eq!(one.at(), two.at());
        }
        let mut bits = Bits::new(&data, 8 * 39 + 1);
        assert_eq!(bits.shifted_bytes(1, &mut Vec::new()).unwrap_err().at, 39);
        assert_eq!(
            bits.shifted_bytes(u64::MAX, &mut Vec::new())
                .unwrap_err()
                .at,
            39
        );
    }

    #[test]
    fn reading_past_the_end_is_an_error() {
        let mut bits = Bits::new(&[0xff; 9], 32);
        assert_eq!(bits.fixed(64).unwrap_err().at, 9);
        assert_eq!(
            Bits::new(&[0xff; 12], 0).vbr(6).unwrap_err().what,
            "a number of more than 64 bits"
        );
        assert_eq!(Bits::new(&[1; 4], 31).pass(2, 1).unwrap_err().at, 3);
    }
}
