//! Servers that a test starts on free ports: Redis, nginx with WebDAV, and several misbehaving
//! ones.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use libtest_mimic::Failed;
use tempfile::TempDir;

use super::super::support::run;

/// The password of the servers that require one. No message may show it.
pub(super) const PASSWORD: &str = "open-sesame";

/// A server in its own directory. It stops on drop.
pub(super) struct Server {
    child: Child,
    folder: TempDir,
    /// Its port on 127.0.0.1.
    pub port: u16,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A port without a listener.
pub(super) fn free_port() -> Result<u16, Failed> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// The path of a program, which may be in a directory for administrators.
pub(super) fn program(name: &str) -> Option<PathBuf> {
    ["/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin"]
        .iter()
        .map(|folder| Path::new(folder).join(name))
        .find(|p| p.is_file())
}

impl Server {
    /// Redis, which requires a password if `password`.
    pub(super) fn redis(password: bool) -> Result<Server, Failed> {
        let password = if password { PASSWORD } else { "" };
        Server::start(|folder, port| {
            let mut command = Command::new(program("redis-server").unwrap_or_default());
            command
                .args([
                    "--bind",
                    "127.0.0.1",
                    "--save",
                    "",
                    "--appendonly",
                    "no",
                    "--port",
                ])
                .arg(port.to_string());
            command
                .arg("--dir")
                .arg(folder)
                .args(["--requirepass", password]);
            Ok(command)
        })
    }

    /// Redis with TLS and a password. Its certificate, which no system trusts, is in `certificate`.
    pub(super) fn redis_tls() -> Result<Server, Failed> {
        Server::start(|folder, port| {
            certificate(folder)?;
            let mut command = Command::new(program("redis-server").unwrap_or_default());
            command
                .args([
                    "--bind",
                    "127.0.0.1",
                    "--save",
                    "",
                    "--appendonly",
                    "no",
                    "--port",
                    "0",
                    "--tls-port",
                ])
                .arg(port.to_string());
            command
                .args([
                    "--tls-auth-clients",
                    "no",
                    "--requirepass",
                    PASSWORD,
                    "--dir",
                ])
                .arg(folder);
            command
                .arg("--tls-cert-file")
                .arg(folder.join("certificate"))
                .arg("--tls-key-file")
                .arg(folder.join("key"));
            Ok(command)
        })
    }

    /// nginx as a WebDAV server that creates missing directories silently. Below `/closed/` it
    /// requires a name and a password. Below `/fixed/` it rejects writes. It logs requests to
    /// `access.log`.
    pub(super) fn nginx() -> Result<Server, Failed> {
        Server::nginx_with("")
    }

    /// nginx with TLS. Its certificate, which no system trusts, is in `certificate`.
    pub(super) fn nginx_tls() -> Result<Server, Failed> {
        Server::nginx_with("ssl")
    }

    fn nginx_with(tls: &str) -> Result<Server, Failed> {
        Server::start(|folder, port| {
            for name in ["files/closed", "files/fixed", "temp"] {
                std::fs::create_dir_all(folder.join(name))?;
            }
            std::fs::write(folder.join("users"), format!("user:{{PLAIN}}{PASSWORD}\n"))?;
            let dir = folder.display();
            // By default, the workers of a root nginx run as another user.
            let user = if std::fs::metadata(folder)?.uid() == 0 {
                "user root;"
            } else {
                ""
            };
            let temps: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
                .map(|name| format!("{name}_temp_path {dir}/temp/{name};"))
                .concat();
            let certificate = if tls.is_empty() {
                String::new()
            } else {
                certificate(folder)?
            };
            let config = format!(
                "daemon off; {user} worker_processes 1; pid {dir}/pid; error_log {dir}/error.log;
                events {{ worker_connections 64; }}
                http {{
                    {temps} client_max_body_size 0;
                    log_format asked '$request_method $uri $status \"$http_authorization\"';
                    access_log {dir}/access.log asked;
                    server {{
                        listen 127.0.0.1:{port} {tls}; {certificate}
                        root {dir}/files;
                        dav_methods PUT; create_full_put_path on;
                        location /fixed/ {{ dav_methods off; }}
                        location /closed/ {{ auth_basic closed; auth_basic_user_file {dir}/users; }}
                    }}
                }}"
            );
            std::fs::write(folder.join("nginx.conf"), config)?;
            let mut command = Command::new(program("nginx").unwrap_or_default());
            command
                .arg("-p")
                .arg(folder)
                .arg("-c")
                .arg(folder.join("nginx.conf"));
            command.arg("-e").arg(folder.join("error.log"));
            Ok(command)
        })
    }

    fn start(command: impl Fn(&Path, u16) -> Result<Command, Failed>) -> Result<Server, Failed> {
        let folder = tempfile::Builder::new().prefix("offld-server-").tempdir()?;
        let port = free_port()?;
        let log = std::fs::File::create(folder.path().join("log"))?;
        let mut command = command(folder.path(), port)?;
        let child = command
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()?;
        let mut server = Server {
            child,
            folder,
            port,
        };
        let started = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            if started.elapsed() > Duration::from_secs(20) || server.child.try_wait()?.is_some() {
                let log =
                    std::fs::read_to_string(server.folder.path().join("log")).unwrap_or_default();
                return Err(format!("{command:?} does not start:\n{log}").into());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(server)
    }

    /// A file below its directory.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Stops the server. nginx stops its workers after SIGTERM, but not if it is killed.
    pub(super) fn stop(&mut self) {
        let _ = Command::new("kill")
            .arg(self.child.id().to_string())
            .stderr(Stdio::null())
            .status();
        let _ = self.child.wait();
    }

    /// Redis's raw answer to a command.
    pub(super) fn tell_redis(&self, words: &[&[u8]]) -> Result<String, Failed> {
        self.tell_redis_all(&[words])
    }

    /// Redis's raw answers to several commands on one connection.
    pub(super) fn tell_redis_all(&self, commands: &[&[&[u8]]]) -> Result<String, Failed> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
        for words in commands {
            stream.write_all(format!("*{}\r\n", words.len()).as_bytes())?;
            for word in *words {
                stream.write_all(
                    &[format!("${}\r\n", word.len()).as_bytes(), word, b"\r\n"].concat(),
                )?;
            }
        }
        stream.write_all(b"QUIT\r\n")?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        let answer = String::from_utf8_lossy(&answer).into_owned();
        Ok(answer
            .trim_end()
            .trim_end_matches("+OK")
            .trim_end()
            .to_owned())
    }
}

/// Creates a certificate for 127.0.0.1 in `folder`. Returns the nginx settings for it.
fn certificate(folder: &Path) -> Result<String, Failed> {
    let mut command = Command::new("openssl");
    command.args([
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "2",
        "-subj",
        "/CN=offld",
        "-keyout",
        "key",
    ]);
    command.args([
        "-out",
        "certificate",
        "-addext",
        "subjectAltName=IP:127.0.0.1",
        "-addext",
        "basicConstraints=critical,CA:FALSE",
    ]);
    run(command.current_dir(folder))?;
    let dir = folder.display();
    Ok(format!(
        "ssl_certificate {dir}/certificate; ssl_certificate_key {dir}/key;"
    ))
}

/// The requests to a server in order, such as `PUT /file`.
pub(super) type Asked = Arc<Mutex<Vec<String>>>;

/// A server that runs a function for each connection, each in its own thread, and counts the
/// connections.
pub(super) struct Strange {
    /// Its port on 127.0.0.1.
    pub port: u16,
    /// The number of connections.
    pub connections: Arc<AtomicUsize>,
    end: Arc<AtomicBool>,
}

impl Drop for Strange {
    fn drop(&mut self) {
        self.end.store(true, Ordering::SeqCst);
        // The server notices the end with the next connection.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

impl Strange {
    /// Serves with `serve` until it returns `false`.
    fn new(
        serve: impl Fn(&mut TcpStream) -> bool + Send + Sync + 'static,
    ) -> Result<Strange, Failed> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let strange = Strange {
            port: listener.local_addr()?.port(),
            connections: Arc::default(),
            end: Arc::default(),
        };
        let (connections, end, serve) = (
            Arc::clone(&strange.connections),
            Arc::clone(&strange.end),
            Arc::new(serve),
        );
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if end.load(Ordering::SeqCst) {
                    break;
                }
                connections.fetch_add(1, Ordering::SeqCst);
                let (mut stream, end, serve) = (stream, Arc::clone(&end), Arc::clone(&serve));
                std::thread::spawn(
                    move || while !end.load(Ordering::SeqCst) && serve(&mut stream) {},
                );
            }
        });
        Ok(strange)
    }

    /// Accepts connections and never answers.
    pub(super) fn silent() -> Result<Strange, Failed> {
        Strange::new(|_| {
            std::thread::sleep(Duration::from_millis(50));
            true
        })
    }

    /// Sends `head`, and then a byte now and then.
    pub(super) fn dribbling(head: &'static str) -> Result<Strange, Failed> {
        Strange::new(move |stream| {
            let is_open = asked(stream) && stream.write_all(head.as_bytes()).is_ok();
            while is_open && stream.write_all(b"o").is_ok() {
                std::thread::sleep(Duration::from_millis(50));
            }
            false
        })
    }

    /// A Redis server that greets, and answers the next command with `head` and endless bytes.
    /// Returns the number of bytes that the client accepted.
    pub(super) fn endless(head: &'static str) -> Result<(Strange, Arc<AtomicUsize>), Failed> {
        let taken = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&taken);
        let strange = Strange::new(move |stream| {
            let mut question = [0; 4096];
            let Ok(len @ 1..) = stream.read(&mut question) else {
                return false;
            };
            let commands = question[..len]
                .windows(6)
                .filter(|window| window.eq_ignore_ascii_case(b"CLIENT"))
                .count();
            if commands > 0 {
                return stream
                    .write_all("+OK\r\n".repeat(commands).as_bytes())
                    .is_ok();
            }
            let mut is_open = stream.write_all(head.as_bytes()).is_ok();
            while is_open {
                is_open = stream.write_all(&[b'x'; 64 << 10]).is_ok();
                counted.fetch_add(if is_open { 64 << 10 } else { 0 }, Ordering::SeqCst);
            }
            false
        })?;
        Ok((strange, taken))
    }

    /// A WebDAV server that requires existing directories, as Apache's does. Returns the list of
    /// requests.
    pub(super) fn strict() -> Result<(Strange, Asked), Failed> {
        let asked = Asked::default();
        let heard = Arc::clone(&asked);
        let strange = Strange::new(move |stream| {
            let Some(question) = question(stream) else {
                return false;
            };
            let mut heard = heard.lock().expect("no panic");
            let folder = question
                .rsplit_once('/')
                .map_or("", |(before, _)| before)
                .replacen("PUT", "MKCOL", 1);
            let status = match question.split(' ').next() {
                Some("MKCOL") => "201 Created",
                Some("PUT") if heard.iter().any(|earlier| *earlier == format!("{folder}/")) => {
                    "201 Created"
                }
                Some("PUT") => "409 Conflict",
                _ => "404 Not Found",
            };
            heard.push(question);
            stream
                .write_all(format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n").as_bytes())
                .is_ok()
        })?;
        Ok((strange, asked))
    }

    /// Answers each request with `answer`, after a delay.
    pub(super) fn slow(answer: &'static str, after: Duration) -> Result<Strange, Failed> {
        Strange::new(move |stream| {
            let asked = asked(stream);
            std::thread::sleep(after);
            asked && stream.write_all(answer.as_bytes()).is_ok()
        })
    }
}

/// Reads the next HTTP request to its end. Returns it as `PUT /file`.
fn question(stream: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).ok()?;
        head.extend_from_slice(&byte);
    }
    let head = String::from_utf8(head).ok()?;
    let length = head.lines().find_map(|line| {
        line.to_ascii_lowercase()
            .strip_prefix("content-length:")?
            .trim()
            .parse()
            .ok()
    });
    stream.read_exact(&mut vec![0; length.unwrap_or(0)]).ok()?;
    let mut words = head.split(' ');
    Some(format!("{} {}", words.next()?, words.next()?))
}

/// Whether a request came.
fn asked(stream: &mut TcpStream) -> bool {
    let mut question = [0; 4096];
    stream.read(&mut question).is_ok_and(|len| len > 0)
}
