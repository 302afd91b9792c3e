//! The step of the GitHub action, with the variables that GitHub sets.

use libtest_mimic::{Failed, Trial};

use super::rules::{OLD, wheel_for};
use crate::support::{
    Outcome, Work, ensure, expect_equal, expect_in, offld, output, passed, root, shown, text,
    with_llvm,
};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        with_llvm("gate::ci::the_action_adds_to_the_summary", action),
        with_llvm("gate::ci::the_action_finds_files_by_pattern", patterns),
    ]
}

/// Runs the step with the inputs `policy.toml`, `files` and `baseline`. Returns its output.
fn step(work: &Work, files: &str, baseline: &str, status: i32) -> Result<String, Failed> {
    let mut command = work.command(root().join("packaging/action/gate.sh"));
    let path = std::env::var("PATH")?;
    let program = offld();
    let folder = program.parent().ok_or("no directory with offld")?;
    command
        .env("PATH", format!("{}:{path}", folder.display()))
        .env("GITHUB_ACTION_PATH", root())
        .env("GITHUB_STEP_SUMMARY", work.path().join("summary.md"))
        .env("POLICY", "policy.toml")
        .env("FILES", files)
        .env("BASELINE", baseline);
    let ended = output(&mut command)?;
    ensure(ended.status.code() == Some(status), || {
        shown(&command, &ended)
    })?;
    Ok(text(&ended.stdout))
}

fn action() -> Outcome {
    let work = Work::new();
    wheel_for(&work, OLD, &[("lib.so", &["sm_80"])])?;
    work.file(
        "policy.toml",
        "version = 1\n[[rule]]\nrequire = \"sm_80\"\n",
    );
    work.file("summary.md", "# Earlier step\n");
    let stdout = step(&work, OLD, "", 0)?;
    expect_equal("stdout", "**policy.toml: 1 rule met**\n", &stdout)?;
    work.file(
        "policy.toml",
        "version = 1\n[[rule]]\nrequire = \"sm_90\"\n",
    );
    let stdout = step(&work, OLD, "", 3)?;
    expect_in(&stdout, "\n::error::files violate policy.toml\n")?;
    let summary = std::fs::read_to_string(work.path().join("summary.md"))?;
    expect_in(&summary, "# Earlier step\n**policy.toml: 1 rule met**\n")?;
    expect_in(
        &summary,
        &format!("| all files | require | {OLD} |  | sm_80 | sm_90 |"),
    )?;
    // The action passes the inputs that action.yml has.
    let manifest = std::fs::read_to_string(root().join("action.yml"))?;
    for name in ["POLICY", "FILES", "BASELINE"] {
        let input = name.to_lowercase();
        expect_in(&manifest, &format!("{name}: ${{{{ inputs.{input} }}}}"))?;
    }
    passed()
}

fn patterns() -> Outcome {
    let work = Work::new();
    for folder in ["dist/with space", "old"] {
        std::fs::create_dir_all(work.path().join(folder))?;
    }
    wheel_for(&work, OLD, &[("lib.so", &["sm_80", "sm_90"])])?;
    for place in ["dist", "dist/with space", "old"] {
        std::fs::copy(work.path().join(OLD), work.path().join(place).join(OLD))?;
    }
    work.file(
        "policy.toml",
        "version = 1\n[[rule]]\nchecks = \"no-lost-kernels\"\nrequire = \"sm_120\"\n",
    );
    let row = |place: &str| format!("| all files | require | {place}/{OLD} |");
    let stdout = step(&work, "dist/**/*.whl\n", "old\n", 3)?;
    expect_in(&stdout, "**policy.toml: 2 violations**")?;
    expect_in(&stdout, &row("dist"))?;
    expect_in(&stdout, &row("dist/with space"))?;
    let stdout = step(&work, "dist/with space\n", "old", 3)?;
    expect_in(&stdout, "**policy.toml: 1 violation**")?;
    expect_in(&stdout, &row("dist/with space"))?;
    let stdout = step(&work, "none/*.whl", "old", 2)?;
    expect_equal("stdout", "::error::no file matches none/*.whl\n", &stdout)?;
    passed()
}
