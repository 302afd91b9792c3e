//! Parses the URL of a remote, and reads and writes objects there. The only file that uses opendal.

use std::path::PathBuf;

use anyhow::{Context, Result, anyhow, bail};
use futures_util::TryStreamExt;
use opendal::{Builder, ErrorKind, Operator, services};
use percent_encoding::percent_decode_str;
use redis::{AsyncConnectionConfig, Client, RedisError};
use tokio::sync::OnceCell;
use url::Url;

use super::RemoteSettings;
use super::frame::PART;
use crate::sys::session::{OFFLD_CACHE_REMOTE, Session};

/// Variables that AWS's tools read credentials from. Their values must not be in messages.
const AWS_SECRETS: [&str; 3] = ["AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_ACCESS_KEY_ID"];
/// The most characters of an error's cause that a message shows.
const LONGEST_CAUSE: usize = 200;

/// Why an object was not read or written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Failure {
    /// The kind of failure.
    pub kind: Kind,
    /// The cause, for messages.
    pub cause: String,
}

/// The kinds of failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// There is no such object.
    Missing,
    /// A time limit was exceeded.
    Late,
    /// Anything else.
    Other,
}

/// A service that objects are stored on.
pub(super) struct Service {
    place: Place,
    read_only: bool,
    secrets: Vec<String>,
    operator: OnceCell<Operator>,
}

enum Place {
    Redis { url: Url, db: i64, prefix: String },
    S3 { bucket: String, prefix: String, region: Option<String>, endpoint: Option<String> },
    Web { url: Url },
    Folder { path: PathBuf },
}

impl Service {
    /// The service that `settings` name. Connects to nothing.
    ///
    /// # Errors
    /// The URL is invalid. The error does not show its credentials.
    pub(super) fn open(settings: &RemoteSettings) -> Result<Service> {
        let url = settings.url.to_str().with_context(|| format!("{OFFLD_CACHE_REMOTE} is not UTF-8"))?;
        let url = Url::parse(url).map_err(|error| anyhow!("{OFFLD_CACHE_REMOTE} is no URL: {error}"))?;
        let place = place(&url).with_context(|| format!("{OFFLD_CACHE_REMOTE}={}", settings.shown()))?;
        let given = [url.password().unwrap_or_default().to_owned(), decoded(url.password().unwrap_or_default())];
        let aws = AWS_SECRETS.iter().filter_map(|name| Session::env(name)?.into_string().ok());
        let secrets = given.into_iter().chain(aws).filter(|secret| !secret.is_empty()).collect();
        Ok(Service { place, read_only: settings.read_only, secrets, operator: OnceCell::new() })
    }

    /// How many bytes of a blob are in one object. More on S3, where each request takes longer; fewer elsewhere, because the Redis
    /// client gives up after half a second.
    pub(super) fn part(&self) -> usize {
        if matches!(self.place, Place::S3 { .. }) { PART } else { PART / 4 }
    }

    /// The object `name`. Of one with more than `most` bytes, reading stops soon after these.
    pub(super) async fn read(&self, name: &str, most: usize) -> Result<Vec<u8>, Failure> {
        let operator = self.operator().await?;
        loop {
            match read(operator, name, most).await {
                Err(error) if is_impatience(&error) => {}
                Err(error) => return Err(self.failure(&error)),
                Ok(bytes) => return Ok(bytes),
            }
        }
    }

    /// Writes the object `name`, in place of what is there.
    pub(super) async fn write(&self, name: &str, bytes: Vec<u8>) -> Result<(), Failure> {
        let operator = self.operator().await?;
        let bytes = opendal::Buffer::from(bytes);
        let error = loop {
            match operator.write(name, bytes.clone()).await {
                Err(error) if is_impatience(&error) => {}
                Err(error) => break error,
                Ok(_) => return Ok(()),
            }
        };
        let (Place::Web { .. }, Some(404 | 409), Some((folder, _))) = (&self.place, status(&error), name.rsplit_once('/')) else {
            return Err(self.failure(&error));
        };
        // Some WebDAV servers need the folder to be made first. It is not made before the first failure, because most servers make
        // folders themselves, and many refuse to.
        let made = operator.create_dir(&format!("{folder}/")).await;
        made.map_err(|_| self.failure(&error))?;
        operator.write(name, bytes).await.map(drop).map_err(|error| self.failure(&error))
    }

    async fn operator(&self) -> Result<&Operator, Failure> {
        self.operator.get_or_try_init(|| self.connect()).await
    }

    async fn connect(&self) -> Result<Operator, Failure> {
        // rustls needs a provider of cryptography. The error that another one is installed already does not matter.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let operator = match &self.place {
            Place::Redis { url, db, prefix } => {
                self.greet(url).await?;
                let builder = services::Redis::default().endpoint(&without_credentials(url)).db(*db).root(prefix);
                build(builder.username(&decoded(url.username())).password(&decoded(url.password().unwrap_or_default())))
            }
            Place::S3 { bucket, prefix, region, endpoint } => {
                let mut builder = services::S3::default().bucket(bucket).root(prefix);
                if let Some(region) = region {
                    builder = builder.region(region);
                }
                if let Some(endpoint) = endpoint {
                    builder = builder.endpoint(endpoint);
                }
                build(builder)
            }
            Place::Web { url } => {
                let endpoint = without_credentials(url);
                let builder = services::Webdav::default().endpoint(&endpoint).root(&decoded(url.path())).disable_create_dir(true);
                build(builder.username(&decoded(url.username())).password(&decoded(url.password().unwrap_or_default())))
            }
            Place::Folder { path } => self.folder(path),
        };
        operator.map_err(|error| self.failure(&error))
    }

    /// A folder: written by temporary files that are renamed. One that is only read is not created.
    fn folder(&self, path: &std::path::Path) -> opendal::Result<Operator> {
        let text = path.to_str().ok_or_else(|| opendal::Error::new(ErrorKind::ConfigInvalid, "its path is not UTF-8"))?;
        let builder = services::Fs::default().root(text);
        if !self.read_only {
            return build(builder.atomic_write_dir(&format!("{text}/tmp")));
        }
        match path.metadata() {
            Ok(_) => build(builder),
            Err(error) => Err(opendal::Error::new(ErrorKind::ConfigInvalid, error.to_string())),
        }
    }

    /// Opens one connection to Redis. opendal retries a connection that fails and hides why; this reports the cause at once.
    async fn greet(&self, url: &Url) -> Result<(), Failure> {
        let mut url = url.clone();
        url.set_query(None);
        // The caller has a time limit of its own.
        let unlimited = AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
        let connected = async { Client::open(url)?.get_multiplexed_async_connection_with_config(&unlimited).await };
        connected.await.map(drop).map_err(|error| Failure { kind: Kind::Other, cause: self.censored(&innermost(&error)) })
    }

    fn failure(&self, error: &opendal::Error) -> Failure {
        let kind = if error.kind() == ErrorKind::NotFound { Kind::Missing } else { Kind::Other };
        let cause = match status(error) {
            Some(status @ (401 | 403)) => format!("access denied (HTTP status {status})"),
            Some(status) => format!("HTTP status {status}"),
            None => innermost(error),
        };
        Failure { kind, cause: self.censored(&cause) }
    }

    /// The first line of `cause`, without credentials.
    fn censored(&self, cause: &str) -> String {
        let hidden = self.secrets.iter().fold(cause.to_owned(), |text, secret| text.replace(secret, "***"));
        hidden.lines().next().unwrap_or_default().chars().take(LONGEST_CAUSE).collect()
    }
}

async fn read(operator: &Operator, name: &str, most: usize) -> opendal::Result<Vec<u8>> {
    let mut chunks = operator.reader(name).await?.into_stream(..).await?;
    let mut bytes = Vec::new();
    while let Some(chunk) = chunks.try_next().await? {
        chunk.for_each(|piece| bytes.extend_from_slice(&piece));
        if bytes.len() > most {
            break;
        }
    }
    Ok(bytes)
}

/// Whether the error is that of the Redis client, which gives up after half a second. A busy machine may take that long, so the
/// request is repeated: the caller has a time limit for all of it.
fn is_impatience(error: &opendal::Error) -> bool {
    let mut next: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = next {
        if error.downcast_ref::<RedisError>().is_some_and(RedisError::is_timeout) {
            return true;
        }
        next = error.source();
    }
    false
}

fn build(builder: impl Builder) -> opendal::Result<Operator> {
    Operator::new(builder).map(opendal::OperatorBuilder::finish)
}

fn place(url: &Url) -> Result<Place> {
    let host = || url.host_str().filter(|host| !host.is_empty()).context("no host is named");
    match url.scheme() {
        "redis" | "rediss" => {
            host()?;
            let [prefix] = options(url, ["prefix"])?;
            let db = match url.path().trim_matches('/') {
                "" => 0,
                db => db.parse().ok().context("what comes after the host is no number of a database")?,
            };
            Ok(Place::Redis { url: url.clone(), db, prefix: prefix.unwrap_or_else(|| "offld".to_owned()) })
        }
        "s3" => {
            let [region, endpoint] = options(url, ["region", "endpoint"])?;
            let bucket = url.host_str().filter(|host| !host.is_empty()).context("no bucket is named")?.to_owned();
            Ok(Place::S3 { bucket, prefix: decoded(url.path()), region, endpoint })
        }
        "http" | "https" => {
            host()?;
            let [] = options(url, [])?;
            Ok(Place::Web { url: url.clone() })
        }
        "file" => {
            let [] = options(url, [])?;
            Ok(Place::Folder { path: url.to_file_path().map_err(|()| anyhow!("it takes three slashes and a path"))? })
        }
        scheme => bail!("`{scheme}` is none of redis, rediss, s3, http, https and file"),
    }
}

/// The options of a URL by their names; an error for any other.
fn options<const N: usize>(url: &Url, names: [&str; N]) -> Result<[Option<String>; N]> {
    let mut found = [const { None }; N];
    for (name, value) in url.query_pairs() {
        let place = names.iter().position(|known| *known == name).and_then(|at| found.get_mut(at));
        *place.with_context(|| format!("there is no option `{name}` for {}", url.scheme()))? = Some(value.into_owned());
    }
    Ok(found)
}

/// Scheme, host and port.
fn without_credentials(url: &Url) -> String {
    let port = url.port().map_or_else(String::new, |port| format!(":{port}"));
    format!("{}://{}{port}", url.scheme(), url.host_str().unwrap_or_default())
}

fn decoded(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

/// The status of the HTTP response that an error is about. opendal has it only in the error's text, as the `Debug` form of the
/// response's `http::response::Parts`.
fn status(error: &opendal::Error) -> Option<u16> {
    let text = error.to_string();
    let (_, after) = text.split_once("response: Parts { status: ")?;
    after.get(..3)?.parse().ok()
}

/// The text of the first cause of an error.
fn innermost(error: &(dyn std::error::Error + 'static)) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    match error.downcast_ref::<opendal::Error>() {
        // Its message only: what it shows besides has the address in it.
        Some(error) => error.message().to_owned(),
        None => error.to_string(),
    }
}
