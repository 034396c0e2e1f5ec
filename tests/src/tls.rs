//! TLS around clients and servers that speak in the clear: what they say is pumped through.

use std::net::SocketAddr;
use std::sync::{Arc, LazyLock, Mutex};

use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::pki::{Files, Pki};

pub(crate) static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
});

/// How a client speaks TLS: whom it believes, and what it shows.
///
/// # Panics
/// When the certificate cannot be used.
#[must_use]
pub fn client(roots: Arc<RootCertStore>, shown: Option<&Files>) -> Arc<ClientConfig> {
    let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let config = match shown {
        None => builder.with_no_client_auth(),
        Some(files) => {
            let (chain, key) = files.read();
            builder.with_client_auth_cert(chain, key).unwrap()
        }
    };
    Arc::new(config)
}

/// A place on loopback from which everything goes on to `to`, over TLS.
///
/// # Panics
/// When there is no port.
#[must_use]
pub fn tunnel(to: SocketAddr, config: Arc<ClientConfig>) -> SocketAddr {
    let listener = RUNTIME.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    let address = listener.local_addr().unwrap();
    RUNTIME.spawn(async move {
        while let Ok((mut plain, _)) = listener.accept().await {
            let config = Arc::clone(&config);
            RUNTIME.spawn(async move {
                let Ok(stream) = TcpStream::connect(to).await else { return };
                let name = ServerName::try_from("localhost").unwrap();
                let connected = TlsConnector::from(config).connect(name, stream).await;
                let Ok(mut secure) = connected else { return };
                drop(copy_bidirectional(&mut plain, &mut secure).await);
            });
        }
    });
    address
}

/// Shakes hands once; what went wrong, in words.
///
/// # Errors
/// When it did.
pub fn shake(to: SocketAddr, config: Arc<ClientConfig>) -> Result<(), String> {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    RUNTIME.block_on(async move {
        let words = |error: std::io::Error| error.to_string();
        let stream = TcpStream::connect(to).await.map_err(words)?;
        let name = ServerName::try_from("localhost").unwrap();
        let mut secure = TlsConnector::from(config).connect(name, stream).await.map_err(words)?;
        // In TLS 1.3 a server looks at the certificate after the client is done.
        let ask = b"GET /nothing HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
        secure.write_all(ask).await.map_err(words)?;
        let mut answer = [0; 16];
        let read = secure.read(&mut answer).await.map_err(words)?;
        if read > 0 { Ok(()) } else { Err("closed".to_owned()) }
    })
}

/// A TLS front before a server that speaks in the clear.
#[derive(Debug)]
pub struct Front {
    /// Where it is.
    pub address: SocketAddr,
    /// The certificates clients have shown, by the digest tokens are bound to.
    pub shown: Arc<Mutex<Vec<Option<CertificateDer<'static>>>>>,
    config: Arc<Mutex<Arc<ServerConfig>>>,
}

pub(crate) fn server(files: &Files, clients: Option<&Pki>) -> Arc<ServerConfig> {
    let (chain, key) = files.read();
    let provider = Arc::new(default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .unwrap();
    let builder = match clients {
        None => builder.with_no_client_auth(),
        Some(pki) => {
            let verifier = WebPkiClientVerifier::builder_with_provider(pki.roots(), provider);
            builder.with_client_cert_verifier(verifier.allow_unauthenticated().build().unwrap())
        }
    };
    Arc::new(builder.with_single_cert(chain, key).unwrap())
}

impl Front {
    /// A front before `to` that shows `files`, and asks for certificates of `clients`.
    ///
    /// # Panics
    /// When there is no port.
    #[must_use]
    pub fn before(to: SocketAddr, files: &Files, clients: Option<&Pki>) -> Self {
        let config = Arc::new(Mutex::new(server(files, clients)));
        let shown = Arc::new(Mutex::new(Vec::new()));
        let listener = RUNTIME.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let (current, log) = (Arc::clone(&config), Arc::clone(&shown));
        RUNTIME.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let acceptor = TlsAcceptor::from(Arc::clone(&*current.lock().unwrap()));
                let log = Arc::clone(&log);
                RUNTIME.spawn(async move {
                    let Ok(mut secure) = acceptor.accept(stream).await else { return };
                    let chain = secure.get_ref().1.peer_certificates();
                    let leaf =
                        chain.and_then(|chain| chain.first()).map(|leaf| leaf.clone().into_owned());
                    log.lock().unwrap().push(leaf);
                    let Ok(mut plain) = TcpStream::connect(to).await else { return };
                    drop(copy_bidirectional(&mut secure, &mut plain).await);
                });
            }
        });
        Self { address, shown, config }
    }

    /// Shows another certificate from now on.
    ///
    /// # Panics
    /// When it cannot be used.
    pub fn show(&self, files: &Files) {
        *self.config.lock().unwrap() = server(files, None);
    }
}
