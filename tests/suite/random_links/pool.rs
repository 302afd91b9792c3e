//! The objects of the arrangements: translation units with a kernel each, some in two variants,
//! some with names for `--wrap`, some for shared libraries.

use std::fmt::Write as _;

use libtest_mimic::Failed;

use crate::support::{OFFLOAD, Random, Work, llvm, run};

/// The number of translation units outside shared libraries.
pub(super) const UNITS: usize = 12;
/// The number of translation units for shared libraries.
pub(super) const SHARED: usize = 3;
/// The number of functions `weak_K`.
const WEAK: usize = 4;

/// A translation unit.
pub(super) struct Unit {
    /// The name of its object, without the extension.
    pub name: String,
    source: String,
    is_cpp: bool,
    /// The numbers of the units that it needs.
    pub needs: Vec<usize>,
}

/// All units: `UNITS` plain ones, then `SHARED` ones for shared libraries.
pub(super) struct Pool {
    pub units: Vec<Unit>,
    /// A second variant of some units, with the same functions.
    pub variants: Vec<Option<Unit>>,
}

impl Pool {
    /// A random pool.
    pub(super) fn new(random: &mut Random) -> Pool {
        let mut units = Vec::new();
        let mut variants = Vec::new();
        for number in 0..UNITS + SHARED {
            let made = Pool::unit(number, 0, None, random);
            let needs = made.needs.clone();
            variants.push(
                (number < UNITS && random.chance(20))
                    .then(|| Pool::unit(number, 1, Some(needs), random)),
            );
            units.push(made);
        }
        Pool { units, variants }
    }

    /// The unit `number`. Its device functions call those of units with higher numbers, and its
    /// probe calls those of any unit. A variant calls the same functions.
    fn unit(number: usize, variant: usize, needs: Option<Vec<usize>>, random: &mut Random) -> Unit {
        let is_shared = number >= UNITS;
        let is_cpp = random.chance(30);
        let other = |random: &mut Random| random.below(UNITS);
        let needs = needs.unwrap_or_else(|| {
            let count = if is_shared { 0 } else { random.below(3) };
            let mut needs: Vec<usize> = (0..count)
                .map(|_| other(random))
                .filter(|need| *need != number)
                .collect();
            needs.sort_unstable();
            needs.dedup();
            needs
        });
        let (mut heads, mut device, mut sum) = (
            String::new(),
            String::new(),
            format!("x * {}", 2 + random.below(5)),
        );
        for need in needs.iter().filter(|need| **need > number) {
            let _ = writeln!(heads, "int device_{need}(int);");
            let _ = write!(sum, " + device_{need}(x + 1)");
        }
        if !is_shared {
            for weak in 0..WEAK {
                let is_strong = weak == number && random.chance(30);
                if !is_strong && !random.chance(45) {
                    continue;
                }
                let attribute = if is_strong {
                    "noinline"
                } else {
                    "weak, noinline"
                };
                let _ = writeln!(
                    device,
                    "__attribute__(({attribute})) int weak_{weak}(int x) {{ return x + {}; }}",
                    1000 * (number + 1) + 100 * variant + weak
                );
                let _ = write!(sum, " + weak_{weak}(x)");
            }
        }
        if random.chance(40) {
            let _ = writeln!(
                device,
                "__attribute__((visibility(\"hidden\"), noinline)) int hidden_{number}(int x) {{ return x - {number}; }}"
            );
            let _ = write!(sum, " + hidden_{number}(x)");
        }
        if is_cpp {
            let _ = writeln!(
                device,
                "}}\ntemplate <int N> __attribute__((noinline)) int comdat(int x) {{ return x * N; }}\nextern \"C\" {{"
            );
            let _ = write!(sum, " + comdat<{}>(x)", 3 + random.below(2));
        }
        let _ = writeln!(
            device,
            "int device_{number}(int x) {{ return {sum} + {variant} * 7; }}"
        );
        let mut calls = String::new();
        for need in &needs {
            let _ = writeln!(heads, "void probe_{need}(void);");
            let _ = write!(calls, " probe_{need}();");
        }
        // A common symbol. A definition with a value in another unit replaces it.
        let common = if is_cpp || is_shared || random.chance(70) {
            String::new()
        } else if random.chance(50) {
            format!("int common_{};\n", number % 3)
        } else if number < 3 {
            format!("int common_{} = {number};\n", number % 3)
        } else {
            String::new()
        };
        let (open, close) = if is_cpp {
            ("extern \"C\" {\n", "}\n")
        } else {
            ("", "")
        };
        let source = format!(
            "#include <omp.h>\n{open}void report(int, int, int, int);\n#pragma omp begin declare target\n{heads}{device}\
             #pragma omp end declare target\n{common}void probe_{number}(void) {{\n  static int seen;\n  int device = 0, value = 0;\n\
             \x20 if (seen++) return;\n#pragma omp target map(from : device, value)\n\
             \x20 {{ device = !omp_is_initial_device(); value = device_{number}(3); }}\n\
             \x20 report({number}, device, value, device_{number}(3));\n {calls}\n}}\n{close}"
        );
        let name = format!(
            "{}{number}{}",
            if is_shared { "s" } else { "u" },
            if variant == 0 { "" } else { "b" }
        );
        Unit {
            name,
            source,
            is_cpp,
            needs,
        }
    }

    /// Compiles all units, and for each plain unit an object that wraps its probe.
    pub(super) fn compile(&self, work: &Work) -> Result<(), Failed> {
        for unit in self.units.iter().chain(self.variants.iter().flatten()) {
            let file = format!("{}.{}", unit.name, if unit.is_cpp { "cpp" } else { "c" });
            work.file(&file, &unit.source);
            let mut compile = work.command(llvm("clang"));
            compile.args(OFFLOAD).args([
                "-O1",
                "-fPIC",
                "-fcommon",
                "-fno-exceptions",
                "-c",
                &file,
            ]);
            run(compile.arg("-o").arg(format!("{}.o", unit.name)))?;
        }
        for number in 0..UNITS {
            let source = format!(
                "void __real_probe_{number}(void); void report(int, int, int, int);\n\
                 void __wrap_probe_{number}(void) {{ int device = 0, value = 0;\n#pragma omp target map(from : device, value)\n\
                 {{ device = 1; value = {number}; }}\n report(100 + {number}, device, value, {number}); __real_probe_{number}(); }}\n"
            );
            work.file(&format!("w{number}.c"), source);
        }
        Ok(())
    }
}
