//! The blocks of a Markdown document, each with the remark before it that says who runs its commands:
//!
//! * `<!-- run -->`: the suite runs it as it stands (`tests/suite/docs.rs`); `<!-- run: ends with 1 -->`: that is the exit status of each;
//! * `<!-- test: NAME, … -->`: tests of the suite, or scripts, that run these commands or others of their form;
//! * `<!-- not run: WHY -->`.

/// A fenced or indented block.
pub(crate) struct Block {
    /// The line of the document in which it begins, from 1.
    pub(crate) line: usize,
    /// What stands after the fence; nothing for an indented block.
    pub(crate) info: Option<String>,
    /// The text of the remark on the line before it.
    pub(crate) mark: Option<String>,
    /// Its lines.
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
            let ends = trimmed.starts_with(&fence) && trimmed.trim_matches(['`', '~', ' ']).is_empty();
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
        let new = |info| Block { line: index + 1, info, mark: mark(before), text: String::new() };
        let fence: String = trimmed.chars().take_while(|c| ['`', '~'].contains(c)).collect();
        if fence.len() >= 3 {
            let info = trimmed[fence.len()..].trim().to_owned();
            open = Some((fence, new(Some(info))));
        } else if line.starts_with("    ") && before.trim().is_empty() && !follows_a_list(document, index) {
            all.push(new(None));
        }
        before = line;
    }
    all
}

/// The text of a remark that is a line by itself.
fn mark(line: &str) -> Option<String> {
    Some(line.trim().strip_prefix("<!--")?.strip_suffix("-->")?.trim().to_owned())
}

/// Whether what is indented there belongs to a list.
fn follows_a_list(document: &str, index: usize) -> bool {
    let lines: Vec<&str> = document.lines().take(index).collect();
    let above = lines.iter().rev().find(|line| !line.trim().is_empty() && !line.starts_with(' '));
    above.is_some_and(|line| line.starts_with(['*', '-']) || line.starts_with(|c: char| c.is_ascii_digit()))
}
