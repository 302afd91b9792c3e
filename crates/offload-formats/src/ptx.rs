//! PTX, NVIDIA's assembly text: the directives at its start, and the kernels that it defines
//! (NVIDIA's "PTX ISA", Module Directives and Kernel and Function Directives).
//!
//! ```
//! use offload_formats::ptx;
//!
//! let text = b"//\n.version 8.7\n.target sm_90a, debug\n.address_size 64\n.visible .entry _Z4axpyPf(.param .u64 p)\n{ ret; }\n";
//! let head = ptx::head(text);
//! assert_eq!((head.version, head.target.as_deref()), (Some((8, 7)), Some("sm_90a")));
//! assert_eq!(ptx::kernels(text), ["_Z4axpyPf"]);
//! ```

use memchr::memmem;

/// The directives at the start of a module.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Head {
    /// The PTX version. A driver reads its own and earlier versions.
    pub version: Option<(u32, u32)>,
    /// The target architecture: `sm_90a`.
    pub target: Option<String>,
    /// The size of addresses in bits.
    pub address_size: Option<u32>,
}

/// The limit on the length of a kernel's name, which is a symbol of a cubin.
const LONGEST_NAME: usize = 1 << 16;

/// The number of bytes before a directive that are searched for a comment that hides it.
const LONGEST_LINE: usize = 1 << 12;

/// Reads the directives of `text`. Missing ones and those in an unknown form are `None`.
pub fn head(text: &[u8]) -> Head {
    let arguments = |directive: &[u8]| {
        let at = directives(text, directive).next()?;
        let line = text.get(at..)?.split(|byte| *byte == b'\n').next()?;
        std::str::from_utf8(line).ok()
    };
    let version = arguments(b".version").and_then(|line| {
        let (major, minor) = line.trim().split_once('.')?;
        Some((major.parse().ok()?, minor.parse().ok()?))
    });
    let targets = arguments(b".target").map(|line| line.split(',').map(str::trim));
    let target =
        targets.and_then(|mut all| all.find(|word| word.starts_with("sm_")).map(str::to_owned));
    let address_size = arguments(b".address_size")
        .and_then(|line| line.split_ascii_whitespace().next()?.parse().ok());
    Head {
        version,
        target,
        address_size,
    }
}

/// The kernels that `text` defines or declares, in order.
pub fn kernels(text: &[u8]) -> Vec<String> {
    let name = |at: usize| {
        let rest = text.get(at..)?.trim_ascii_start();
        let len = rest
            .iter()
            .take(LONGEST_NAME)
            .position(|byte| !byte.is_ascii_alphanumeric() && !b"_$%".contains(byte))?;
        std::str::from_utf8(rest.get(..len)?)
            .ok()
            .filter(|name| !name.is_empty())
            .map(str::to_owned)
    };
    directives(text, b".entry").filter_map(name).collect()
}

/// The end of each `directive` that white space follows and that is not in a `//` comment.
fn directives<'a>(text: &'a [u8], directive: &'a [u8]) -> impl Iterator<Item = usize> + 'a {
    memmem::find_iter(text, directive).filter_map(move |at| {
        let end = at + directive.len();
        let before = text
            .get(at.saturating_sub(LONGEST_LINE)..at)
            .unwrap_or_default();
        let line = before
            .rsplit(|byte| *byte == b'\n')
            .next()
            .unwrap_or_default();
        let is_whole = text.get(end).is_some_and(u8::is_ascii_whitespace);
        (is_whole && memmem::find(line, b"//").is_none()).then_some(end)
    })
}
