//! Tests of the comparison with objects and programs that `cc` and the system's linker build from
//! one source, with device code of different sizes, and with modified programs.

mod machines;
mod objects;
mod programs;

use std::path::Path;
use std::process::Command;

use super::*;

/// A host source with the constructs that compilers emit: an entry table, images with their rows
/// and descriptor as LLVM's wrapper writes them, functions that call each other, jump tables,
/// pointers, strings, constants.
const SOURCE: &str = r#"
#ifndef ROWS
#define ROWS 1
#endif
#ifndef CONSTANT
#define CONSTANT 1000
#endif
#ifndef TEXT
#define TEXT "text"
#endif
#ifndef CALLED
#define CALLED first
#endif
#ifndef INITIAL
#define INITIAL 7
#endif
#ifndef TARGET
#define TARGET first
#endif
#ifndef ROOM
#define ROOM 100
#endif
#ifndef NAME
#define NAME "__omp_offloading_fe01_1a2b_main_l10"
#endif
extern char __start_llvm_offload_entries[], __stop_llvm_offload_entries[];
static int variable, kernel;
struct entry { unsigned long reserved; unsigned short version, kind; unsigned flags; void *address; const char *name; unsigned long size, data; void *aux; };
__attribute__((used, section("llvm_offload_entries"))) struct entry entries[2] = {
  { 0, 1, 1, 0, &kernel, NAME, 0, 0, 0 }, { 0, 1, 1, 0, &variable, "the_variable", 4, 7, 0 } };
__attribute__((used, section(".llvm.offloading"))) static const char image[SIZE] = "image";
struct row { const void *start, *end, *first, *last; };
#define ROW { image, image + SIZE, __start_llvm_offload_entries, __stop_llvm_offload_entries }
static CONST struct row rows[ROWS] = { [0 ... ROWS - 1] = ROW };
struct descriptor { int count; const struct row *rows; void *first, *last; };
__attribute__((used)) static CONST struct descriptor descriptor = { ROWS, rows, __start_llvm_offload_entries, __stop_llvm_offload_entries };
static CONST struct row *volatile used_rows = rows;
int initial[4] = { 1, INITIAL, 3 };
static long counter;
char room[ROOM];
__attribute__((noipa)) int first(int x) { return x * CONSTANT + initial[x & 3]; }
__attribute__((noipa)) int second(int x) { counter += x; return room[x & 7] + (int)counter; }
int (*volatile functions[2])(int) = { second, TARGET };
int (*volatile both[2])(int) = { first, second };
const char *const texts[3] = { "one", TEXT, "three" };
__attribute__((noipa)) const char *choose(int x) {
  switch (x) { case 0: return "alpha"; case 1: return texts[x]; case 2: return "gamma"; case 3: return texts[2]; case 4: return "epsilon"; case 5: return "zeta"; }
  return "none";
}
__attribute__((noipa)) int jump(int x) {
  switch (x) { case 0: return first(x); case 1: return counter--; case 2: room[3] = x; return 0; case 3: return second(2 * x); case 4: return x << 3; case 5: initial[2]++; return 9; }
  return -1;
}
double constant(double x) { return x * 3.25 + initial[0]; }
int start(int x) { return CALLED(x) + jump(x) + functions[x & 1](x) + choose(x)[0] + (int)constant(x) + (used_rows != 0); }
#ifdef MORE
int more(int x) { return x + 1; }
#endif
#ifdef WHOLE
int main(int count, char **words) { return start(count) + words[0][0]; }
#endif
"#;

/// The source, compiled with `arguments`.
fn compiled(folder: &Path, arguments: &[&str]) -> Vec<u8> {
    let (source, output) = (folder.join("host.c"), folder.join("output"));
    if !source.exists() {
        std::fs::write(&source, SOURCE).unwrap();
    }
    let mut command = Command::new("cc");
    command
        .arg(&source)
        .arg("-o")
        .arg(&output)
        .arg("-O2")
        .args(arguments);
    for (name, default) in [("SIZE", "64"), ("CONST", "const")] {
        let is_given = |word: &&str| {
            word.strip_prefix("-D")
                .is_some_and(|rest| rest.starts_with(&format!("{name}=")))
        };
        if !arguments.iter().any(is_given) {
            command.arg(format!("-D{name}={default}"));
        }
    }
    assert!(command.status().unwrap().success(), "{arguments:?}");
    std::fs::read(output).unwrap()
}

/// The differences between two files, as text.
fn differences(one: &[u8], other: &[u8]) -> Vec<String> {
    let (device, other_device) = (device_ranges(one).unwrap(), device_ranges(other).unwrap());
    let half = |name, data, device| HostHalf { name, data, device };
    let found = compare_hosts(
        &half("one", one, &device),
        &half("other", other, &other_device),
    )
    .unwrap();
    let back = compare_hosts(
        &half("other", other, &other_device),
        &half("one", one, &device),
    )
    .unwrap();
    assert_eq!(
        found.is_empty(),
        back.is_empty(),
        "{found:?} and back {back:?}"
    );
    found.iter().map(Difference::to_string).collect()
}

/// Checks that two files differ, and that one difference begins with `start`.
#[track_caller]
fn expect(one: &[u8], other: &[u8], start: &str) {
    let found = differences(one, other);
    assert!(
        found.iter().any(|difference| difference.starts_with(start)),
        "no `{start}` in {found:#?}"
    );
}

/// The concatenated argument lists.
fn both<'w>(one: &[&'w str], other: &[&'w str]) -> Vec<&'w str> {
    [one, other].concat()
}
