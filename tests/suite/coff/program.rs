//! A Windows program without any SDK: objects with entries and device images, stubs in place of the
//! runtime, and checks of the linked file with the linker's map.

use std::collections::BTreeMap;

use libtest_mimic::{Failed, Trial};
use object::read::pe::{PeFile32, PeFile64};
use object::{Object, ObjectSection};

use crate::kit::Image;
use crate::support::{
    Outcome, Work, ensure, expect_equal, expect_in, llvm, made, passed, run, with_llvm,
};

/// C stubs of the functions that registration code calls.
pub(super) const RUNTIME: &str = "
    void __tgt_register_lib(void *d) {} void __tgt_unregister_lib(void *d) {} int atexit(void (*f)(void)) { return 0; }
    void *__hipRegisterFatBinary(void *d) { return d; } void __hipUnregisterFatBinary(void *h) {}
    int __hipRegisterFunction() { return 0; } void __hipRegisterVar() {} void __hipRegisterManagedVar() {}
    void __hipRegisterSurface() {} void __hipRegisterTexture() {} void __main(void) {}
";

/// A Windows host and its linker.
#[derive(Clone, Copy)]
pub(crate) struct Host {
    pub triple: &'static str,
    /// The size of an address, in bytes.
    pub pointer: usize,
    /// The emulation for ld.lld. `None` selects lld-link.
    pub emulation: Option<&'static str>,
}

/// x86-64, Microsoft's toolchain.
pub(super) const MSVC: Host = Host {
    triple: "x86_64-pc-windows-msvc",
    pointer: 8,
    emulation: None,
};
pub(super) const HOSTS: [Host; 6] = [
    MSVC,
    Host {
        triple: "i386-pc-windows-msvc",
        pointer: 4,
        emulation: None,
    },
    Host {
        triple: "aarch64-pc-windows-msvc",
        pointer: 8,
        emulation: None,
    },
    Host {
        triple: "x86_64-w64-windows-gnu",
        pointer: 8,
        emulation: Some("i386pep"),
    },
    Host {
        triple: "x86_64-w64-mingw32",
        pointer: 8,
        emulation: Some("i386pep"),
    },
    Host {
        triple: "i686-w64-windows-gnu",
        pointer: 4,
        emulation: Some("i386pe"),
    },
];

impl Host {
    /// The arguments that link `inputs` into `a.exe`, with a map and the entry point `main`.
    pub(crate) fn line(&self, inputs: &[&str]) -> Vec<String> {
        let linker = llvm(if self.emulation.is_some() {
            "ld.lld"
        } else {
            "lld-link"
        });
        let mut args = vec![
            format!("--host-triple={}", self.triple),
            format!("--linker-path={}", linker.display()),
        ];
        let rest: Vec<&str> = match self.emulation {
            Some(emulation) => vec![
                "-m",
                emulation,
                "--gc-sections",
                "-Map=a.map",
                "-e",
                "main",
                "-o",
                "a.exe",
            ],
            None => vec![
                "-nodefaultlib",
                "-entry:main",
                "-subsystem:console",
                "-opt:ref",
                "-map:a.map",
                "-out:a.exe",
            ],
        };
        args.extend(rest.iter().chain(inputs).map(|word| (*word).to_owned()));
        if let (Some("i386pe"), Some(main)) =
            (self.emulation, args.iter_mut().find(|word| *word == "main"))
        {
            *main = "_main".to_owned();
        }
        args
    }
}

/// C source that defines `name`, contains a kernel entry in the layout of LLVM 21, and ends with
/// `calls`.
pub(super) fn kernel(name: &str, calls: &str) -> String {
    format!(
        "struct entry {{ unsigned long long reserved; unsigned short version, kind; unsigned flags; void *address; const char *name;
                        unsigned long long size, data; void *aux; }};
        {calls}
        int {name}(void) {{ return 0; }}
        __attribute__((section(\"llvm_offload_entries$OE\"), used, aligned(8)))
        const struct entry entry_{name} = {{ 0, 1, 1, 0, (void *)&{name}, \"{name}\", 0, 0, 0 }};"
    )
}

impl Work {
    /// Compiles an object for `host` with device images.
    pub(crate) fn coff(
        &self,
        host: Host,
        name: &str,
        images: &[Image<'_>],
        source: &str,
    ) -> Result<(), Failed> {
        self.fat_for(host.triple, name, images, source).map(drop)
    }
}

/// A linked program.
pub(super) struct Program {
    pointer: usize,
    base: u64,
    /// Name, address and bytes of each section.
    sections: Vec<(String, u64, Vec<u8>)>,
    symbols: BTreeMap<String, u64>,
}

impl Program {
    /// Reads `a.exe` and `a.map`.
    pub(super) fn read(work: &Work, host: Host) -> Result<Program, Failed> {
        let data = std::fs::read(work.path().join("a.exe"))?;
        let sections = if host.pointer == 8 {
            sections_of(&PeFile64::parse(&*data)?)?
        } else {
            sections_of(&PeFile32::parse(&*data)?)?
        };
        let base = if host.pointer == 8 {
            PeFile64::parse(&*data)?.relative_address_base()
        } else {
            PeFile32::parse(&*data)?.relative_address_base()
        };
        let map = std::fs::read_to_string(work.path().join("a.map"))?;
        let mut symbols = BTreeMap::new();
        for line in map.lines() {
            let columns: Vec<&str> = line.split_whitespace().collect();
            let hex = |word: &str| u64::from_str_radix(word, 16).ok();
            // Maps of link.exe have section and offset, the name, and the address. Maps of ld start
            // with the address in memory and end with the name.
            let found = match columns[..] {
                [place, name, address, ..] if place.contains(':') => {
                    hex(address).map(|address| (name, address))
                }
                [address, _, _, name] => hex(address).map(|address| (name, address + base)),
                _ => None,
            };
            symbols.extend(found.map(|(name, address)| (name.to_owned(), address)));
        }
        Ok(Program {
            pointer: host.pointer,
            base,
            sections,
            symbols,
        })
    }

    /// The address of a symbol, by its C name.
    pub(super) fn symbol(&self, name: &str) -> Result<u64, Failed> {
        let full = format!("{}{name}", if self.pointer == 4 { "_" } else { "" });
        self.symbols
            .get(&full)
            .copied()
            .ok_or_else(|| format!("no symbol `{full}` in {:?}", self.symbols).into())
    }

    pub(super) fn bytes(&self, start: u64, end: u64) -> Result<&[u8], Failed> {
        let part = self.sections.iter().find_map(|(_, at, bytes)| {
            bytes.get(
                usize::try_from(start.checked_sub(*at)?).ok()?
                    ..usize::try_from(end.checked_sub(*at)?).ok()?,
            )
        });
        part.ok_or_else(|| format!("nothing at {start:#x}..{end:#x}, base {:#x}", self.base).into())
    }

    /// `N` pointer-sized numbers from `start`.
    pub(super) fn words<const N: usize>(&self, start: u64) -> Result<[u64; N], Failed> {
        let bytes = self.bytes(start, start + (N * self.pointer) as u64)?;
        let mut words = [0; N];
        for (word, bytes) in words.iter_mut().zip(bytes.chunks(self.pointer)) {
            let mut wide = [0; 8];
            wide[..bytes.len()].copy_from_slice(bytes);
            *word = u64::from_le_bytes(wide);
        }
        Ok(words)
    }

    pub(super) fn string(&self, start: u64) -> Result<String, Failed> {
        let mut end = start;
        while self.bytes(end, end + 1)? != [0] {
            end += 1;
        }
        Ok(String::from_utf8_lossy(self.bytes(start, end)?).into_owned())
    }

    /// The names in the entry table between `start` and `stop`.
    pub(super) fn entries(&self, start: u64, stop: u64) -> Result<Vec<String>, Failed> {
        let (size, name_at) = if self.pointer == 8 {
            (56, 24)
        } else {
            (48, 20)
        };
        if stop < start || !(stop - start).is_multiple_of(size) {
            return Err(format!(
                "a table of {start:#x}..{stop:#x} holds no entries of {size} bytes"
            )
            .into());
        }
        let each = (0..(stop - start) / size).map(|index| {
            let [name] = self.words::<1>(start + index * size + name_at)?;
            self.string(name)
        });
        each.collect()
    }

    /// The data that the OpenMP runtime receives: the images, and the names of the entries.
    pub(super) fn openmp(&self) -> Result<(Vec<Vec<u8>>, Vec<String>), Failed> {
        let [count, images, start, stop] =
            self.words::<4>(self.symbol(".omp_offloading.descriptor")?)?;
        let mut all = Vec::new();
        for index in 0..count & 0xffff_ffff {
            let [from, to, own_start, own_stop] =
                self.words::<4>(images + index * 4 * self.pointer as u64)?;
            if (own_start, own_stop) != (start, stop) {
                return Err("an image has other entries than the program".into());
            }
            all.push(self.bytes(from, to)?.to_vec());
        }
        Ok((all, self.entries(start, stop)?))
    }

    /// The functions in `.CRT` or `.ctors`, which run at startup.
    pub(super) fn constructors(&self) -> Result<Vec<u64>, Failed> {
        let code = self
            .sections
            .iter()
            .find(|(name, ..)| name == ".text")
            .ok_or("no .text")?;
        let inside = |address: &u64| (code.1..code.1 + code.2.len() as u64).contains(address);
        let data = self
            .sections
            .iter()
            .filter(|(name, ..)| name == ".CRT" || name == ".rdata");
        let mut found = Vec::new();
        for (_, at, bytes) in data {
            for index in 0..bytes.len() / self.pointer {
                let [word] = self.words::<1>(at + (index * self.pointer) as u64)?;
                found.extend(Some(word).filter(inside));
            }
        }
        Ok(found)
    }
}

fn sections_of<'d>(file: &impl Object<'d>) -> Result<Vec<(String, u64, Vec<u8>)>, Failed> {
    let mut all = Vec::new();
    for section in file.sections() {
        let mut bytes = section.data()?.to_vec();
        // Bytes beyond the data in the file are zero.
        bytes.resize(usize::try_from(section.size())?.max(bytes.len()), 0);
        all.push((section.name()?.to_owned(), section.address(), bytes));
    }
    Ok(all)
}

/// One test per host and wrapper.
pub(super) fn trials() -> Vec<Trial> {
    let both = |host: &'static Host| {
        [
            with_llvm(&format!("coff::wrapper::{}", host.triple), || {
                registered(*host, "llvm-offload-wrapper", "--triple")
            }),
            with_llvm(
                &format!("coff::wrapper::wr_11_od_10_{}", host.triple),
                || registered(*host, "clang-offload-wrapper", "--target"),
            ),
        ]
    };
    HOSTS.iter().flat_map(both).collect()
}
/// Images that pass through LLVM, and images that do not.
fn registered(host: Host, tool: &str, triple: &str) -> Outcome {
    let large: Vec<u8> = (0..1_100_003u32).map(|at| (at % 251) as u8).collect();
    for (first, forms) in [
        (&b"FIRST"[..], &["obj", "s", "bc"][..]),
        (&large, &["obj", "bc"]),
    ] {
        for form in forms {
            let work = Work::new();
            work.file("first", first);
            work.file("second", b"SECOND");
            let output = format!("wrapped.{form}");
            let mut wrap = work.command(made().links.join(tool));
            wrap.args([triple, host.triple, "-o", &output, "first", "second"]);
            run(wrap.args((tool == "llvm-offload-wrapper").then_some("--kind=openmp")))?;
            if *form != "obj" {
                work.run(
                    llvm("clang"),
                    ["-target", host.triple, "-c", &output, "-o", "wrapped.obj"],
                )?;
            }
            work.coff(
                host,
                "main.o",
                &[],
                &kernel("k", "int main(void) { return 0; }"),
            )?;
            work.coff(host, "runtime.o", &[], RUNTIME)?;
            let args = host.line(&["main.o", "wrapped.obj", "runtime.o"]);
            let linker = args
                .iter()
                .find_map(|word| word.strip_prefix("--linker-path="))
                .ok_or("no linker")?;
            run(work.command(linker).args(args.iter().filter(|word| {
                !word.starts_with("--host-triple=") && !word.starts_with("--linker-path=")
            })))?;
            let program = Program::read(&work, host)?;
            let (images, entries) = program.openmp()?;
            let same = images == [first, b"SECOND"];
            ensure(same, || {
                format!("{output} holds other images than it was given")
            })?;
            // The older wrapper uses another table, which is empty in this program.
            expect_equal(
                "the entries",
                if tool == "llvm-offload-wrapper" {
                    "k"
                } else {
                    ""
                },
                &entries.join(" "),
            )?;
            let register = program.symbol(".omp_offloading.descriptor_reg")?;
            expect_in(
                &format!("{:?}", program.constructors()?),
                &register.to_string(),
            )?;
        }
    }
    passed()
}
