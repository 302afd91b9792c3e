//! Tests of the remote cache: printed URLs, settings, errors, and the object format.

use super::*;

#[test]
fn no_possible_credential_is_printed() {
    let shown = |url: &str| shown(OsStr::new(url));
    assert_eq!(
        shown("redis://user:secret@host:1/2?prefix=p"),
        "redis://host:1/2?prefix=p"
    );
    assert_eq!(shown("https://host/path"), "https://host/path");
    assert_eq!(
        shown("s3://bucket/p?region=r&token=secret&endpoint=http://e"),
        "s3://bucket/p?region=r&endpoint=http://e"
    );
    assert_eq!(shown("file:///folder"), "file:///folder");
    // Malformed URLs: the password contains special characters that are not escaped.
    for url in [
        "redis://u:se/cret@host",
        "redis://u:se?cret@host",
        "redis://u:se#cret@host",
        "redis://u:se@cret@host",
    ] {
        assert_eq!(shown(url), "redis://host", "{url}");
    }
    assert_eq!(shown("u:secret@host"), "an address that is not a URL");
}

#[test]
fn timeouts_are_positive_numbers_of_seconds() {
    let seconds = |text: &str| seconds(OsStr::new(text));
    assert_eq!(seconds("0.25"), Some(Duration::from_millis(250)));
    assert_eq!(seconds(" 3 "), Some(Duration::from_secs(3)));
    for wrong in ["", "0", "-1", "nan", "inf", "1e99", "2s"] {
        assert_eq!(seconds(wrong), None, "{wrong}");
    }
}

#[cfg(not(feature = "remote-cache"))]
#[test]
fn without_the_feature_the_error_names_it() {
    let error = Remote::open(
        &RemoteSettings::new("redis://user:secret@host"),
        Arc::new(|_| {}),
    )
    .err()
    .unwrap()
    .to_string();
    assert!(
        error.contains("`remote-cache`") && !error.contains("secret"),
        "{error}"
    );
}

#[cfg(feature = "remote-cache")]
mod with_the_feature {
    use super::super::frame::{Frame, LONGEST, PART};
    use super::*;

    fn error_for(url: &str) -> String {
        let error = Remote::open(&RemoteSettings::new(url), Arc::new(|_| {})).err();
        format!("{:#}", error.unwrap_or_else(|| panic!("{url} is accepted")))
    }

    #[test]
    fn errors_describe_invalid_urls() {
        let cases = [
            ("secret", "is not a URL"),
            ("ftp://u:secret@host", "unknown scheme `ftp`"),
            ("redis:///1", "no host in the URL"),
            (
                "redis://u:secret@host/db",
                "the path is not a database number",
            ),
            (
                "redis://host?secrets=1",
                "unknown option `secrets` for redis",
            ),
            ("s3:///prefix", "no bucket in the URL"),
            ("file://host/path", "three slashes"),
            ("http://host/?prefix=1", "unknown option `prefix` for http"),
        ];
        for (url, cause) in cases {
            let error = error_for(url);
            assert!(
                error.contains(cause) && !error.contains("secret@") && !error.contains(":secret"),
                "{url}: {error}"
            );
        }
    }

    /// Starts a server that answers every request with the HTTP status `status`. Returns the
    /// address of the server.
    fn server(status: &'static str) -> std::net::SocketAddr {
        use std::io::{Read, Write};
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let _ = stream.read(&mut [0; 4096]);
                let _ = write!(
                    stream,
                    "HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
                );
            }
        });
        address
    }

    #[test]
    fn the_status_of_a_response_is_the_cause() {
        use super::super::service::Service;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        for (status, cause) in [
            ("405 Method Not Allowed", "HTTP status 405"),
            ("403 Forbidden", "access denied (HTTP status 403)"),
        ] {
            let service =
                Service::open(&RemoteSettings::new(format!("http://{}/", server(status)))).unwrap();
            let failure = runtime
                .block_on(service.write("r/1", b"bytes".to_vec()))
                .unwrap_err();
            assert_eq!(failure.cause, cause);
        }
    }

    #[test]
    fn no_thread_runs_before_the_first_request() {
        let warn: WarnFn = Arc::new(|text| panic!("{text}"));
        let ours = |task: &std::fs::DirEntry| {
            std::fs::read_to_string(task.path().join("comm"))
                .is_ok_and(|name| name.starts_with("offld-remote"))
        };
        let threads = || {
            std::fs::read_dir("/proc/self/task")
                .unwrap()
                .flatten()
                .filter(ours)
                .count()
        };
        let before = threads();
        for url in [
            "redis://user:pw@192.0.2.1:6379/3?prefix=p",
            "s3://bucket/prefix?region=r",
            "https://h/p",
            "file:///nowhere",
        ] {
            Remote::open(&RemoteSettings::new(url), WarnFn::clone(&warn))
                .unwrap()
                .finish(&|| false);
        }
        assert_eq!(threads(), before);
        assert!(!std::path::Path::new("/nowhere").exists());
    }

    /// Returns a key of 32 bytes, each with the value `number`.
    fn key(number: u8) -> Option<SecretKey> {
        use std::os::unix::fs::PermissionsExt;
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), [number; 32]).unwrap();
        std::fs::set_permissions(file.path(), std::fs::Permissions::from_mode(0o600)).unwrap();
        Some(SecretKey::read(file.path()).unwrap())
    }

    #[test]
    fn objects_are_decoded_unchanged() {
        let text = b"the same again and again, the same again and again, the same again and again"
            .repeat(3);
        let noise: Vec<u8> = (0..997u32)
            .map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8)
            .collect();
        for (frame, bytes) in [None, key(1)]
            .iter()
            .flat_map(|key| [(key, &text[..]), (key, &noise), (key, b"")])
        {
            let frame = Frame::new(frame.clone());
            let object = frame.encode("b/1", 12, bytes);
            assert!(object.len() <= 49 + bytes.len());
            assert_eq!(frame.decode("b/1", &object), Some((12, bytes.to_vec())));
            for name in ["b/2", "r/1", "b/1.1"] {
                assert_eq!(frame.decode(name, &object), None, "decoded as {name}");
            }
            for cut in 0..object.len() {
                assert_eq!(frame.decode("b/1", &object[..cut]), None, "cut at {cut}");
            }
            for at in 0..object.len() {
                let mut damaged = object.clone();
                damaged[at] ^= 0x10;
                assert_eq!(frame.decode("b/1", &damaged), None, "damaged at {at}");
            }
        }
        assert!(Frame::new(None).encode("b/1", 1, &text).len() < text.len());
    }

    #[test]
    fn only_objects_signed_with_the_same_key_are_read() {
        let frames = [None, key(1), key(2)].map(Frame::new);
        let record = crate::store::Key::of("record");
        for (writer, reader) in (0..3).flat_map(|writer| (0..3).map(move |reader| (writer, reader)))
        {
            // The object has the name that the reader looks for. So only a different key can make
            // the reader reject the object.
            let name = frames[reader].record_name(record);
            let object = frames[writer].encode(&name, 5, b"bytes");
            assert_eq!(
                frames[reader].decode(&name, &object).is_some(),
                writer == reader,
                "{writer} {reader}"
            );
        }
        assert_ne!(frames[0].record_name(record), frames[1].record_name(record));
        assert_eq!(frames[1].record_name(record), frames[2].record_name(record));
    }

    #[test]
    fn an_object_that_claims_to_be_large_takes_no_memory() {
        let bomb = zstd::bulk::compress(&vec![0; PART + 1], 1).unwrap();
        let frame = Frame::new(None);
        let sound = frame.packed("b/1", 1, &zstd::bulk::compress(&[0; 100], 1).unwrap());
        assert_eq!(frame.decode("b/1", &sound), Some((1, vec![0; 100])));
        let object = frame.packed("b/1", 1, &bomb);
        assert!(object.len() < LONGEST);
        assert_eq!(frame.decode("b/1", &object), None);
    }
}
