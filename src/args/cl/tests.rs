//! Tests of the parser with a table like those of the tools. The expected texts are the output of
//! LLVM 22's tools.

use std::ffi::OsString;

use super::{Kind, Opt, Outcome, ParsedLine, Positional, Refused, ToolSpec, parse};

static TOOL: ToolSpec = ToolSpec {
    name: "tool",
    overview: "Does something",
    usage: "<files>",
    category: "tool options",
    options: &[
        Opt::new(
            "type",
            Kind::Text,
            "<string>",
            "The type.\nOne of:\n  i - this",
        )
        .required(),
        Opt::new("list", Kind::Flag, "", "Lists."),
        Opt::new("align", Kind::Uint, "<uint>", "Aligns."),
        Opt::new("level", Kind::Int, "<n>", "Levels."),
        Opt::new("input", Kind::List, "<string>", "Input."),
        Opt::new("targets", Kind::CommaList, "<string>", "Targets."),
        Opt::new(
            "kind",
            Kind::Choice(&[("openmp", "Wrap OpenMP"), ("hip", "Wrap HIP")]),
            "<value>",
            "Kind:",
        ),
        Opt::new("o", Kind::Text, "<file>", "Output."),
        Opt::new("secret", Kind::Flag, "", "Nobody knows.").hidden(),
    ],
    positional: Positional::Many,
    version: || "tool 1\n".to_owned(),
};

fn words(line: &str) -> Vec<OsString> {
    line.split_whitespace().map(OsString::from).collect()
}

fn run(line: &str) -> ParsedLine {
    match parse(&TOOL, "/x/tool", &words(line)) {
        Ok(Outcome::Run(line)) => line,
        other => panic!("{line}: {other:?}"),
    }
}

fn refused(line: &str) -> Vec<String> {
    let error = parse(&TOOL, "/x/tool", &words(line)).expect_err(line);
    error
        .downcast::<Refused>()
        .expect("the engine's own words")
        .lines
}

fn printed(line: &str) -> String {
    match parse(&TOOL, "/x/tool", &words(line)) {
        Ok(Outcome::Print(text)) => text,
        other => panic!("{line}: {other:?}"),
    }
}

#[test]
fn ob_15_one_dash_or_two_and_values_either_way() {
    let line = run("-type=i --type x --list -align=010 -level=-5 a -o=1 -- -b");
    assert_eq!(line.text("type"), Some("x".as_ref()));
    assert_eq!(
        (line.flag("list"), line.uint("align"), line.int("level")),
        (Some(true), Some(8), Some(-5))
    );
    assert_eq!(line.positionals(), ["a", "-b"]);
    assert_eq!((line.count("type"), line.flag("secret")), (2, None));
    // The next argument is the value, even if it looks like an option.
    assert_eq!(
        run("-type -targets=x a").text("type"),
        Some("-targets=x".as_ref())
    );
    assert_eq!(
        run("-type=i a -list=TRUE -list=0").flag("list"),
        Some(false)
    );
    assert_eq!(run("-type=i a -align=0x1F").uint("align"), Some(31));
}

#[test]
fn ob_09_ob_11_ob_12_comma_lists_and_repeated_options() {
    let line = run("-type=i a -targets=x,y -targets= -targets=,z -input=p,q -input r");
    assert_eq!(line.list("targets"), ["x", "y", "", "", "z"]);
    assert_eq!(line.list("input"), ["p,q", "r"]);
    let order: Vec<&str> = line.given().map(|(name, _)| name).collect();
    assert_eq!(
        order,
        [
            "type", "", "targets", "targets", "targets", "input", "input"
        ]
    );
}

#[test]
fn errors_have_llvms_texts() {
    let unknown = |word: &str| {
        format!("tool: Unknown command line argument '{word}'.  Try: '/x/tool --help'")
    };
    assert_eq!(
        refused("-type=i a --imput=x"),
        [
            unknown("--imput=x"),
            "tool: Did you mean '--input=x'?".to_owned()
        ]
    );
    assert_eq!(
        refused("-type=i a -listx"),
        [unknown("-listx"), "tool: Did you mean '--list'?".to_owned()]
    );
    assert_eq!(refused("-type=i a -zzzzzzzz"), [unknown("-zzzzzzzz")]);
    let group = "tool: for the -o option: may not occur within a group!".to_owned();
    assert_eq!(refused("-type=i a -ofile")[..2], [group, unknown("-ofile")]);
    let fault = |text: &str| vec![format!("tool: for the --{text}")];
    assert_eq!(
        refused("a -align=1"),
        fault("type option: must be specified at least once!")
    );
    assert_eq!(
        refused("-type=i a -input"),
        fault("input option: requires a value!")
    );
    assert_eq!(
        refused("-type=i a -list=maybe"),
        fault("list option: 'maybe' is invalid value for boolean argument! Try 0 or 1")
    );
    for value in ["abc", "4294967296", "-1", "+1", ""] {
        assert_eq!(
            refused(&format!("-type=i a -align={value}")),
            fault(&format!(
                "align option: '{value}' value invalid for uint argument!"
            ))
        );
    }
    assert_eq!(
        refused("-type=i a -level=99999999999"),
        fault("level option: '99999999999' value invalid for integer argument!")
    );
    assert_eq!(
        refused("-type=i a -kind=sycl"),
        fault("kind option: Cannot find option named 'sycl'!")
    );
    assert_eq!(
        refused("-type=i a -help=x"),
        fault("help option: does not allow a value! 'x' specified.")
    );
    let few = "tool: Not enough positional command line arguments specified!\n\
               Must specify at least 1 positional argument: See: /x/tool --help";
    assert_eq!(refused("-type=i"), [few]);
}

#[test]
fn ob_04_help_and_version_work_without_required_options() {
    assert_eq!(printed("--version"), "tool 1\n");
    assert_eq!(printed("-type=i x -h"), printed("-help-list"));
    assert_eq!(
        printed("--help"),
        "OVERVIEW: Does something\n\nUSAGE: tool [options] <files>\n\nOPTIONS:\n\nGeneric Options:\n\n  \
         --help             - Display available options (--help-hidden for more)\n  \
         --help-list        - Display list of available options (--help-list-hidden for more)\n  \
         --version          - Display the version of this program\n\ntool options:\n\n  \
         --align=<uint>     - Aligns.\n  \
         --input=<string>   - Input.\n  \
         --kind=<value>     - Kind:\n    \
           =openmp          -   Wrap OpenMP\n    \
           =hip             -   Wrap HIP\n  \
         --level=<n>        - Levels.\n  \
         --list             - Lists.\n  \
         -o <file>          - Output.\n  \
         --targets=<string> - Targets.\n  \
         --type=<string>    - The type.\n                       One of:\n                         i - this\n"
    );
    assert!(printed("-help-hidden").contains("--secret            - Nobody knows."));
    assert!(printed("-help-list").starts_with(
        "OVERVIEW: Does something\n\nUSAGE: tool [options] <files>\n\nOPTIONS:\n  --align"
    ));
}

#[test]
fn a_missing_response_file_is_an_argument() {
    assert_eq!(
        run("-type=i @/no/such/file").positionals(),
        ["@/no/such/file"]
    );
}
