//! The command line of a link: words between zeros, and after the byte 0xff the text of the response file `r` that they may name.
//! Every token stays, in order, whatever it means.
#![no_main]

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use libfuzzer_sys::fuzz_target;
use offld::args::request::LinkRequest;
use offld::args::response::{self, Style};
use offld::args::{Ledger, Role};

fuzz_target!(|data: &[u8]| {
    let Some((how, data)) = data.split_first() else { return };
    let (line, response) = offld_fuzz::split(data);
    // Only this one: a response file may be any file of this machine, however large.
    let others = |text: &[u8]| text.contains(&b'@') && text.contains(&b'/');
    if others(response) || line.split(|byte| *byte == 0).any(|word| word.starts_with(b"@") && others(word)) {
        return;
    }
    offld_fuzz::file("r", response);
    std::env::set_current_dir(offld_fuzz::folder()).unwrap();
    offld_fuzz::bounded(data.len(), || {
        let argv: Vec<OsString> = line.split(|byte| *byte == 0).map(|word| OsString::from_vec(word.to_vec())).collect();
        let role = if how % 2 == 0 { Role::Wrapper } else { Role::Ld };
        let Ok(ledger) = Ledger::read(role, argv) else { return };
        let mut next = 0;
        for arg in ledger.args() {
            assert_eq!(arg.tokens.start, next);
            next = arg.tokens.end;
        }
        assert_eq!(next, ledger.tokens().len());
        let host = ledger.host_line(&["OBJECT".into()], &["LIBRARY".into()]);
        assert!(host.len() <= ledger.tokens().len() + 2);
        let _ = LinkRequest::new(&ledger);
        // What is put into a response file is what its reader finds.
        for style in [Style::Gnu, Style::Windows] {
            let words: Vec<OsString> = host.iter().filter(|word| !word.is_empty()).cloned().collect();
            assert_eq!(response::tokenize(&response::spill(&words, style), style), words);
        }
    });
});
