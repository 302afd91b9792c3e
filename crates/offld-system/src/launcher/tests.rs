//! Tests of jobs, with stand-ins for launchers on this machine.

use std::ffi::OsString;
use std::io::Write;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use super::*;
use crate::response::Style;
use crate::session::SessionOptions;
use crate::shell::Shell;
use offload_formats::error;

/// Collects the messages of a shell.
#[derive(Clone, Default)]
pub(super) struct Written(Arc<Mutex<Vec<u8>>>);

impl Write for Written {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// A directory whose name needs quoting in a shell, a session with its temporary files in there,
/// and the messages of that session.
struct Bench {
    folder: tempfile::TempDir,
    session: Session,
    said: Written,
}

impl Bench {
    fn new() -> Bench {
        let folder = tempfile::Builder::new()
            .prefix("it's $HOME \"a\" \\ ")
            .tempdir()
            .unwrap();
        let said = Written::default();
        let options = SessionOptions {
            embedded: true,
            temp_folder: Some(folder.path().to_owned()),
            ..SessionOptions::default()
        };
        let session = Session::new(
            Arc::new(Shell::from_write("offld", Box::new(said.clone()))),
            options,
        );
        Bench {
            folder,
            session,
            said,
        }
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    /// Runs `script`, which writes to the output `$1`.
    fn run(&self, launcher: &Launcher, script: &str) -> Result<Launched> {
        let compare = [self.file("compared", "x")];
        let request = Request {
            threads: 3,
            memory: 300 << 20,
            job: "offld-a b".into(),
            compare: &compare,
            dependencies: None,
        };
        let output = self.folder.path().join("output");
        let args = [
            OsString::from("-c"),
            script.into(),
            "sh".into(),
            output.clone().into(),
            OsString::from_vec(b"\xff'$x".into()),
        ];
        let cmd = Cmd {
            step: "a step".to_owned(),
            program: "/bin/sh".into(),
            args: args.to_vec(),
            quoting: Style::Gnu,
            inputs: vec!["a.o".to_owned()],
            output: Some(output),
        };
        launcher.run(&cmd, &request, &self.session, &|| ())
    }

    fn output(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("output")).unwrap()
    }

    fn said(&self) -> String {
        String::from_utf8(std::mem::take(&mut *self.said.0.lock().unwrap())).unwrap()
    }

    /// Number of files that the jobs have left.
    fn left(&self) -> usize {
        let job = self.session.scratch.folder().unwrap();
        std::fs::read_dir(job).unwrap().count()
    }
}

fn shell_word(path: &Path) -> String {
    String::from_utf8(crate::posix_shell::quoted(
        path.as_os_str().as_encoded_bytes(),
    ))
    .unwrap()
}

fn launcher(words: &str) -> Launcher {
    let settings = Launching {
        launcher: Some(Named::new("--wrapper-launcher", words)),
        wait: Some(1.into()),
        ..Launching::default()
    };
    Launcher::new(&settings, false).unwrap().unwrap()
}

fn ran(launched: Result<Launched>) -> Ran {
    match launched {
        Ok(Launched::Ran(ran)) => *ran,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_job_runs_in_our_directory_and_environment_not_the_launchers() {
    let bench = Bench::new();
    let launcher = launcher("env -i -C / PATH=/usr/bin:/bin OTHER=1 SLURMD_NODENAME=node7");
    let script = "{ pwd; echo \"$2\" | od -An -tx1; echo \"$OTHER.$OFFLD_WITHIN\"; echo \"$CARGO_PKG_NAME\"; } > \"$1\"; echo told >&2; \
                  [ -e \"$TMPDIR/run\" ]; x=$(head -c 30000000 /dev/zero | tr '\\0' a); sleep 0.3";
    let ran = ran(bench.run(&launcher, script));
    let here = std::env::current_dir().unwrap();
    assert_eq!(
        bench.output(),
        format!(
            "{}\n ff 27 24 78 0a\n.1\n{}\n",
            here.display(),
            env!("CARGO_PKG_NAME")
        )
    );
    assert_eq!(
        (
            ran.node.as_str(),
            ran.said.stderr.as_slice(),
            ran.said.printed
        ),
        ("node7", &b"told\n"[..], false)
    );
    assert!(
        ran.usage.peak_memory > 30_000_000 && ran.usage.peak_memory < 500 << 20,
        "{ran:?}"
    );
    assert!(ran.usage.cpu.as_millis() > 0, "{ran:?}");
    assert_eq!(bench.said(), "told\n");
    assert_eq!(bench.left(), 0);
    let compared = bench.folder.path().join("compared");
    assert_eq!(ran.differing([compared.as_path()]), None);
    std::fs::write(&compared, "other").unwrap();
    assert_eq!(
        ran.differing([compared.as_path()]),
        Some(compared.as_path())
    );
}

#[test]
fn every_shell_runs_the_script() {
    for shell in ["dash", "bash", "busybox sh", "bash --posix"] {
        let program = shell.split(' ').next().unwrap();
        if !Path::new("/bin").join(program).exists()
            && !Path::new("/usr/bin").join(program).exists()
        {
            continue;
        }
        let bench = Bench::new();
        let launcher = launcher(&format!("sh -c 'shift; exec {shell} \"$@\"' sh"));
        let ran = ran(bench.run(&launcher, "echo x > \"$1\"; sleep 0.3"));
        assert!(ran.usage.peak_memory > 0, "{shell}: {ran:?}");
        assert_eq!(
            ran.differing([bench.folder.path().join("compared").as_path()]),
            None,
            "{shell}"
        );
        let error = bench.run(&launcher, "kill -11 $$").unwrap_err();
        assert_eq!(error::exit_status(&error), 139, "{shell}");
        assert_eq!(bench.said(), "", "{shell}");
    }
}

#[test]
fn a_long_command_is_in_a_response_file() {
    let bench = Bench::new();
    bench.file(
        "it's",
        "#!/bin/sh\n[ $# = 1 ] && grep -c it \"${1#@}\" > output && cp \"${1#@}\" words\n",
    );
    let folder = bench.folder.path().to_owned();
    // env would read the program as a variable.
    let program = bench.file(
        "program=1",
        &format!(
            "#!/bin/sh\ncd {}; exec ./it\\'s \"$@\"\n",
            shell_word(&folder)
        ),
    );
    let args = vec![OsString::from("it's \"$x\""); 20_000];
    let output = Some(folder.join("output"));
    let cmd = Cmd {
        step: "a step".to_owned(),
        program,
        args,
        quoting: Style::Gnu,
        inputs: Vec::new(),
        output,
    };
    let request = Request {
        threads: 1,
        memory: 0,
        job: String::new(),
        compare: &[],
        dependencies: None,
    };
    ran(launcher("env").run(&cmd, &request, &bench.session, &|| ()));
    assert_eq!(bench.output(), "20000\n");
    assert!(
        std::fs::read_to_string(folder.join("words"))
            .unwrap()
            .starts_with("\"it's \\\"$x\\\"\"\n")
    );
}

#[test]
fn the_launcher_gets_the_needs_of_the_job() {
    let bench = Bench::new();
    let told = bench.folder.path().join("told");
    let words = format!(
        "sh -c 'echo \"$*\" > \"$0\"; shift 3; exec \"$@\"' {} {{threads}} {{mem}} {{job}}",
        shell_word(&told)
    );
    ran(bench.run(&launcher(&words), "echo x > \"$1\""));
    let text = std::fs::read_to_string(&told).unwrap();
    assert!(text.starts_with("3 384 offld-a-b /bin/sh /"), "{text}");
    assert_eq!(requested_memory(0), 256 << 20);
    assert_eq!(launcher("a {threads}").threads(9, Jobs::N(4)), 4);
    assert_eq!(launcher("a").threads(9, Jobs::N(4)), 1);
}

#[test]
fn a_command_that_fails_is_an_error_that_names_the_node() {
    let bench = Bench::new();
    let launcher = launcher("env SLURMD_NODENAME=node7");
    let error = bench.run(&launcher, "echo wrong >&2; exit 3").unwrap_err();
    assert_eq!(error::exit_status(&error), 3);
    let report = error::chain(&error);
    assert!(
        report.starts_with(
            "a step failed: 'sh' exited with status 3 on node7\n  inputs: a.o\n  command: "
        ),
        "{report}"
    );
    assert_eq!(bench.said(), "wrong\n");
    let report = error::chain(&bench.run(&launcher, "kill -6 $$").unwrap_err());
    assert!(
        report.starts_with("a step failed: 'sh' was ended by signal 6 on node7\n"),
        "{report}"
    );
    let report = error::chain(&bench.run(&launcher, ":").unwrap_err());
    assert!(
        report.contains("succeeded on node7, but this machine does not see its output"),
        "{report}"
    );
    assert!(launcher.is_available());
    assert_eq!(bench.left(), 0);
}

#[test]
fn too_little_memory_is_retried_with_twice_as_much() {
    let bench = Bench::new();
    let launcher = launcher("env MEM={mem}");
    let error = bench
        .run(&launcher, "echo x >> \"$1.runs\"; kill -9 $$")
        .unwrap_err();
    assert!(error.downcast_ref::<OutOfMemory>().is_some());
    assert_eq!(
        std::fs::read_to_string(bench.folder.path().join("output.runs")).unwrap(),
        "x\nx\n"
    );
    let said = bench.said();
    assert!(
        said.contains(
            "a step: was killed (probably out of memory) with 384 MiB; launching again with 768 MiB"
        ),
        "{said}"
    );
    // If the launcher does not get the amount of memory, a second try would end the same way.
    bench
        .run(
            &super::tests::launcher("env"),
            "echo x >> \"$1.runs\"; kill -9 $$",
        )
        .unwrap_err();
    assert_eq!(
        std::fs::read_to_string(bench.folder.path().join("output.runs"))
            .unwrap()
            .len(),
        6
    );
}

#[test]
fn a_launcher_that_does_not_work_is_given_up_with_one_warning() {
    let hides = "sh -c 'exec /bin/sh /nowhere/run'";
    let cases = [
        (
            "/nowhere/srun",
            "`/nowhere/srun`: No such file or directory",
        ),
        (
            "false",
            "the launcher exited with status 1, but the job did not start. Do its machines see `",
        ),
        (
            "true",
            "the launcher succeeded, but the job did not start. ",
        ),
        (hides, "but the job did not start. "),
        (
            "sh -c 'sleep 60; exec \"$@\"' sh",
            "the queue did not start the job within 1 seconds",
        ),
        (
            "sh -c '\"$@\" & sleep 0.3; kill -9 $!; exit 1' sh",
            "did not report its end. Was the job cancelled, or the node lost?",
        ),
        (
            "sh -c '\"$@\" & sleep 0.3; kill $!; wait' sh",
            "something other than offld ended the job on ",
        ),
        (
            "sh -c 'sed -i \"s/^patience=.*/patience=3/\" \"$1\"; exec \"$0\" \"$@\"'",
            ": the lease of the job was not renewed",
        ),
        (
            "sh -c '\"$0\" \"$@\" & sleep 0.3; kill -STOP 0'",
            " for 2 seconds",
        ),
    ];
    let given_up = |(words, why): (&str, &str)| {
        let bench = Bench::new();
        let launcher = launcher(words);
        let begun = Instant::now();
        // The second run prints no second warning.
        for _ in 0..if words == "false" { 2 } else { 1 } {
            let launched = bench.run(&launcher, "sleep 2; echo x > \"$1\"");
            assert!(
                matches!(launched, Ok(Launched::Unavailable)),
                "{words}: {launched:?}"
            );
        }
        assert!(
            begun.elapsed() < Duration::from_secs(20),
            "{words}: {:?}",
            begun.elapsed()
        );
        let said = bench.said();
        let warnings: Vec<&str> = said
            .lines()
            .filter(|line| line.contains("warning: "))
            .collect();
        assert!(
            warnings.len() == 1
                && warnings[0].contains(
                    "a step: running this and all remaining jobs on this machine, because --wrapper-launcher cannot run them: "
                )
                && warnings[0].contains(why),
            "{words}: {said}"
        );
        assert!(!launcher.is_available());
        assert_eq!(bench.left(), 0, "{words}");
    };
    std::thread::scope(|scope| {
        cases
            .map(|case| scope.spawn(move || given_up(case)))
            .map(|thread| thread.join().unwrap())
    });
}

#[test]
fn errors_in_the_arguments_name_the_option() {
    let settings = |launcher: &str| Launching {
        launcher: Some(Named::new("--wrapper-launcher", launcher)),
        ..Launching::default()
    };
    let error = Launcher::new(&settings("srun 'a"), false).unwrap_err();
    assert_eq!(
        error.to_string(),
        "--wrapper-launcher=srun 'a: unclosed single quote (')"
    );
    assert!(Launcher::new(&settings(" "), false).unwrap().is_none());
}

#[test]
fn the_script_is_quoted_for_launchers_that_pass_it_to_a_shell() {
    let path = Path::new("/a b/run");
    let by = |words: &str| {
        for_program(
            path,
            launcher(words)
                .words
                .iter()
                .any(|word| is_read_by_a_shell(word)),
        )
    };
    assert_eq!(by("nice /usr/bin/ssh host"), "'/a b/run'");
    assert_eq!(by("srun -n1"), "/a b/run");
    assert_eq!(for_program(Path::new("/a/run"), true), "/a/run");
}

#[test]
fn placeholders_are_replaced_and_other_braces_stay() {
    let values = [("{mem}", "{job}".to_owned()), ("{job}", "j".to_owned())];
    let filled = |word: &str| {
        super::filled(OsStr::new(word), &values)
            .into_string()
            .unwrap()
    };
    assert_eq!(filled("--mem={mem}M:{job}{job}"), "--mem={job}M:jj");
    assert_eq!(filled("{a} {{mem}} {mem {} }"), "{a} {{job}} {mem {} }");
}

#[test]
fn any_characters_become_one_word() {
    assert_eq!(
        plain("offld-a b/\u{fc}.so-gfx90a:xnack+"),
        "offld-a-b--.so-gfx90a-xnack-"
    );
}
