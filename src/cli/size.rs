//! `offld size FILE…`: which architecture, translation unit and kernel the bytes of files belong to, what came since another
//! release, and whether limits are kept.

use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};

use super::inspect::with_status;
use crate::args::size::parse_size;
use crate::contents::{self, layout::Names};
use crate::error::Silent;
use crate::model::OffloadKind;
use crate::sys::native::{self, Machine};
use crate::sys::session::{Session, SessionOptions};
use crate::sys::shell::{self, Shell};
use crate::sys::table::Style;
use crate::target::{Selector, Target};
use crate::tools::size::budget::{Budget, Outcome};
use crate::tools::size::report::{FileSize, Report};
use crate::tools::size::rows::{View, levels, tree};
use crate::tools::size::table::{self, Look};
use crate::tools::size::{Level, Sizes, html, markdown, measure, measure_old, pattern, save};

/// The exit status when a file, or part of one, could not be read.
const UNREADABLE: u8 = 2;
/// The exit status when a budget is broken.
const OVER_BUDGET: u8 = 3;

/// The text below the options in the help.
pub(super) const AFTER_HELP: &str = "Every byte of a file is counted once: what is in the file, and what it would be inflated. Bytes in something compressed\n\
    are its share of the compressed bytes.\n\n\
    Exit status: 0, or 3 where a budget is broken, or 2 where something could not be read (stderr says what; what could be read is\n\
    shown all the same).\n\n\
    Examples:\n  offld size libtorch_cuda.so\n  offld size --by arch,kernel --top 5 --filter gemm libhip.so\n  \
    offld size --save v1.json libx.so   # and after the next build:\n  \
    offld size --diff v1.json --budget 'total<850M,gfx942<120M,growth<2%' libx.so";

/// The options of `offld size`.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// Objects, libraries, programs, archives, wheels and other zip files, tar archives, packages (.deb), bundles, device code by
    /// itself, and whatever of this gzip, xz, zstd or bzip2 has compressed; folders, for all that is in them; - is stdin
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Tell these apart; several make a tree
    #[arg(long, value_enum, value_delimiter = ',', value_name = "LEVEL")]
    by: Vec<By>,
    /// Show this many rows of each level; 0 for all
    #[arg(long, default_value_t = 20, value_name = "N")]
    top: usize,
    /// What is the largest: what takes most of the file, or what is largest inflated
    #[arg(long, value_enum, default_value = "file")]
    sort: Sort,
    /// Count only what has a kernel, translation unit, section or architecture that this matches; lower and upper case are the same
    #[arg(long, value_name = "REGEX")]
    filter: Option<String>,
    /// Compare with another file, or with what --save has written
    #[arg(long, value_name = "OLD")]
    diff: Option<PathBuf>,
    /// Limits, such as total<850M,gfx942<120M,growth<2%: of total, inflated, host, growth (needs --diff) or of devices
    #[arg(long, value_name = "LIMITS")]
    budget: Vec<String>,
    /// Keep the sizes in a file, for --diff
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    /// Write the report as JSON
    #[arg(long, conflicts_with = "markdown")]
    json: bool,
    /// Write the report as Markdown
    #[arg(long)]
    markdown: bool,
    /// Write a page for browsers as well, which needs nothing but itself: a treemap that zooms, and a table to search and sort
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// The most that may come out of what is compressed in a file, such as 500M or 2G; 64G by default, and 1000 times its size
    #[arg(long, value_name = "SIZE")]
    max_unpacked: Option<OsString>,
    /// Show sizes in bytes
    #[arg(long)]
    bytes: bool,
}

/// What can be told apart on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum By {
    /// The file, of several
    File,
    /// The architecture
    Arch,
    /// The programming model
    Kind,
    /// The format of the container
    Container,
    /// The translation unit, where the file tells
    Unit,
    /// Kernels and device functions, the instances of a template below it
    Kernel,
    /// The section
    Section,
    /// What bytes are for
    Part,
}

impl By {
    fn level(self) -> Level {
        match self {
            By::File => Level::File,
            By::Arch => Level::Arch,
            By::Kind => Level::Kind,
            By::Container => Level::Container,
            By::Unit => Level::Unit,
            By::Kernel => Level::Kernel,
            By::Section => Level::Section,
            By::Part => Level::Part,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Sort {
    File,
    Inflated,
}

/// Runs `offld size`.
pub(super) fn run(options: &Options, shell: &Arc<Shell>) -> Result<()> {
    let session = Session::new(Arc::clone(shell), SessionOptions::default());
    let (files, outcomes, text) = report(options, &session).map_err(with_status)?;
    let printed = shell::print(&text);
    files.iter().flat_map(|file| &file.errors).for_each(|error| shell.error(error));
    outcomes.iter().filter(|outcome| !outcome.kept).for_each(|outcome| shell.error(&format!("over budget: {}", outcome.why)));
    printed.map_err(with_status)?;
    if files.iter().any(|file| !file.errors.is_empty()) {
        return Err(Silent { status: UNREADABLE }.into());
    }
    if outcomes.iter().any(|outcome| !outcome.kept) {
        return Err(Silent { status: OVER_BUDGET }.into());
    }
    Ok(())
}

fn report(options: &Options, session: &Session) -> Result<(Vec<FileSize>, Vec<Outcome>, String)> {
    let mut budgets = Vec::new();
    for text in &options.budget {
        budgets.extend(Budget::parse(text, |size| parse_size(size.as_ref()), native)?);
    }
    if options.diff.is_none()
        && let Some(budget) = budgets.iter().find(|budget| budget.needs_old())
    {
        bail!("the budget `{budget}` needs --diff: it is about what came since something else");
    }
    let filter = options.filter.as_ref().map(|filter| pattern(filter)).transpose().context("--filter")?;
    let size = options.max_unpacked.as_ref().map(|size| parse_size(size).context("--max-unpacked")).transpose()?;
    let max_unpacked = size.unwrap_or(contents::Options::default().max_unpacked);
    let names = Arc::new(Names::default());
    let mut old = options.diff.as_ref().map(|path| measure_old(path, &names, max_unpacked, session)).transpose()?;
    let mut sizes = measure(&options.files, &names, max_unpacked, session)?;
    if let Some(path) = &options.save {
        save(&sizes, path)?;
    }
    let outcomes: Vec<Outcome> = budgets.iter().map(|budget| budget.check(&sizes, old.as_ref())).collect();
    if let Some(filter) = &filter {
        sizes.items.keep(|text| filter.is_match(text.as_bytes()));
        old.iter_mut().for_each(|old| old.items.keep(|text| filter.is_match(text.as_bytes())));
    }
    if let Some(path) = &options.html {
        html::save(&sizes, old.as_ref(), path)?;
    }
    if options.json {
        let total = tree(&sizes.items, old.as_ref().map(|old| &old.items), &view(options));
        let report = Report::new(sizes, total, outcomes);
        let text = report.to_json()?;
        return Ok((report.files, report.budgets, text));
    }
    let text = text(options, &sizes, old.as_ref(), &outcomes);
    Ok((sizes.files, outcomes, text))
}

/// The devices of this machine that `selector` means; an error where that is a GPU, and there is none.
pub(super) fn native(selector: &Selector) -> Result<Vec<Target>> {
    let machine = Machine::read(&native::root())?;
    let kind = selector.kind();
    let amd = machine.amd.iter().map(|name| Target::new("amdgcn-amd-amdhsa", name));
    let nvidia = machine.nvidia.iter().map(|name| Target::new("nvptx64-nvidia-cuda", name));
    let cpu = Target::new(&format!("{}-pc-linux-gnu", std::env::consts::ARCH), "");
    let all: Vec<Target> = match kind {
        Some(OffloadKind::Hip) => amd.collect(),
        Some(OffloadKind::Cuda) => nvidia.collect(),
        _ => amd.chain(nvidia).chain([cpu]).collect(),
    };
    if all.is_empty() {
        bail!("`{selector}`: no GPU for it is found on this machine");
    }
    Ok(all)
}

/// The tree that is asked for.
fn view(options: &Options) -> View {
    let by: Vec<Level> = options.by.iter().map(|by| by.level()).collect();
    View { by: if by.is_empty() { vec![Level::Arch] } else { levels(&by) }, by_inflated: options.sort == Sort::Inflated }
}

fn text(options: &Options, sizes: &Sizes, old: Option<&Sizes>, outcomes: &[Outcome]) -> String {
    let view = view(options);
    let old_items = old.map(|old| &old.items);
    let top = Some(options.top).filter(|top| *top > 0);
    let width = console::Term::stdout().size_checked().map(|(_, columns)| usize::from(columns));
    let style = Style { bytes: options.bytes, mangled: false, width };
    if options.markdown {
        return markdown::text(sizes, &tree(&sizes.items, old_items, &view), outcomes, top, style);
    }
    let colour = std::io::stdout().is_terminal() && console::colors_enabled();
    let look = Look { style, top, colour };
    let mut text = match options.by.is_empty() {
        true => table::overview(sizes, old, view.by_inflated, look),
        false => table::by(sizes, old, &view, look),
    };
    text.push_str(&table::budgets(outcomes));
    text
}
