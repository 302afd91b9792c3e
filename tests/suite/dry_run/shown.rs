//! Parser for the output of a dry run: commands as arguments, without differences in notation.

use std::fmt;
use std::path::Path;

use libtest_mimic::Failed;

/// The format of printed commands.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Form {
    /// Quoted for a shell.
    Shell,
    /// LLVM's format: arguments separated by spaces.
    Raw,
}

/// The end of a line for a step that runs in-process.
const IN_PROCESS: &str = " # in process";

/// The commands of a link.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Shown {
    pub device: Vec<Vec<String>>,
    pub host: Vec<String>,
    /// The commands after the host link.
    pub after: Vec<Vec<String>>,
}

impl Shown {
    /// Parses the output of a wrapper that ran in `folder`.
    pub(super) fn read(printed: &str, form: Form, folder: &Path) -> Result<Shown, Failed> {
        let commands = printed.lines().filter(|line| line.starts_with(" \""));
        // LLVM's wrapper runs the same steps in-process and does not print them.
        let unshown =
            |line: &&str| line.ends_with(IN_PROCESS) && !line.contains("/llvm-objcopy\" ");
        let commands = commands
            .filter(|line| !unshown(line))
            .map(|line| line.trim_end_matches(IN_PROCESS));
        let words = |line: &str| match form {
            Form::Shell => shell_words(line),
            Form::Raw => line
                .trim()
                .replace('"', "")
                .split(' ')
                .map(str::to_owned)
                .collect(),
        };
        let temp = folder.join("tmp").display().to_string();
        let mut commands: Vec<Vec<String>> = commands
            .map(|line| normalized(words(line), &temp))
            .collect();
        let is_device = |command: &Vec<String>| command[0].ends_with("/clang");
        let devices = commands
            .iter()
            .take_while(|command| is_device(command))
            .count();
        if devices == commands.len() {
            return Err(format!("no host link in what was printed:\n{printed}").into());
        }
        let after = commands.split_off(devices + 1);
        let host = commands.pop().unwrap_or_default();
        Ok(Shown {
            device: commands,
            host,
            after,
        })
    }
}

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let host = std::iter::once(&self.host);
        self.device
            .iter()
            .chain(host)
            .chain(&self.after)
            .try_for_each(|command| writeln!(f, "{}", command.join(" ")))
    }
}

/// The arguments in a common notation: `-Lx`, `-lx` and `-r` for LLVM's `-L x`, `-l x` and
/// `--relocatable`, and without the arbitrary parts of temporary file names.
fn normalized(args: Vec<String>, temp: &str) -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    let mut args = args.into_iter().peekable();
    while let Some(word) = args.next() {
        let word = match word.as_str() {
            "-L" | "-l" => word + &args.next().unwrap_or_default(),
            "--relocatable" => "-r".to_owned(),
            _ => word,
        };
        out.push(temp_name(&word, temp).unwrap_or(word));
    }
    out
}

/// `TEMP/stem.ext` for a temporary file. offld's names are `<folder>/stem.ext`, with a number if
/// the stem exists already. LLVM's are `stem-<six digits>.ext`.
fn temp_name(word: &str, temp: &str) -> Option<String> {
    let path = word.strip_prefix(temp)?.strip_prefix('/')?;
    let (stem, extension) = path.rsplit_once('.')?;
    let stem = match stem.split_once('/') {
        Some((_, own)) => own
            .rsplit_once('.')
            .filter(|(_, number)| number.parse::<u32>().is_ok())
            .map_or(own, |(own, _)| own),
        None => stem
            .rsplit_once('-')
            .filter(|(_, random)| random.len() == 6)
            .map_or(stem, |(own, _)| own),
    };
    Some(format!("TEMP/{stem}.{extension}"))
}

/// Splits a command line like a POSIX shell, without expansions.
pub(crate) fn shell_words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        match (c, quote) {
            (' ', None) => words.extend(word.take()),
            ('\'' | '"', None) => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (_, Some(open)) if c == open => quote = None,
            ('\\', None | Some('"')) => word.get_or_insert_default().extend(chars.next()),
            _ => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}
