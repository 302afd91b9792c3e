//! Connection to a Redis server. A Redis client reads a whole answer into memory before it returns
//! it, and the answer itself states its length. So the stream below the client fails when more
//! bytes arrive than the answers to all pending requests may have.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, ready};

use redis::aio::MultiplexedConnection;
use redis::{AsyncCommands, AsyncConnectionConfig, ConnectionAddr, IntoConnectionInfo, RedisError};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use url::Url;

use super::frame::LONGEST;
use crate::threads::lock;

/// Maximum size of one answer, in bytes: an object, and the framing of Redis and TLS.
const MAX_ANSWER: u64 = LONGEST as u64 + (1 << 20);
/// Maximum number of bytes before the first request: answers to the login, and TLS certificates.
const MAX_GREETING: u64 = 256 << 10;

/// A connection. Any number of requests may be pending at once.
#[derive(Clone)]
pub(super) struct Connection {
    inner: MultiplexedConnection,
    quota: Arc<Quota>,
    prefix: String,
}

/// Number of bytes that may still be read.
struct Quota(Mutex<Left>);

struct Left {
    pending: u64,
    bytes: u64,
}

struct PendingRequest<'q>(&'q Quota);

impl Connection {
    /// Connects to the server of `url`, for objects whose keys begin with `prefix`. There is no
    /// time limit here: the caller has one.
    pub(super) async fn open(mut url: Url, prefix: &str) -> Result<Connection, RedisError> {
        url.set_query(None);
        // The client is compiled without TLS; this file adds it.
        let is_tls = url.scheme() == "rediss" && url.set_scheme("redis").is_ok();
        let info = url.into_connection_info()?;
        let quota = Arc::new(Quota(Mutex::new(Left {
            pending: 0,
            bytes: MAX_GREETING,
        })));
        let ConnectionAddr::Tcp(host, port) = info.addr() else {
            return Err(io::Error::other(format!("cannot connect to {}", info.addr())).into());
        };
        let stream = TcpStream::connect((host.as_str(), *port)).await?;
        // Requests are small, and the link waits for their answers.
        stream.set_nodelay(true)?;
        let stream = Bounded {
            inner: stream,
            quota: Arc::clone(&quota),
        };
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            .set_response_timeout(None);
        let settings = info.redis_settings();
        let inner = if is_tls {
            let name = ServerName::try_from(host.clone()).map_err(io::Error::other)?;
            let stream = TlsConnector::from(Arc::new(tls()?))
                .connect(name, stream)
                .await?;
            let (inner, driver) =
                MultiplexedConnection::new_with_config(settings, stream, config).await?;
            tokio::spawn(driver);
            inner
        } else {
            let (inner, driver) =
                MultiplexedConnection::new_with_config(settings, stream, config).await?;
            tokio::spawn(driver);
            inner
        };
        let parts: Vec<&str> = prefix.split('/').filter(|part| !part.is_empty()).collect();
        let prefix = parts.iter().map(|part| format!("{part}/")).collect();
        Ok(Connection {
            inner,
            quota,
            prefix,
        })
    }

    /// Reads the object `name`, if there is one.
    pub(super) async fn get(&self, name: &str) -> Result<Option<Vec<u8>>, RedisError> {
        let _pending = self.quota.add_request();
        self.inner.clone().get(self.key(name)).await
    }

    /// Writes the object `name`, replacing an existing one.
    pub(super) async fn set(&self, name: &str, bytes: &[u8]) -> Result<(), RedisError> {
        let _pending = self.quota.add_request();
        self.inner.clone().set(self.key(name), bytes).await
    }

    fn key(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }
}

/// TLS settings with the certificates that this machine trusts.
fn tls() -> io::Result<ClientConfig> {
    let mut found = rustls_native_certs::load_native_certs();
    if let Some(error) = found.errors.pop().filter(|_| found.certs.is_empty()) {
        return Err(io::Error::other(error));
    }
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(found.certs);
    Ok(ClientConfig::builder()
        .with_root_certificates(roots)
        .with_no_client_auth())
}

impl Quota {
    fn add_request(&self) -> PendingRequest<'_> {
        let mut left = self.left();
        left.pending += 1;
        left.bytes = left.bytes.saturating_add(MAX_ANSWER);
        PendingRequest(self)
    }

    /// Subtracts the bytes read.
    fn take(&self, count: u64) -> io::Result<()> {
        let mut left = self.left();
        left.bytes = left.bytes.checked_sub(count).ok_or_else(|| {
            io::Error::other("the server sent more than 5 MiB in one answer; is it a Redis server?")
        })?;
        Ok(())
    }

    fn left(&self) -> MutexGuard<'_, Left> {
        lock(&self.0)
    }
}

impl Drop for PendingRequest<'_> {
    fn drop(&mut self) {
        let mut left = self.0.left();
        left.pending -= 1;
        // The unused rest of an answer must not extend later ones.
        left.bytes = left.bytes.min(MAX_GREETING + left.pending * MAX_ANSWER);
    }
}

/// A stream that yields no more bytes than its quota.
struct Bounded<S> {
    inner: S,
    quota: Arc<Quota>,
}

impl<S: AsyncRead + Unpin> AsyncRead for Bounded<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.inner).poll_read(context, buffer))?;
        Poll::Ready(self.quota.take((buffer.filled().len() - before) as u64))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Bounded<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unused_rest_of_an_answer_does_not_extend_later_ones() {
        let quota = Quota(Mutex::new(Left {
            pending: 0,
            bytes: MAX_GREETING,
        }));
        assert!(quota.take(MAX_GREETING + 1).is_err());
        quota.take(MAX_GREETING).unwrap();
        let (first, second) = (quota.add_request(), quota.add_request());
        quota.take(2 * MAX_ANSWER).unwrap();
        assert!(quota.take(1).is_err());
        drop(first);
        let third = quota.add_request();
        drop(second);
        quota.take(MAX_ANSWER).unwrap();
        assert!(quota.take(1).is_err());
        drop(third);
        for _ in 0..100 {
            drop(quota.add_request());
        }
        assert!(quota.take(MAX_GREETING + 1).is_err());
    }
}
