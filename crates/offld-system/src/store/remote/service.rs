//! Parses the URL of a remote cache, and reads and writes its objects. No other file uses opendal;
//! Redis has its own client, in `redis`.

use std::path::PathBuf;

use anyhow::{Context, Result, anyhow, bail};
use futures_util::TryStreamExt;
use opendal::{Builder, ErrorKind, Operator, services};
use percent_encoding::percent_decode_str;
use redis::RedisError;
use tokio::sync::OnceCell;
use url::Url;

use super::RemoteSettings;
use super::frame::PART;
use super::redis::Connection;
use crate::environment::{self, OFFLD_CACHE_REMOTE};

/// Variables from which AWS's tools read credentials. Messages must not contain their values.
const AWS_SECRETS: [&str; 3] = [
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_ACCESS_KEY_ID",
];
/// Maximum number of characters of an error's cause in a message.
const LONGEST_CAUSE: usize = 200;

/// Why an object was not read or written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Failure {
    pub kind: Kind,
    /// The cause, for messages.
    pub cause: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Missing,
    Late,
    Other,
}

/// A service that stores objects.
pub(super) struct Service {
    place: Place,
    read_only: bool,
    secrets: Vec<String>,
    connected: OnceCell<Connected>,
}

/// Connection to the service.
enum Connected {
    Redis(Connection),
    Other(Operator),
}

enum Place {
    Redis {
        url: Url,
        prefix: String,
    },
    S3 {
        bucket: String,
        prefix: String,
        region: Option<String>,
        endpoint: Option<String>,
    },
    Web {
        url: Url,
    },
    Folder {
        path: PathBuf,
    },
}

impl Service {
    /// Creates the service that `settings` name. Does not connect.
    ///
    /// # Errors
    /// The URL is invalid. The error does not contain its credentials.
    pub(super) fn open(settings: &RemoteSettings) -> Result<Service> {
        let url = settings
            .url
            .to_str()
            .with_context(|| format!("{OFFLD_CACHE_REMOTE} is not UTF-8"))?;
        let url = Url::parse(url)
            .map_err(|error| anyhow!("{OFFLD_CACHE_REMOTE} is not a URL: {error}"))?;
        let place =
            place(&url).with_context(|| format!("{OFFLD_CACHE_REMOTE}={}", settings.shown()))?;
        let given = [
            url.password().unwrap_or_default().to_owned(),
            decoded(url.password().unwrap_or_default()),
        ];
        let aws = AWS_SECRETS
            .iter()
            .filter_map(|name| environment::get(name)?.into_string().ok());
        let secrets = given
            .into_iter()
            .chain(aws)
            .filter(|secret| !secret.is_empty())
            .collect();
        Ok(Service {
            place,
            read_only: settings.read_only,
            secrets,
            connected: OnceCell::new(),
        })
    }

    /// Number of bytes of a blob in one object. It is larger on S3, where each request takes
    /// longer.
    pub(super) fn part(&self) -> usize {
        if matches!(self.place, Place::S3 { .. }) {
            PART
        } else {
            PART / 4
        }
    }

    /// Reads the object `name`. If it has more than `most` bytes, reading stops soon after these.
    pub(super) async fn read(&self, name: &str, most: usize) -> Result<Vec<u8>, Failure> {
        match self.connected().await? {
            Connected::Redis(connection) => {
                let missing = || Failure {
                    kind: Kind::Missing,
                    cause: "no such key".to_owned(),
                };
                connection
                    .get(name)
                    .await
                    .map_err(|error| self.redis_failure(&error))?
                    .ok_or_else(missing)
            }
            Connected::Other(operator) => read(operator, name, most)
                .await
                .map_err(|error| self.failure(&error)),
        }
    }

    /// Writes the object `name`, replacing an existing one.
    pub(super) async fn write(&self, name: &str, bytes: Vec<u8>) -> Result<(), Failure> {
        let operator = match self.connected().await? {
            Connected::Redis(connection) => {
                return connection
                    .set(name, &bytes)
                    .await
                    .map_err(|error| self.redis_failure(&error));
            }
            Connected::Other(operator) => operator,
        };
        let bytes = opendal::Buffer::from(bytes);
        let Err(error) = operator.write(name, bytes.clone()).await else {
            return Ok(());
        };
        let (Place::Web { .. }, Some(404 | 409), Some((folder, _))) =
            (&self.place, status(&error), name.rsplit_once('/'))
        else {
            return Err(self.failure(&error));
        };
        // Some WebDAV servers need the directory to be created first. It is created only after the
        // first failure, because most servers create directories themselves, and many refuse such
        // requests.
        let made = operator.create_dir(&format!("{folder}/")).await;
        made.map_err(|_| self.failure(&error))?;
        operator
            .write(name, bytes)
            .await
            .map(drop)
            .map_err(|error| self.failure(&error))
    }

    async fn connected(&self) -> Result<&Connected, Failure> {
        self.connected.get_or_try_init(|| self.connect()).await
    }

    async fn connect(&self) -> Result<Connected, Failure> {
        // rustls needs a cryptography provider. The error of an already installed one does not
        // matter.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let operator = match &self.place {
            Place::Redis { url, prefix } => {
                let connection = Connection::open(url.clone(), prefix)
                    .await
                    .map_err(|error| self.redis_failure(&error))?;
                return Ok(Connected::Redis(connection));
            }
            Place::S3 {
                bucket,
                prefix,
                region,
                endpoint,
            } => {
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
                let builder = services::Webdav::default()
                    .endpoint(&endpoint)
                    .root(&decoded(url.path()))
                    .disable_create_dir(true);
                build(
                    builder
                        .username(&decoded(url.username()))
                        .password(&decoded(url.password().unwrap_or_default())),
                )
            }
            Place::Folder { path } => self.folder(path),
        };
        operator
            .map(Connected::Other)
            .map_err(|error| self.failure(&error))
    }

    /// Opens a directory. It is written through temporary files that are renamed. A read-only one
    /// is not created.
    fn folder(&self, path: &std::path::Path) -> opendal::Result<Operator> {
        let text = path.to_str().ok_or_else(|| {
            opendal::Error::new(ErrorKind::ConfigInvalid, "the path is not UTF-8")
        })?;
        let builder = services::Fs::default().root(text);
        if !self.read_only {
            return build(builder.atomic_write_dir(&format!("{text}/tmp")));
        }
        match path.metadata() {
            Ok(_) => build(builder),
            Err(error) => Err(opendal::Error::new(
                ErrorKind::ConfigInvalid,
                error.to_string(),
            )),
        }
    }

    fn redis_failure(&self, error: &RedisError) -> Failure {
        Failure {
            kind: Kind::Other,
            cause: self.censored(&innermost(error)),
        }
    }

    fn failure(&self, error: &opendal::Error) -> Failure {
        let kind = if error.kind() == ErrorKind::NotFound {
            Kind::Missing
        } else {
            Kind::Other
        };
        let cause = match status(error) {
            Some(status @ (401 | 403)) => format!("access denied (HTTP status {status})"),
            Some(status) => format!("HTTP status {status}"),
            None => innermost(error),
        };
        Failure {
            kind,
            cause: self.censored(&cause),
        }
    }

    /// The first line of `cause`, without credentials.
    fn censored(&self, cause: &str) -> String {
        let hidden = self
            .secrets
            .iter()
            .fold(cause.to_owned(), |text, secret| text.replace(secret, "***"));
        hidden
            .lines()
            .next()
            .unwrap_or_default()
            .chars()
            .take(LONGEST_CAUSE)
            .collect()
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

fn build(builder: impl Builder) -> opendal::Result<Operator> {
    Operator::new(builder).map(opendal::OperatorBuilder::finish)
}

fn place(url: &Url) -> Result<Place> {
    let host = || {
        url.host_str()
            .filter(|host| !host.is_empty())
            .context("no host in the URL")
    };
    match url.scheme() {
        "redis" | "rediss" => {
            host()?;
            let [prefix] = options(url, ["prefix"])?;
            if !matches!(url.path().trim_matches('/'), db if db.is_empty() || db.parse::<i64>().is_ok())
            {
                bail!("the path is not a database number");
            }
            Ok(Place::Redis {
                url: url.clone(),
                prefix: prefix.unwrap_or_else(|| "offld".to_owned()),
            })
        }
        "s3" => {
            let [region, endpoint] = options(url, ["region", "endpoint"])?;
            let bucket = url
                .host_str()
                .filter(|host| !host.is_empty())
                .context("no bucket in the URL")?
                .to_owned();
            Ok(Place::S3 {
                bucket,
                prefix: decoded(url.path()),
                region,
                endpoint,
            })
        }
        "http" | "https" => {
            host()?;
            let [] = options(url, [])?;
            Ok(Place::Web { url: url.clone() })
        }
        "file" => {
            let [] = options(url, [])?;
            Ok(Place::Folder {
                path: url
                    .to_file_path()
                    .map_err(|()| anyhow!("expected three slashes and a path"))?,
            })
        }
        scheme => {
            bail!("unknown scheme `{scheme}`: expected redis, rediss, s3, http, https or file")
        }
    }
}

/// The options of a URL by their names. Any other option is an error.
fn options<const N: usize>(url: &Url, names: [&str; N]) -> Result<[Option<String>; N]> {
    let mut found = [const { None }; N];
    for (name, value) in url.query_pairs() {
        let place = names
            .iter()
            .position(|known| *known == name)
            .and_then(|at| found.get_mut(at));
        *place.with_context(|| format!("unknown option `{name}` for {}", url.scheme()))? =
            Some(value.into_owned());
    }
    Ok(found)
}

fn without_credentials(url: &Url) -> String {
    let port = url
        .port()
        .map_or_else(String::new, |port| format!(":{port}"));
    format!(
        "{}://{}{port}",
        url.scheme(),
        url.host_str().unwrap_or_default()
    )
}

fn decoded(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

/// The HTTP status of the response that caused an error. opendal has it only in the error's text,
/// as the `Debug` form of the response's `http::response::Parts`.
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
        // Only the message: the rest of the error contains the address.
        Some(error) => error.message().to_owned(),
        None => error.to_string(),
    }
}
