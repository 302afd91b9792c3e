//! `offld gate POLICY FILE…`: checks files against a policy.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Result, bail};
use clap::Args;

use super::{finish, max_unpacked};
use offld_system::session::Session;
use offld_system::shell::{self, Shell};
use offload_files::gate::policy::Policy;
use offload_files::gate::text::{markdown, text};
use offload_files::gate::{self, Request, init};

/// The exit status if a file violates the policy.
const VIOLATED: u8 = 3;

/// The options of `offld gate`.
#[derive(Debug, Args)]
#[command(
    after_help = "A policy is a TOML file with rules. A rule applies to the files that match its patterns. It requires or forbids\n\
    architectures, and limits sizes and the growth of kernels. `offld help policies` lists the keys. A rule that applies to no file is an error.\n\n\
    Exit status: 0 if the files meet the policy, 3 if they violate it, or 2 if the policy is invalid or a file could not be read.\n\n\
    Examples:\n  offld gate --init dist/*.whl > device-code.toml\n  offld gate device-code.toml dist/*.whl\n  \
    offld gate --baseline v1.json device-code.toml libx.so"
)]
pub(super) struct Options {
    /// Check files and all files in directories against the policy POLICY; with --init, all
    /// arguments are files
    #[arg(required = true, value_names = ["POLICY", "FILE"], num_args = 1..)]
    files: Vec<PathBuf>,
    /// Print a policy that the files meet
    #[arg(long, conflicts_with_all = ["baseline", "json", "markdown"])]
    init: bool,
    /// Compare with OLD: an earlier file or directory, or a file from `offld diff --save` or `offld
    /// size --save`; repeatable
    #[arg(long, value_name = "OLD")]
    baseline: Vec<PathBuf>,
    /// Accept rules that apply to none of the files, such as those that a commit changes
    #[arg(long, conflicts_with = "init")]
    allow_unused_rules: bool,
    /// Print the report as JSON
    #[arg(long, conflicts_with = "markdown")]
    json: bool,
    /// Print the report as Markdown
    #[arg(long)]
    markdown: bool,
    /// Limit decompressed data to a size such as 500M [default: 64G]. It is also limited to the larger
    /// of 64 MB and 1000 times the file size
    #[arg(long, value_name = "SIZE")]
    max_unpacked: Option<OsString>,
}

pub(super) fn run(options: Options, shell: &Arc<Shell>) -> Result<()> {
    let max_unpacked = max_unpacked(options.max_unpacked.as_ref())?;
    let session = Session::of(shell);
    if options.init {
        return shell::print(&init::policy(&options.files, max_unpacked, &session)?);
    }
    let [policy, files @ ..] = options.files.as_slice() else {
        bail!("pass a policy and files");
    };
    if files.is_empty() {
        bail!("pass files after the policy, or --init to write a policy");
    }
    let request = Request {
        policy: Policy::read(policy)?,
        files: files.to_vec(),
        baseline: options.baseline,
        allow_unused: options.allow_unused_rules,
        max_unpacked,
    };
    let report = gate::gate(&request, &session)?;
    let text = if options.json {
        report.to_json()?
    } else if options.markdown {
        markdown(&report)
    } else {
        text(&report)
    };
    // A file that could not be read may hide a violation.
    let status = match (report.errors.is_empty(), report.passes()) {
        (false, _) => 2,
        (true, false) => VIOLATED,
        (true, true) => 0,
    };
    finish(&text, &report.errors, status, shell)
}
