//! Selection of files, and of members of wheels, other zip files and tar archives, by `--only GLOB`
//! and `--exclude GLOB`.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use glob::Pattern;

use offload_formats::error;
use offload_formats::model::printable;

/// Patterns of names. Without patterns, everything is selected.
#[derive(Debug, Default)]
pub struct Selection {
    only: Vec<Rule>,
    exclude: Vec<Rule>,
}

/// A pattern, and whether a name has matched it.
#[derive(Debug)]
struct Rule {
    pattern: Pattern,
    used: AtomicBool,
}

/// The decision on a file or member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Choice {
    /// The file is selected with all its members that no pattern excludes.
    Selected,
    /// The file itself is not selected, but its members may be.
    Within,
    /// Nothing in it is selected.
    Excluded,
}

impl Selection {
    /// Selects names that one of `only` and none of `exclude` matches. An empty `only` selects all
    /// names.
    pub fn new(only: &[String], exclude: &[String]) -> Result<Selection, error::Error> {
        Selection::of_options(["--only", "--exclude"], only, exclude)
    }

    /// The same as [`Selection::new`]. `options` are the sources of both lists, for messages.
    pub(crate) fn of_options(
        options: [&str; 2],
        only: &[String],
        exclude: &[String],
    ) -> Result<Selection, error::Error> {
        let rules = |option: &str, texts: &[String]| {
            let rule = |text: &String| {
                let pattern = Pattern::new(text);
                let pattern = pattern.map_err(|error| {
                    error::Error::usage(format!(
                        "invalid pattern `{}` of {option}: {}",
                        printable(text),
                        error.msg
                    ))
                })?;
                Ok(Rule {
                    pattern,
                    used: AtomicBool::new(false),
                })
            };
            texts
                .iter()
                .map(rule)
                .collect::<Result<Vec<_>, error::Error>>()
        };
        Ok(Selection {
            only: rules(options[0], only)?,
            exclude: rules(options[1], exclude)?,
        })
    }

    /// Selects the members with these names, and members whose paths end with one of them.
    pub(crate) fn of_members(names: impl Iterator<Item = String>) -> Selection {
        let rule = |name: String| Pattern::new(&Pattern::escape(&name)).ok();
        let rules = names.filter_map(rule).map(|pattern| Rule {
            pattern,
            used: AtomicBool::default(),
        });
        Selection {
            only: rules.collect(),
            exclude: Vec::new(),
        }
    }

    /// Whether every file and member is selected.
    pub(crate) fn is_all(&self) -> bool {
        self.only.is_empty() && self.exclude.is_empty()
    }

    /// The decision on the file or member `name`. `within` is the decision on the enclosing file,
    /// if any.
    pub(crate) fn of(&self, name: &Path, within: Option<Choice>) -> Choice {
        if self
            .exclude
            .iter()
            .filter(|rule| rule.matches(name))
            .count()
            > 0
        {
            return Choice::Excluded;
        }
        // Every pattern is tried, because patterns without a match are reported.
        let matched = self.only.iter().filter(|rule| rule.matches(name)).count() > 0;
        match within {
            Some(choice) if choice != Choice::Within => choice,
            _ if matched || self.only.is_empty() => Choice::Selected,
            _ => Choice::Within,
        }
    }

    /// The patterns of `--only` that no name has matched.
    pub fn unmatched_only(&self) -> impl Iterator<Item = &str> {
        unused(&self.only)
    }

    /// The patterns of `--exclude` that no name has matched.
    pub fn unmatched_exclude(&self) -> impl Iterator<Item = &str> {
        unused(&self.exclude)
    }
}

impl Rule {
    /// Whether the pattern matches the path `name` or the last component of it.
    fn matches(&self, name: &Path) -> bool {
        let matches = |text: &str| self.pattern.matches(text);
        let last = name.file_name().map(|last| last.to_string_lossy());
        let is_match = matches(&name.to_string_lossy()) || last.is_some_and(|last| matches(&last));
        self.used.fetch_or(is_match, Ordering::Relaxed);
        is_match
    }
}

fn unused(rules: &[Rule]) -> impl Iterator<Item = &str> {
    rules
        .iter()
        .filter(|rule| !rule.used.load(Ordering::Relaxed))
        .map(|rule| rule.pattern.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selection(only: &[&str], exclude: &[&str]) -> Selection {
        let owned = |texts: &[&str]| {
            texts
                .iter()
                .map(|text| (*text).to_owned())
                .collect::<Vec<_>>()
        };
        Selection::new(&owned(only), &owned(exclude)).unwrap()
    }

    #[test]
    fn a_name_is_matched_as_a_path_and_by_its_last_component() {
        let name = Path::new("pkg/lib/libcuda12.so");
        for (only, exclude, expected) in [
            (&[][..], &[][..], Choice::Selected),
            (&["libcuda*"], &[], Choice::Selected),
            (&["pkg/*.so"], &[], Choice::Selected),
            (&["*cuda*"], &["*12*"], Choice::Excluded),
            (&["libhip*"], &[], Choice::Within),
            (&[], &["lib"], Choice::Selected),
        ] {
            assert_eq!(
                selection(only, exclude).of(name, None),
                expected,
                "{only:?} {exclude:?}"
            );
        }
    }

    #[test]
    fn members_of_a_selected_file_are_selected_unless_they_are_excluded() {
        let selection = selection(&["*.whl"], &["*xpu*"]);
        let wheel = selection.of(Path::new("dist/a.whl"), None);
        assert_eq!(wheel, Choice::Selected);
        assert_eq!(
            selection.of(Path::new("a/liba.so"), Some(wheel)),
            Choice::Selected
        );
        assert_eq!(
            selection.of(Path::new("a/libxpu.so"), Some(wheel)),
            Choice::Excluded
        );
        assert_eq!(selection.of(Path::new("other.zip"), None), Choice::Within);
        assert_eq!(
            selection.unmatched_only().count() + selection.unmatched_exclude().count(),
            0
        );
    }

    #[test]
    fn patterns_without_a_match_are_told_and_invalid_ones_are_errors() {
        let selection = selection(&["a*", "b*"], &["c"]);
        selection.of(Path::new("abc"), None);
        assert_eq!(selection.unmatched_only().collect::<Vec<_>>(), ["b*"]);
        assert_eq!(selection.unmatched_exclude().collect::<Vec<_>>(), ["c"]);
        let error = Selection::new(&["[".to_owned()], &[])
            .unwrap_err()
            .to_string();
        assert!(error.contains("invalid pattern `[` of --only"), "{error}");
    }
}
