//! The command line of a link: arguments separated by zeros, and after the byte 0xff the text of
//! the response file `r`, to which they may refer. No token is lost, and the order stays.
#![no_main]

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use libfuzzer_sys::fuzz_target;
use offld::args::settings::LinkSettings;
use offld_system::response::{self, Style};
use offld::args::{ArgumentList, Role};

fuzz_target!(|data: &[u8]| {
    let Some((how, data)) = data.split_first() else { return };
    let (line, response) = offld_fuzz::split(data);
    // Only `r`: other response files could be any file of this machine, of any size.
    let names_other_files = |text: &[u8]| text.contains(&b'@') && text.contains(&b'/');
    let mut arguments = line.split(|byte| *byte == 0);
    if names_other_files(response) || arguments.any(|text| text.starts_with(b"@") && names_other_files(text)) {
        return;
    }
    offld_fuzz::file("r", response);
    std::env::set_current_dir(offld_fuzz::folder()).unwrap();
    offld_fuzz::bounded(data.len(), || {
        let argv: Vec<OsString> = line.split(|byte| *byte == 0).map(|argument| OsString::from_vec(argument.to_vec())).collect();
        let role = if how % 2 == 0 { Role::Wrapper } else { Role::Ld };
        let Ok(ledger) = ArgumentList::read(role, argv) else { return };
        let mut next = 0;
        for arg in ledger.args() {
            assert_eq!(arg.tokens.start, next);
            next = arg.tokens.end;
        }
        assert_eq!(next, ledger.tokens().len());
        let host = ledger.host_line(&["OBJECT".into()], &["LIBRARY".into()]);
        assert!(host.len() <= ledger.tokens().len() + 2);
        let _ = LinkSettings::new(&ledger, &|_| None);
        // The reader of response files gets back the written arguments.
        for style in [Style::Gnu, Style::Windows] {
            let arguments: Vec<OsString> = host.iter().filter(|argument| !argument.is_empty()).cloned().collect();
            assert_eq!(response::tokenize(&response::spill(&arguments, style), style), arguments);
        }
    });
});
