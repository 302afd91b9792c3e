//! Rules by themselves: patterns, members, baselines, errors of policies, and output formats.

use libtest_mimic::{Failed, Trial};
use serde_json::Value;

use super::{TAG, gate, library, wheel};
use crate::kit::Image;
use crate::support::{
    Outcome, Work, ensure, expect_equal, expect_in, offld, passed, root, run, with_llvm,
};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        with_llvm("gate::rules::init", init),
        with_llvm("gate::rules::page", page),
        with_llvm("gate::rules::members", members),
        with_llvm("gate::rules::only_tests_each_image", only),
        with_llvm("gate::rules::sizes_grow", growth),
        with_llvm("gate::rules::invalid_policies", invalid),
        with_llvm("gate::rules::some_files_of_a_build", some_files),
        with_llvm("gate::rules::the_help_has_all_keys_and_checks", help),
        with_llvm("gate::rules::output", formats),
    ]
}

/// Packs a wheel with a library for each list of architectures.
pub(super) fn wheel_for(
    work: &Work,
    name: &str,
    libraries: &[(&str, &[&str])],
) -> Result<(), Failed> {
    let mut files = Vec::new();
    let members: Vec<String> = libraries
        .iter()
        .map(|(library, _)| format!("some/{library}"))
        .collect();
    for ((library, archs), member) in libraries.iter().zip(&members) {
        let bytes: Vec<String> = archs
            .iter()
            .map(|arch| format!("{library} {arch}"))
            .collect();
        let images: Vec<Image<'_>> = archs
            .iter()
            .zip(&bytes)
            .map(|(arch, bytes)| match arch.strip_prefix("sm_") {
                Some(_) => Image::cuda(arch, bytes.as_bytes()),
                None => Image::hip(arch, bytes.as_bytes()),
            })
            .collect();
        work.pack(library, &images)?;
        files.push((*library, member.as_str()));
    }
    wheel(work, name, &files, TAG)
}

pub(super) const OLD: &str = "some-1.0-py3-none-linux_x86_64.whl";
const NEW: &str = "some-1.1-py3-none-linux_x86_64.whl";

fn init() -> Outcome {
    let work = Work::new();
    wheel_for(&work, OLD, &[("lib.so", &["gfx90a", "gfx1100"])])?;
    wheel_for(&work, NEW, &[("lib.so", &["gfx90a"])])?;
    let policy = run(work.command(offld()).args(["gate", "--init", OLD]))?;
    expect_in(&policy, "files = \"some-*.whl\"\n")?;
    expect_in(&policy, "require = [\"gfx1100\", \"gfx90a\"]\n")?;
    let (stdout, _) = gate(&work, &policy, &["policy.toml", OLD], 0)?;
    expect_equal("stdout", "policy.toml: 1 rule met\n", &stdout)?;
    let (stdout, _) = gate(&work, &policy, &["policy.toml", NEW], 3)?;
    expect_equal(
        "stdout",
        &format!(
            "{NEW}: require: gfx90a (policy: gfx1100) [rule some-*.whl]\npolicy.toml: 1 violation\n"
        ),
        &stdout,
    )?;
    passed()
}

/// The policy on the reference page is valid.
fn page() -> Outcome {
    let page = std::fs::read_to_string(root().join("docs/reference/gate.md"))?;
    let policy = page
        .split_once("```toml\n")
        .and_then(|(_, rest)| rest.split_once("```"))
        .ok_or("no policy on the page")?
        .0;
    let work = Work::new();
    library(
        &work,
        "lib.so",
        &["gfx90a", "gfx1100"],
        &["--offload-compress"],
        "2",
    )?;
    wheel(&work, OLD, &[("lib.so", "some/lib.so")], TAG)?;
    run(work
        .command(offld())
        .args(["diff", "--save", "k.json", OLD]))?;
    run(work
        .command(offld())
        .args(["size", "--save", "s.json", OLD]))?;
    let baselines = ["--baseline", "k.json", "--baseline", "s.json"];
    let args: Vec<&str> = baselines.into_iter().chain(["policy.toml", OLD]).collect();
    gate(&work, policy, &args, 0)?;
    // Without the saved sizes, the growth of the total is unknown.
    let (_, stderr) = gate(
        &work,
        policy,
        &["--baseline", "k.json", "policy.toml", OLD],
        2,
    )?;
    expect_in(&stderr, "no baseline for this rule")?;
    passed()
}

/// A pattern that matches members applies to each of them.
fn members() -> Outcome {
    let work = Work::new();
    let libraries: [(&str, &[&str]); 3] = [
        ("liba.so", &["sm_80", "sm_90"]),
        ("libb.so", &["sm_80"]),
        ("other.so", &["gfx90a"]),
    ];
    wheel_for(&work, OLD, &libraries)?;
    let rule = |keys: &str| format!("version = 1\n[[rule]]\n{keys}");
    let args = ["policy.toml", OLD];
    // The wheel as a whole has both.
    gate(&work, &rule("require = [\"sm_80\", \"sm_90\"]"), &args, 0)?;
    let policy = rule("files = \"lib*.so\"\nrequire = [\"sm_80\", \"sm_90\"]\nonly = \"cuda:*\"");
    let (stdout, _) = gate(&work, &policy, &args, 3)?;
    expect_in(
        &stdout,
        &format!("{OLD}(some/libb.so): require: sm_80 (policy: sm_90) [rule lib*.so]\n"),
    )?;
    expect_in(&stdout, "policy.toml: 1 violation\n")?;
    let policy = rule("files = \"*.so\"\nexclude = \"lib?.so\"\nforbid = [\"gfx90a\", \"sm_*\"]");
    let (stdout, _) = gate(&work, &policy, &args, 3)?;
    expect_in(
        &stdout,
        &format!("{OLD}(some/other.so): forbid: gfx90a (policy: gfx90a)"),
    )?;
    passed()
}

/// An allowed image does not excuse another one for the same architecture.
fn only() -> Outcome {
    let work = Work::new();
    work.fat(
        "both.o",
        &[
            Image::hip("gfx90a", b"of HIP"),
            Image::amd("gfx90a", "of OpenMP"),
        ],
    )?;
    let rule = |only: &str| format!("version = 1\n[[rule]]\nonly = [{only}]\n");
    let args = ["policy.toml", "both.o"];
    let (stdout, _) = gate(&work, &rule("\"hip:*\""), &args, 3)?;
    expect_in(&stdout, "both.o: only: gfx90a (policy: hip:*)")?;
    gate(&work, &rule("\"hip:*\", \"openmp:*\""), &args, 0)?;
    passed()
}

fn growth() -> Outcome {
    let work = Work::new();
    wheel_for(&work, OLD, &[("lib.so", &["sm_80"])])?;
    wheel_for(&work, NEW, &[("lib.so", &["sm_80", "sm_90"])])?;
    let policy = |limit: &str| format!("version = 1\n[[rule]]\nmax-growth = {{ {limit} }}\n");
    let args = ["--baseline", OLD, "policy.toml", NEW];
    gate(&work, &policy("total = \"500%\", sm_80 = 100"), &args, 0)?;
    let (stdout, _) = gate(&work, &policy("total = \"1%\""), &args, 3)?;
    expect_in(&stdout, "all files of the rule: max-growth.total: ")?;
    expect_in(&stdout, "(policy: growth of 1%)")?;
    // An architecture without images in the baseline grows from nothing.
    let (stdout, _) = gate(&work, &policy("sm_90 = 0"), &args, 3)?;
    expect_in(&stdout, "max-growth.sm_90: ")?;
    let args = ["--baseline", OLD, "policy.toml", NEW];
    let (_, stderr) = gate(&work, &policy("register = 1"), &args, 2)?;
    expect_in(&stderr, "max-growth.register: no image matches `register`")?;
    let lost = "version = 1\n[[rule]]\nchecks = [\"no-lost-kernels\"]\n";
    let args = ["--baseline", NEW, "policy.toml", OLD];
    let (stdout, _) = gate(&work, lost, &args, 3)?;
    expect_in(
        &stdout,
        "no-lost-kernels: no kernels for sm_90 (policy: 1 kernels, as in the baseline)",
    )?;
    passed()
}

/// Each policy, and the end of the error message.
const INVALID: [(&str, &str); 15] = [
    ("version = 1\n", "`policy.toml`: no [[rule]]"),
    ("[[rule]]\nrequire = \"sm_90\"\n", "missing field `version`"),
    (
        "version = 2\n[[rule]]\nrequire = \"sm_90\"\n",
        "`policy.toml`: policy of version 2, but this offld reads version 1",
    ),
    (
        "version = 1\n[[rule]]\n",
        "`policy.toml`: rule 1: the rule requires nothing",
    ),
    (
        "version = 1\n[[rule]]\nrequires = \"sm_90\"\n",
        "unknown field `requires`",
    ),
    (
        "version = 1\n[[rule]]\nchecks = [\"small\"]\n",
        "unknown variant `small`",
    ),
    (
        "version = 1\n[[rule]]\nfiles = \"[\"\nrequire = \"sm_90\"\n",
        "rule 1: invalid pattern `[` of files",
    ),
    (
        "version = 1\n[[rule]]\nrequire = \":\"\n",
        "rule 1: require: ",
    ),
    (
        "version = 1\n[[rule]]\nruns-on = \"large\"\n",
        "rule 1: runs-on: invalid device `large`",
    ),
    (
        "version = 1\n[[rule]]\nptx-floor = \"80\"\n",
        "rule 1: ptx-floor: `80` is not like compute_80",
    ),
    (
        "version = 1\n[[rule]]\nmax-size = { total = \"2%\" }\n",
        "rule 1: max-size.total: only growth has limits in percent",
    ),
    (
        "version = 1\n[[rule]]\nmax-size = { total = \"big\" }\n",
        "rule 1: max-size.total: invalid size 'big'",
    ),
    (
        "version = 1\n[[rule]]\nmax-size = { sm_91 = 1 }\n",
        "rule `all files`: max-size.sm_91: no image matches `sm_91`",
    ),
    (
        "version = 1\n[[rule]]\nmax-growth = { total = 1 }\n",
        "rule `all files` compares with a baseline: pass it with --baseline",
    ),
    (
        "version = 1\n[[rule]]\nfiles = \"*.dll\"\nrequire = \"sm_90\"\n",
        "`policy.toml`: rule `*.dll` applies to no file",
    ),
];

fn invalid() -> Outcome {
    let work = Work::new();
    wheel_for(&work, OLD, &[("lib.so", &["sm_80"])])?;
    for (policy, message) in INVALID {
        let (stdout, stderr) = gate(&work, policy, &["policy.toml", OLD], 2)?;
        expect_equal(policy, "", &stdout)?;
        expect_in(&stderr, message)?;
    }
    let (_, stderr) = gate(&work, "", &["none.toml", OLD], 2)?;
    expect_in(&stderr, "`none.toml`: No such file or directory")?;
    let (_, stderr) = gate(&work, "", &["policy.toml"], 2)?;
    expect_in(&stderr, "pass files after the policy")?;
    let policy = "version = 1\n[[rule]]\nforbid = \"sm_90\"\n";
    let (_, stderr) = gate(&work, policy, &["policy.toml", "none.whl"], 2)?;
    expect_in(&stderr, "'none.whl': No such file or directory")?;
    passed()
}

/// The pre-commit hook gets only the files that a commit changes.
fn some_files() -> Outcome {
    let work = Work::new();
    wheel_for(&work, OLD, &[("lib.so", &["sm_80"])])?;
    let policy = "version = 1\n[[rule]]\nfiles = \"*.dll\"\nchecks = \"device-code\"\n\
        [[rule]]\nfiles = [\"*.whl\", \"*.so.1\"]\nrequire = \"sm_90\"\nmax-size = { sm_91 = 1 }\n";
    let hook = std::fs::read_to_string(root().join(".pre-commit-hooks.yaml"))?;
    let entry = hook
        .lines()
        .find_map(|line| line.trim().strip_prefix("entry: offld gate "));
    let option = entry.ok_or("no options in the entry of the hook")?;
    let (stdout, _) = gate(&work, policy, &[option, "policy.toml", OLD], 3)?;
    expect_equal(
        "violations",
        &format!(
            "{OLD}: require: sm_80 (policy: sm_90) [rule *.whl, *.so.1]\npolicy.toml: 1 violation\n"
        ),
        &stdout,
    )?;
    work.file("other.bin", "no device code");
    let (stdout, _) = gate(&work, policy, &[option, "policy.toml", "other.bin"], 0)?;
    expect_equal("no file of a rule", "policy.toml: 2 rules met\n", &stdout)?;
    passed()
}

/// Messages about unknown keys and checks list all that exist.
fn help() -> Outcome {
    let work = Work::new();
    wheel_for(&work, OLD, &[("lib.so", &["sm_80"])])?;
    let help = run(work.command(offld()).args(["help", "policies"]))?;
    let starts: Vec<&str> = help
        .lines()
        .filter_map(|line| line.split(' ').next())
        .collect();
    for (policy, least) in [("none = 1", 10), ("checks = \"none\"", 6)] {
        let policy = format!("version = 1\n[[rule]]\n{policy}\n");
        let (_, stderr) = gate(&work, &policy, &["policy.toml", OLD], 2)?;
        let known = stderr
            .split_once("expected one of ")
            .ok_or_else(|| stderr.clone())?
            .1;
        let names: Vec<&str> = known.split('`').skip(1).step_by(2).collect();
        ensure(names.len() > least, || stderr.clone())?;
        for name in names {
            ensure(starts.contains(&name), || format!("no {name} in the help"))?;
        }
    }
    let example: String = help
        .lines()
        .filter_map(|line| {
            line.strip_prefix("  ")
                .filter(|line| !line.starts_with(' '))
        })
        .map(|line| format!("{line}\n"))
        .collect();
    let (stdout, _) = gate(
        &work,
        &example,
        &["--allow-unused-rules", "policy.toml", OLD],
        3,
    )?;
    expect_in(&stdout, "require: sm_80 (policy: gfx90a) [rule *.whl]")?;
    passed()
}

fn formats() -> Outcome {
    let work = Work::new();
    wheel_for(&work, OLD, &[("lib.so", &["sm_80"])])?;
    let policy = "version = 1\n[[rule]]\nname = \"a|b\"\nrequire = \"sm_90\"\n";
    let (json, _) = gate(&work, policy, &["--json", "policy.toml", OLD], 3)?;
    let report: Value = serde_json::from_str(&json)?;
    let expected = serde_json::json!({
        "rule": "a|b", "requirement": "require", "file": OLD, "kernel": null, "value": "sm_80", "limit": "sm_90",
    });
    expect_equal(
        "violation",
        &expected.to_string(),
        &report["violations"][0].to_string(),
    )?;
    let (markdown, _) = gate(&work, policy, &["--markdown", "policy.toml", OLD], 3)?;
    expect_in(
        &markdown,
        &format!("| a\\|b | require | {OLD} |  | sm_80 | sm_90 |\n"),
    )?;
    passed()
}
