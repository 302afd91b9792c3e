//! Parses the code blocks of a Markdown document. A mark before a block of commands names the test
//! that runs it:
//!
//! * `<!-- run -->`: the suite runs the block unchanged (`tests/suite/docs.rs`).
//!   `<!-- run: ends with 1 -->`: the exit status of each command;
//! * `<!-- test: NAME, … -->`: tests of the suite, or scripts, that run these commands or similar
//!   ones;
//! * `<!-- not run: WHY -->`.

/// A fenced or indented block.
pub(crate) struct Block {
    /// The number of its first line in the document, from 1.
    pub(crate) line: usize,
    /// The text after the opening fence; none for an indented block.
    pub(crate) info: Option<String>,
    /// The text of the mark on the line before the block.
    pub(crate) mark: Option<String>,
    /// The lines of the block.
    pub(crate) text: String,
}

/// All blocks of `document`, in order.
pub(crate) fn blocks(document: &str) -> Vec<Block> {
    let mut all: Vec<Block> = Vec::new();
    let mut open: Option<(String, Block)> = None;
    let mut before = "";
    for (index, line) in document.lines().enumerate() {
        let trimmed = line.trim_start();
        if let Some((fence, mut block)) = open.take() {
            let ends =
                trimmed.starts_with(&fence) && trimmed.trim_matches(['`', '~', ' ']).is_empty();
            if ends {
                all.push(block);
                before = "";
            } else {
                block.text.push_str(line);
                block.text.push('\n');
                open = Some((fence, block));
            }
            continue;
        }
        let new = |info| Block {
            line: index + 1,
            info,
            mark: mark(before),
            text: String::new(),
        };
        let fence: String = trimmed
            .chars()
            .take_while(|c| ['`', '~'].contains(c))
            .collect();
        if fence.len() >= 3 {
            let info = trimmed[fence.len()..].trim().to_owned();
            open = Some((fence, new(Some(info))));
        } else if line.starts_with("    ")
            && before.trim().is_empty()
            && !follows_a_list(document, index)
        {
            all.push(new(None));
        }
        before = line;
    }
    all
}

/// The text of an HTML comment that is a whole line.
fn mark(line: &str) -> Option<String> {
    Some(
        line.trim()
            .strip_prefix("<!--")?
            .strip_suffix("-->")?
            .trim()
            .to_owned(),
    )
}

/// Whether the indented line at `index` belongs to a list.
fn follows_a_list(document: &str, index: usize) -> bool {
    let lines: Vec<&str> = document.lines().take(index).collect();
    let above = lines
        .iter()
        .rev()
        .find(|line| !line.trim().is_empty() && !line.starts_with(' '));
    above.is_some_and(|line| {
        line.starts_with(['*', '-']) || line.starts_with(|c: char| c.is_ascii_digit())
    })
}
