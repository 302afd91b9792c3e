//! The stand-in for the compiler, which allocates memory for a time and records the times; and the
//! shortest possible time for such links.

use std::process::Command;

use libtest_mimic::Failed;

use crate::kit::Image;
use crate::support::{Work, ensure};

/// `tail` holds its input in memory until the end. Each note is short enough for an atomic append.
const SCRIPT: &str = concat!(
    crate::kit::reads_its_line!(),
    r#"read -r memory time < "links/$cpu"
echo "begun $$ $cpu $memory $(date +%s.%N)" >> notes
[ -e before ] && . ./before
bytes=$((memory * 1048576))
{ head -c $bytes /dev/zero; sleep "$time"; } | tail -c $bytes > /dev/null || exit 137
echo "ended $$ $cpu $memory $(date +%s.%N)" >> notes
echo image > "$out"
"#
);

/// A completed link: its memory in MiB, and its start and end in seconds.
#[derive(Debug, Clone)]
pub(crate) struct Link {
    pub(crate) memory: u64,
    pub(crate) begun: f64,
    pub(crate) ended: f64,
}

/// A directory with an object for the devices of `links`, and the stand-in for their compiler.
pub(crate) fn prepared(links: &[(&str, u64, &str)]) -> Result<Work, Failed> {
    let work = Work::new();
    let images: Vec<Image<'_>> = links
        .iter()
        .map(|(arch, ..)| Image::amd(arch, "A"))
        .collect();
    work.fat("a.o", &images)?;
    work.tool("tools/clang", SCRIPT);
    for (arch, memory, time) in links {
        work.file(&format!("links/{arch}"), format!("{memory} {time}\n"));
    }
    Ok(work)
}

/// A link of the object with these arguments.
pub(crate) fn link(work: &Work, args: &[&str]) -> Command {
    let mut command = work.wrapper(args.iter().copied());
    if !args.contains(&"-o") {
        command.args(["-o", "p0"]);
    }
    command.arg("a.o");
    command
}

/// The links that have completed since the last call.
pub(crate) fn ran(work: &Work) -> Result<Vec<Link>, Failed> {
    let notes = std::fs::read_to_string(work.path().join("notes"))?;
    std::fs::remove_file(work.path().join("notes"))?;
    let rows: Vec<Vec<&str>> = notes
        .lines()
        .map(|line| line.split(' ').collect())
        .collect();
    let time = |row: &[&str]| {
        row[4]
            .parse::<f64>()
            .map_err(|error| Failed::from(format!("{row:?}: {error}")))
    };
    let mut links = Vec::new();
    for row in rows.iter().filter(|row| row[0] == "begun") {
        if let Some(end) = rows
            .iter()
            .find(|end| end[0] == "ended" && end[1] == row[1])
        {
            links.push(Link {
                memory: row[3].parse()?,
                begun: time(row)?,
                ended: time(end)?,
            });
        }
    }
    Ok(links)
}

/// Fails if the links that ran at the same time used more than `limit` MiB.
pub(super) fn expect_within(links: &[Link], limit: u64) -> Result<(), Failed> {
    for at in links {
        let running = links
            .iter()
            .filter(|link| link.begun <= at.begun && at.begun < link.ended);
        let taken: u64 = running.map(|link| link.memory).sum();
        ensure(taken <= limit, || {
            format!("{taken} MiB at once, of {limit}: {links:?}")
        })?;
    }
    Ok(())
}

/// The shortest time for `links` with `slots` at once and `limit` MiB in total, over all start
/// orders.
pub(super) fn best(links: &[Link], slots: usize, limit: u64) -> f64 {
    let mut order: Vec<usize> = (0..links.len()).collect();
    let mut best = f64::INFINITY;
    permutations(&mut order, 0, &mut |order| {
        best = best.min(time_of(links, order, slots, limit))
    });
    best
}

fn permutations(order: &mut Vec<usize>, from: usize, each: &mut impl FnMut(&[usize])) {
    if from == order.len() {
        each(order);
    }
    for at in from..order.len() {
        order.swap(from, at);
        permutations(order, from + 1, each);
        order.swap(from, at);
    }
}

/// The total time if the links start in `order`, each as soon as it fits, and none before its
/// predecessors.
fn time_of(links: &[Link], order: &[usize], slots: usize, limit: u64) -> f64 {
    let mut running: Vec<(f64, u64)> = Vec::new();
    let mut now = 0.0_f64;
    for at in order {
        let link = &links[*at];
        while running.len() >= slots
            || running.iter().map(|(_, memory)| memory).sum::<u64>() + link.memory > limit
        {
            running.sort_by(|a, b| a.0.total_cmp(&b.0));
            now = now.max(running.remove(0).0);
        }
        running.push((now + link.ended - link.begun, link.memory));
    }
    running.iter().map(|(end, _)| *end).fold(now, f64::max)
}
