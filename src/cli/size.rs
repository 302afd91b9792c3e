//! `offld size FILE…`: attributes the bytes of files to architectures, translation units and
//! kernels, compares them with another version, and checks budgets.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};

use super::{Selected, finish, max_unpacked, native, note_nothing};
use offld_system::environment::parse_size;
use offld_system::session::Session;
use offld_system::shell::Shell;
use offld_system::table::Style;
use offload_files::contents::layout::Names;
use offload_files::size::budget::{Budget, Outcome};
use offload_files::size::report::{FileSize, Report, View, levels, tree};
use offload_files::size::table::{self, Look};
use offload_files::size::{Counted, Level, Sizes, measure, measure_old, page, pattern, save};
use offload_formats::model::printable;

/// The exit status if a budget is exceeded.
const OVER_BUDGET: u8 = 3;

/// The options of `offld size`.
#[derive(Debug, Args)]
#[command(
    after_help = "Every byte of a file is counted once. The report shows the size in the file and the uncompressed size. Items in\n\
    compressed data share the compressed bytes in proportion to uncompressed size.\n\n\
    Exit status: 3 if a limit of --budget is exceeded, 2 if a part could not be read (stderr has the errors; the report\n\
    covers the readable parts).\n\n\
    Examples:\n  offld size libtorch_cuda.so\n  offld size --by arch,kernel --top 5 --filter gemm libhip.so\n  \
    offld size --save v1.json libx.so   # and after the next build:\n  \
    offld size --diff v1.json --budget 'total<850M,gfx942<120M,growth<2%' libx.so"
)]
pub(super) struct Options {
    /// Read files, all files in directories, or stdin (-): objects, libraries, programs, archives,
    /// wheels, zip files, tar archives, .deb packages, bundles, device images; uncompressed, or
    /// compressed with gzip, xz, zstd or bzip2
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Break the sizes down by one level, or by several levels as a tree
    #[arg(long, value_enum, value_delimiter = ',', value_name = "LEVEL")]
    by: Vec<By>,
    /// Show N rows of each level (0 shows all)
    #[arg(long, default_value_t = 20, value_name = "N")]
    top: usize,
    /// Sort rows by size in the file (file) or by uncompressed size (inflated)
    #[arg(long, value_enum, default_value = "file")]
    sort: Sort,
    /// Count only bytes whose kernel, translation unit, section or architecture matches REGEX,
    /// ignoring case
    #[arg(long, value_name = "REGEX")]
    filter: Option<String>,
    /// Compare with an earlier file, or with sizes written by --save
    #[arg(long, value_name = "OLD")]
    diff: Option<PathBuf>,
    /// Fail if a size exceeds its limit, as in total<850M,gfx942<120M. Each key is a device, total,
    /// host, inflated (the size without compression) or growth (requires --diff)
    #[arg(long, value_name = "LIMITS")]
    budget: Vec<String>,
    /// Allow --budget limits for devices without images
    #[arg(long, requires = "budget")]
    allow_unmatched: bool,
    #[command(flatten)]
    selected: Selected,
    /// Write the sizes to a file, for --diff
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    /// List as many repeated images and kernels as --top allows [without this option: 3 of each]
    #[arg(long)]
    duplicates: bool,
    /// Print the report as JSON
    #[arg(long, conflicts_with = "markdown")]
    json: bool,
    /// Print the report as Markdown
    #[arg(long)]
    markdown: bool,
    /// Write a self-contained web page to FILE, with a zoomable treemap and a sortable table
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Limit decompressed data to a size such as 500M [default: 64G]. It is also limited to the larger
    /// of 64 MB and 1000 times the file size
    #[arg(long, value_name = "SIZE")]
    max_unpacked: Option<OsString>,
    /// Show sizes in bytes
    #[arg(long)]
    bytes: bool,
    /// Show all columns and full names, regardless of the terminal width
    #[arg(long)]
    wide: bool,
}

/// The levels of a breakdown on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum By {
    /// The file
    File,
    /// The member of a wheel, zip file or tar archive
    Member,
    /// The architecture
    Arch,
    /// The programming model
    Kind,
    /// The format of the container
    Container,
    /// The translation unit, if recorded in the file
    Unit,
    /// The kernel or device function, with instances grouped by template
    Kernel,
    /// The section
    Section,
    /// The purpose of the bytes, such as code or debug information
    Part,
}

impl By {
    fn level(self) -> Level {
        match self {
            By::File => Level::File,
            By::Member => Level::Member,
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

pub(super) fn run(options: Options, shell: &Arc<Shell>) -> Result<()> {
    let (files, outcomes, text) = report(&options, &Session::of(shell))?;
    if files.is_empty() {
        note_nothing(&options.files, shell);
    }
    let place = match files.as_slice() {
        [one] => printable(&one.file).into_owned(),
        several => format!("{} files", several.len()),
    };
    let errors = files.iter().flat_map(|file| &file.errors);
    let exceeded = outcomes.iter().filter(|outcome| !outcome.kept);
    let exceeded = exceeded.map(|outcome| format!("{place}: over budget: {}", outcome.why));
    let errors: Vec<String> = errors.cloned().chain(exceeded).collect();
    let status = if files.iter().any(|file| !file.errors.is_empty()) {
        2
    } else if errors.is_empty() {
        0
    } else {
        OVER_BUDGET
    };
    finish(&text, errors, status, shell)
}

fn report(options: &Options, session: &Session) -> Result<(Vec<FileSize>, Vec<Outcome>, String)> {
    let mut budgets = Vec::new();
    for text in &options.budget {
        budgets.extend(Budget::parse(
            text,
            |size| parse_size(size.as_ref()),
            native,
        )?);
    }
    if options.diff.is_none()
        && let Some(budget) = budgets.iter().find(|budget| budget.needs_old())
    {
        bail!("the budget `{budget}` compares with an earlier file: pass it with --diff");
    }
    let filter = options
        .filter
        .as_ref()
        .map(|filter| pattern(filter))
        .transpose()
        .context("--filter")?;
    let max_unpacked = max_unpacked(options.max_unpacked.as_ref())?;
    let selection = options.selected.selection()?;
    let counted = Counted {
        names: Arc::new(Names::default()),
        max_unpacked,
        selection: Arc::clone(&selection),
        keep_empty: false,
    };
    let mut old = options
        .diff
        .as_ref()
        .map(|path| measure_old(path, &counted, session))
        .transpose()?;
    let mut sizes = measure(&options.files, &counted, session)?;
    Selected::check(&selection, &session.shell)?;
    if let Some(old) = &mut old {
        old.items.match_renamed(&sizes.items);
    }
    if !options.allow_unmatched
        && let Some(unmatched) = budgets
            .iter()
            .find_map(|budget| budget.unmatched(&sizes, old.as_ref()))
    {
        bail!("{unmatched}; pass --allow-unmatched to allow that");
    }
    if let Some(path) = &options.save {
        save(&sizes, path)?;
    }
    let style = style(options, &session.shell);
    let outcomes: Vec<Outcome> = budgets
        .iter()
        .map(|budget| budget.check(&sizes, old.as_ref(), style))
        .collect();
    if let Some(filter) = &filter {
        sizes.items.keep(|text| filter.is_match(text.as_bytes()));
        old.iter_mut()
            .for_each(|old| old.items.keep(|text| filter.is_match(text.as_bytes())));
        if std::iter::once(&sizes)
            .chain(&old)
            .all(|sizes| sizes.items.list.is_empty())
        {
            session.shell.warn(&format!(
                "nothing matches `{}` of --filter",
                printable(filter.as_str())
            ));
        }
    }
    if let Some(path) = &options.html {
        page::save(&sizes, old.as_ref(), path)?;
    }
    if options.json {
        let total = tree(
            &sizes.items,
            old.as_ref().map(|old| &old.items),
            &view(options),
        );
        let report = Report::new(sizes, total, outcomes);
        let text = report.to_json()?;
        return Ok((report.files, report.budgets, text));
    }
    let text = text(options, &sizes, old.as_ref(), &outcomes, &session.shell);
    Ok((sizes.files, outcomes, text))
}

/// The levels and the order of the requested tree.
fn view(options: &Options) -> View {
    let by: Vec<Level> = options.by.iter().map(|by| by.level()).collect();
    View {
        by: if by.is_empty() {
            vec![Level::Arch]
        } else {
            levels(&by)
        },
        by_inflated: options.sort == Sort::Inflated,
    }
}

/// The format of sizes and tables.
fn style(options: &Options, shell: &Shell) -> Style {
    Style {
        bytes: options.bytes,
        ..shell.stdout_style().wide(options.wide)
    }
}

fn text(
    options: &Options,
    sizes: &Sizes,
    old: Option<&Sizes>,
    outcomes: &[Outcome],
    shell: &Shell,
) -> String {
    let view = view(options);
    let old_items = old.map(|old| &old.items);
    let top = Some(options.top).filter(|top| *top > 0);
    let style = style(options, shell);
    if options.markdown {
        return table::markdown(
            sizes,
            &tree(&sizes.items, old_items, &view),
            outcomes,
            top,
            style,
        );
    }
    let look = Look {
        style,
        top,
        duplicates: options.duplicates,
        colour: style.colour,
    };
    let mut text = match options.by.is_empty() {
        true => table::overview(sizes, old, view.by_inflated, look),
        false => table::by(sizes, old, &view, look),
    };
    text.push_str(&table::budgets(outcomes));
    text
}
