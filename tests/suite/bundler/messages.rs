//! Every check that LLVM's bundler makes on a command line: the same message, the same exit status,
//! and of two faults the same one first (docs/spec/containers.md 1, 2.3, 2.14, 2.16).

use libtest_mimic::Trial;

use super::{GFX90A, GFX906, HOST, bundler, ours, same, theirs, words};
use crate::support::{
    Outcome, Work, expect_equal, expect_in, expect_no_file, output, passed, run, run_failing,
    stderr_of, text, with_llvm,
};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        with_llvm("bundler::ob_04_help_is_llvms_to_the_byte", help),
        with_llvm("bundler::ob_04_a_version_that_scripts_can_read", version),
        with_llvm(
            "bundler::ob_08_ob_10_ob_14_ob_15_messages_of_the_command_line",
            command_line,
        ),
        with_llvm("bundler::ob_25_ob_26_ob_34_messages_of_targets", targets),
        with_llvm("bundler::ob_13_messages_of_files", files),
        with_llvm("bundler::ob_62_messages_of_the_environment", environment),
        with_llvm(
            "bundler::ob_06_messages_of_missing_bundles",
            missing_bundles,
        ),
        with_llvm("bundler::ob_09_ob_11_ob_12_comma_lists", comma_lists),
    ]
}

fn help() -> Outcome {
    let work = Work::new();
    for line in [
        "--help",
        "-help",
        "--help-hidden",
        "--help-list",
        "--help-list-hidden",
        "-type=i -h",
        "--help --nothing -type",
    ] {
        same(&work, line, &[])?;
    }
    passed()
}

fn version() -> Outcome {
    let work = Work::new();
    let version = |tool| run(&mut bundler(&work, tool, &["--version"]));
    let after = |text: &str| {
        text.split("clang-offload-bundler version ")
            .nth(1)?
            .split_whitespace()
            .next()
            .map(str::to_owned)
    };
    let (ours, theirs) = (version(ours())?, version(theirs())?);
    expect_equal(
        "the version",
        "Some(\"22.1.8\")",
        &format!("{:?}", after(&ours)),
    )?;
    if after(&theirs).is_none_or(|version| !version.starts_with("22.")) {
        return Err(format!("LLVM's own version has another form: {theirs}").into());
    }
    expect_in(&ours, "offld")?;
    passed()
}

fn command_line() -> Outcome {
    let work = Work::new();
    work.file("a", "A");
    for line in [
        "",
        "-type",
        "-type=i",
        "-type=zz",
        "-type=i a",
        "-type=i --imput=a",
        "-tpe=i -input=a",
        "-type=i -unbundle=maybe",
        "-type=i -bundle-align=abc",
        "-type=i -bundle-align=4294967296",
        "-type=i -bundle-align=-1",
        "-type=i -compression-level=x",
        "-type -targets=x -output=o",
        "-type=i -inputs=a -input=a",
        "-type=i -inputs=a -outputs=o -output=o",
        "-type=i -inputs=a -outputs=o",
        "-type=i -list -unbundle",
        "-type=i -list",
        "-type=i -list -input=a -input=a",
        "-type=i -list -input=a -output=o",
        "-type=i -list -input=a -targets=x",
        "-type=i -list -input=a -output=o -targets=x",
        "-type=zz -list -input=a",
        "-type=zz -list -input=gone",
        "-type=i -check-input-archive",
        "-type=a -check-input-archive",
        "-type=o -check-input-archive -unbundle",
        "-type=i -list=false -unbundle=false",
        "-type=i -output=o",
        "-type=i -unbundle -output=o",
        "-type=i -unbundle -output=o -targets=x",
        "-type=i -unbundle -output=o -targets=x -input=a -input=a",
        "-type=i -unbundle -output=o -output=o -targets=x -input=a",
        "-type=a -output=o -targets=x -input=a",
        "-type=i -output=o -output=p -targets=x -input=a",
        "-type=i -output=o -targets=x,y -input=a",
        "-type=i -output=o -targets=x",
    ] {
        same(&work, line, &[])?;
    }
    passed()
}

fn targets() -> Outcome {
    let work = Work::new();
    work.file("a", "A");
    let amd = |id: &str| format!("hip-amdgcn-amd-amdhsa--{id}");
    let lists = [
        vec!["x".to_owned()],
        vec!["host".to_owned()],
        vec!["host-".to_owned()],
        vec![String::new()],
        vec![String::new(), HOST.to_owned()],
        vec![HOST.to_owned(), HOST.to_owned()],
        vec![GFX906.to_owned(), GFX906.to_owned(), "x".to_owned()],
        vec!["zz-x86_64-unknown-linux-gnu".to_owned()],
        vec!["HIP-x86_64-unknown-linux-gnu".to_owned()],
        vec!["host-foo-unknown-linux-gnu".to_owned()],
        vec!["hip-amdgpux-amd-amdhsa--gfx906".to_owned()],
        vec!["zz-foo-unknown-linux-gnu-x".to_owned()],
        vec!["zz-foo---".to_owned()],
        vec!["host----".to_owned()],
        vec![amd("gfx906"), amd("gfx906:xnack+"), HOST.to_owned()],
        vec![amd("gfx906:xnack+"), amd("gfx906"), HOST.to_owned()],
        vec![amd("gfx906:sramecc+"), amd("gfx906:xnack+")],
        vec![
            amd("gfx906:sramecc+:xnack+"),
            amd("gfx906:sramecc+"),
            "openmp-x86_64-unknown-linux-gnu".to_owned(),
        ],
        vec!["openmp-x86_64-unknown-linux-gnu".to_owned()],
        vec![
            "openmp-x86_64-unknown-linux-gnu".to_owned(),
            GFX906.to_owned(),
        ],
        vec![HOST.to_owned(), "host-x86_64-pc-linux-gnu-".to_owned()],
        vec![HOST.to_owned(), "host-x86_64-unknown-linux-gnu".to_owned()],
    ];
    for list in lists {
        let inputs: String = list.iter().map(|_| "-input=gone ").collect();
        same(
            &work,
            &format!("-type=zz -output=o {inputs} -targets={}", list.join(",")),
            &[],
        )?;
        let outputs: String = list.iter().map(|_| "-output=o ").collect();
        same(
            &work,
            &format!(
                "-type=zz -unbundle -input=gone {outputs} -targets={}",
                list.join(",")
            ),
            &[],
        )?;
    }
    passed()
}

fn files() -> Outcome {
    let work = Work::new();
    work.file("a", "A");
    for line in [
        format!("-type=zz -targets={HOST} -input=gone -output=o"),
        format!("-type=zz -targets={HOST} -input=a -output=o"),
        format!("-type=i -targets={HOST},{GFX906} -input=a -input=gone/b -output=o"),
        format!("-type=i -targets={HOST} -input=. -output=o"),
        format!("-type=i -targets={HOST} -input= -output=o"),
        format!("-type=i -targets={HOST} -input=a -output=gone/o"),
        format!("-type=i -targets={HOST} -input=a -output=."),
        format!("-type=i -unbundle -targets={HOST} -input=gone -output=o"),
        format!("-type=zz -unbundle -targets={HOST} -input=a -output=o"),
        "-type=i -list -input=gone".to_owned(),
        "-type=o -list -input=.".to_owned(),
        "-type=o -list -input=a".to_owned(),
        "-type=i -list -input=/dev/null".to_owned(),
        "-type=bc -list -input=/dev/null".to_owned(),
        "-type=a -list -input=a".to_owned(),
    ] {
        same(&work, &line, &[])?;
    }
    passed()
}

fn environment() -> Outcome {
    let work = Work::new();
    work.file("a", "A file that is no bundle, long enough to be one");
    let (level, version) = (
        "OFFLOAD_BUNDLER_COMPRESSION_LEVEL",
        "COMPRESSED_BUNDLE_FORMAT_VERSION",
    );
    let list = "-type=bc -list -input=a";
    for value in [
        "",
        "9",
        "9x",
        "x",
        "0x10",
        "+3",
        "-3",
        "--3",
        "-",
        " 3",
        "99999999999",
    ] {
        same(&work, list, &[(level, value)])?;
    }
    for value in [
        "", "2", "3", "03", "4", "1", "+3", "-3", "abc", "65535", "65536", "99999",
    ] {
        same(&work, list, &[(version, value)])?;
    }
    let both = [(level, "x"), (version, "y")];
    same(&work, list, &both)?;
    for ignore in ["1", "0", "true", "11"] {
        same(
            &work,
            list,
            &[both[0], both[1], ("OFFLOAD_BUNDLER_IGNORE_ENV_VAR", ignore)],
        )?;
    }
    // Their warnings appear before the checks, and after the errors of the option parser.
    same(&work, "-type=i -inputs=a -outputs=b -output=c", &both)?;
    same(&work, "-tpe=i", &both)?;
    for verbose in ["1", "true", "0"] {
        same(&work, list, &[("OFFLOAD_BUNDLER_VERBOSE", verbose)])?;
    }
    same(
        &work,
        "-type=bc -list -input=a -verbose=0",
        &[("OFFLOAD_BUNDLER_VERBOSE", "1")],
    )?;
    passed()
}

fn missing_bundles() -> Outcome {
    let work = Work::new();
    work.file("a", "A");
    let unbundle = "-unbundle -type=o -input=a";
    let other = "openmp-nvptx64-nvidia-cuda--sm_70";
    for (targets, outputs) in [
        (HOST.to_owned(), "-output=o"),
        (format!("{HOST},{GFX906}"), "-output=o -output=p"),
        (
            format!("{HOST},{other},{GFX90A},{GFX906}"),
            "-output=o -output=p -output=q -output=r",
        ),
    ] {
        same(
            &work,
            &format!("{unbundle} -targets={targets} {outputs}"),
            &[],
        )?;
    }
    expect_no_file(&work.path().join("o"))?;
    passed()
}

fn comma_lists() -> Outcome {
    let work = Work::new();
    work.file("a,b", "A");
    work.file("a", "1");
    work.file("b", "22");
    let warnings = "BUNDLER: warning: -inputs is deprecated, use -input instead\n\
                    BUNDLER: warning: -outputs is deprecated, use -output instead\n";
    let named = |text: &str| text.replace(&ours().display().to_string(), "BUNDLER");
    let line = format!("-type=i -targets={HOST},{GFX906} -inputs=a,b -outputs=ours");
    let stderr = stderr_of(&mut bundler(&work, ours(), &words(&line)))?;
    expect_equal("warnings", warnings, &named(&stderr))?;
    stderr_of(&mut bundler(
        &work,
        theirs(),
        &words(&line.replace("=ours", "=theirs")),
    ))?;
    expect_equal(
        "the bundle",
        &text(&std::fs::read(work.path().join("theirs"))?),
        &text(&std::fs::read(work.path().join("ours"))?),
    )?;
    let line =
        format!("-type=i -unbundle -targets={HOST} -targets={GFX906} -inputs=ours -outputs=x,y");
    expect_equal(
        "warnings",
        warnings,
        &named(&stderr_of(&mut bundler(&work, ours(), &words(&line)))?),
    )?;
    expect_equal(
        "the second",
        "22",
        &std::fs::read_to_string(work.path().join("y"))?,
    )?;
    // The options for a single file do not split at commas.
    run(&mut bundler(
        &work,
        ours(),
        &words(&format!("-type=i -targets={HOST} -input=a,b -output=one")),
    ))?;
    expect_in(&std::fs::read_to_string(work.path().join("one"))?, "\nA\n")?;
    let failed = run_failing(&mut bundler(
        &work,
        ours(),
        &words(&format!("-type=i -targets={HOST} -inputs=a,b -output=one")),
    ))?;
    expect_in(
        &failed,
        "number of input files and targets should match in bundling mode",
    )?;
    let printed = output(&mut bundler(
        &work,
        ours(),
        &words("--type bc --list --input one"),
    ))?;
    expect_equal("a text bundle is no binary one", "", &text(&printed.stdout))?;
    passed()
}
