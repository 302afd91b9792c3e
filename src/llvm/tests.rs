//! The encoding of requests and answers, and the errors for a program that does not answer.

use super::*;
use offld_system::session::SessionOptions;
use offld_system::shell::Shell;
use offload_formats::model::Generation;
use offload_formats::registration::{ImagePlace, Images, Modules, PlannedImage, openmp};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

fn plan() -> Plan {
    let image = PlannedImage {
        place: ImagePlace::Inline(vec![0, 127, 128, 255]),
        parts: openmp::whole(0, 4),
        offload_arch: None,
    };
    Plan {
        host_triple: "x86_64-unknown-linux-gnu".to_owned(),
        generation: Generation::Llvm21,
        images: Images::OpenMp(vec![image]),
        relocatable: false,
        protection: 0,
        modules: Modules::default(),
    }
}

#[test]
fn decoded_requests_equal_the_encoded_ones() {
    for request in [
        Request::Hello,
        Request::DefaultTriple,
        Request::Make {
            form: Form::Assembly,
            plan: plan(),
        },
    ] {
        let bytes = request.encode().unwrap();
        assert_eq!(Request::decode(&bytes).unwrap(), request);
        for end in 0..bytes.len() {
            assert!(
                Request::decode(&bytes[..end]).is_err(),
                "{request:?} cut at {end}"
            );
        }
    }
    // A request with an extra byte is invalid as well.
    let more = [Request::Hello.encode().unwrap(), vec![0]].concat();
    assert!(Request::decode(&more).is_err());
}

#[test]
fn decoded_answers_equal_the_encoded_ones() {
    for answer in [
        Answer::Done(b"object"),
        Answer::Done(b""),
        Answer::Refused("why"),
    ] {
        assert_eq!(Answer::decode(&answer.encode()).unwrap(), answer);
    }
    assert!(Answer::decode(b"").is_err());
    assert!(Answer::decode(&[1, 0xff]).is_err());
}

/// Runs a shell script in place of `offld-llvm`. Returns the error, and the time until it.
fn failure_of(script: &str, limit: Duration) -> (String, Duration) {
    let shell = Arc::new(Shell::from_write("offld", Box::new(std::io::sink())));
    let session = Session::new(shell, SessionOptions::default());
    let cmd = Cmd {
        step: "registration code for openmp".to_owned(),
        program: Path::new("/bin/sh").to_owned(),
        args: ["-c", script].map(OsString::from).to_vec(),
        quoting: Style::Gnu,
        inputs: vec!["a.img".to_owned()],
        output: None,
    };
    let begun = Instant::now();
    let mut service = session.runner.serve(&cmd, &session.signals).unwrap();
    service.send(&vec![0; 1 << 20]).unwrap();
    let ended = service.answer(limit).unwrap_err();
    (run::no_answer(&cmd, &ended).to_string(), begun.elapsed())
}

#[test]
fn a_program_that_gives_no_answer_is_an_error_that_names_the_step() {
    let whole = Duration::from_secs(60);
    for (script, how) in [
        ("kill -SEGV $$", "was ended by signal 11"),
        ("exit 3", "exited with status 3"),
        (
            "echo 'LLVM ERROR: no' >&2; kill -ABRT $$",
            "was ended by signal 6",
        ),
        (
            "printf '\\377\\377\\377\\377'; sleep 60",
            "sent an answer of 4294967295 bytes",
        ),
    ] {
        let (report, took) = failure_of(script, whole);
        assert!(
            report.starts_with(&format!("registration code for openmp failed: 'sh' {how}")),
            "{script}: {report}"
        );
        assert!(report.contains("a.img"), "{report}");
        assert!(took < Duration::from_secs(30), "{script} took {took:?}");
        assert_eq!(
            report.contains("stderr: LLVM ERROR: no"),
            script.contains("LLVM"),
            "{report}"
        );
    }
}

#[test]
fn a_program_without_an_answer_is_stopped_at_the_limit() {
    // The first neither reads nor writes, the second reads and writes nothing, and the third stops
    // within an answer.
    for script in [
        "sleep 60",
        "cat > /dev/null",
        "printf '\\012\\000\\000\\000abc'; sleep 60",
    ] {
        let (report, took) = failure_of(script, Duration::from_secs(1));
        assert!(
            report.contains("gave no answer within 1 s"),
            "{script}: {report}"
        );
        assert!(took < Duration::from_secs(20), "{script} took {took:?}");
    }
}

/// A program that answers every request with the request itself, except the one for its build.
#[cfg(feature = "with-llvm")]
struct Echo {
    asked: VecDeque<Vec<u8>>,
    all: Arc<Mutex<Vec<Vec<u8>>>>,
}

#[cfg(feature = "with-llvm")]
impl Service for Echo {
    fn send(
        &mut self,
        request: &[u8],
    ) -> std::result::Result<(), offld_system::service::ServiceFailure> {
        self.asked.push_back(request.to_vec());
        self.all.lock().unwrap().push(request.to_vec());
        Ok(())
    }

    fn answer(
        &mut self,
        _limit: Duration,
    ) -> std::result::Result<Vec<u8>, offld_system::service::ServiceFailure> {
        let request = self.asked.pop_front().unwrap();
        let hello = Request::Hello.encode().unwrap();
        Ok(if request == hello {
            BUILD.as_bytes().to_vec()
        } else {
            Answer::Done(&request).encode()
        })
    }
}

/// A runner that starts only an [`Echo`].
#[cfg(feature = "with-llvm")]
struct Echoes(Arc<Mutex<Vec<Vec<u8>>>>);

#[cfg(feature = "with-llvm")]
impl run::Run for Echoes {
    fn run(&self, _cmd: &Cmd) -> Result<offld_system::signals::Usage> {
        bail!("nothing is run here")
    }

    fn replace(&self, cmd: &Cmd) -> Result<()> {
        self.run(cmd).map(drop)
    }

    fn serve(
        &self,
        _cmd: &Cmd,
        _signals: &Arc<offld_system::signals::Signals>,
    ) -> Result<Box<dyn Service>> {
        Ok(Box::new(Echo {
            asked: VecDeque::new(),
            all: Arc::clone(&self.0),
        }))
    }
}

#[cfg(feature = "with-llvm")]
#[test]
fn each_request_gets_its_own_answer_whatever_was_asked_early() {
    let all = Arc::new(Mutex::new(Vec::new()));
    let shell = Arc::new(Shell::from_write("offld", Box::new(std::io::sink())));
    let session = Session {
        runner: Box::new(Echoes(Arc::clone(&all))),
        ..Session::new(shell, SessionOptions::default())
    };
    let requests = ["one", "two", "three"].map(|name| {
        let plan = Plan {
            host_triple: name.to_owned(),
            ..plan()
        };
        Request::Make {
            form: Form::Object,
            plan,
        }
        .encode()
        .unwrap()
    });
    let [one, two, three] = &requests;
    let llvm = Llvm::new(&session);
    let ask = |request: &[u8]| llvm.make_encoded(request, &Purpose::default()).unwrap();
    llvm.start_early("x86_64-unknown-linux-gnu", vec![one.clone(), two.clone()]);
    assert_eq!(all.lock().unwrap().len(), 3, "all of it is sent at once");
    // The first early request is not needed, and then is. The third request was not sent early.
    for request in [two, three, one, two] {
        assert_eq!(&ask(request), request);
    }
    let hello = Request::Hello.encode().unwrap();
    assert_eq!(
        *all.lock().unwrap(),
        [&hello, one, two, three, one, two].map(Vec::clone)
    );
}
