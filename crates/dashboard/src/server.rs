//! The server: a few routes over a run's history, which is read again when somebody asks and something is new.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use crate::access::Access;
use crate::connection_limit::ConnectionLimit;
use crate::page;
use crate::watch::Watch;

/// What is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shows {
    /// The page, and the numbers for Prometheus at `/metrics`.
    Page,
    /// The numbers for Prometheus only.
    Metrics,
}

/// What to serve, and where.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The file with the run's events. It need not be there yet.
    pub events: PathBuf,
    /// What the run is called.
    pub name: String,
    /// Where to listen.
    pub address: SocketAddr,
    /// What is served there.
    pub shows: Shows,
}

/// Why nothing is served.
#[derive(Debug, thiserror::Error)]
pub enum DashboardError {
    /// The address cannot be had.
    #[error("cannot listen on {address}: {source}; choose another address, or port 0 for any that is free")]
    Listen {
        /// Which.
        address: SocketAddr,
        /// What the system says.
        source: std::io::Error,
    },
    /// There can be no thread for it.
    #[error("cannot start a thread: {0}")]
    Thread(std::io::Error),
    /// It has stopped.
    #[error("the server has failed: {0}")]
    Failed(std::io::Error),
}

/// A server that runs on a thread of its own until the process ends.
pub struct Server {
    address: SocketAddr,
    access: Access,
    shows: Shows,
    thread: JoinHandle<std::io::Result<()>>,
}

/// What all requests have in common.
struct Shared {
    access: Access,
    watch: Mutex<Watch>,
}

impl Server {
    /// Begins to serve.
    pub fn start(settings: Settings) -> Result<Self, DashboardError> {
        let Settings { events, name, address, shows } = settings;
        let failed = |source| DashboardError::Listen { address, source };
        let listener = std::net::TcpListener::bind(address).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let access = Access::to(address);
        let watch = Mutex::new(Watch::new(&events, name));
        let router = router(shows, Arc::new(Shared { access: access.clone(), watch }));
        let serve = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(async { axum::serve(ConnectionLimit::new(listener)?, router).await })
        };
        let thread = std::thread::Builder::new().name("dashboard".into()).spawn(serve);
        Ok(Self { address, access, shows, thread: thread.map_err(DashboardError::Thread)? })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where to look, from where this machine has this address.
    pub fn url(&self, address: SocketAddr) -> String {
        let path = if self.shows == Shows::Metrics { "metrics" } else { "" };
        let query = self.access.token().map_or_else(String::new, |token| format!("?token={token}"));
        format!("http://{address}/{path}{query}")
    }

    /// Serves until it fails.
    pub fn wait(self) -> Result<(), DashboardError> {
        let ended = self.thread.join().unwrap_or_else(|_| Err(std::io::Error::other("it panicked")));
        ended.map_err(DashboardError::Failed)
    }
}

fn router(shows: Shows, shared: Arc<Shared>) -> Router {
    let metrics = Router::new().route("/metrics", get(metrics));
    let (guarded, open) = match shows {
        Shows::Metrics => (metrics, Router::new()),
        Shows::Page => (
            metrics.route("/", get(|| async { page::html() })).route("/board", get(show_board)),
            // They are the same for everybody, and say nothing of the run.
            Router::new()
                .route("/page.css", get(|| async { page::css() }))
                .route("/page.js", get(|| async { page::script() })),
        ),
    };
    guarded.layer(from_fn_with_state(shared.clone(), guard)).merge(open).with_state(shared)
}

/// Turns away who may not look, and has browsers keep to what the page is made of.
async fn guard(State(shared): State<Arc<Shared>>, request: Request, next: Next) -> Response {
    let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
    if !shared.access.admits(host, request.uri().query()) {
        return (StatusCode::FORBIDDEN, shared.access.refusal()).into_response();
    }
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(page::POLICY));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

async fn show_board(State(shared): State<Arc<Shared>>) -> Response {
    shared.answer(|watch| ([(header::CONTENT_TYPE, "application/json")], watch.board()).into_response())
}

async fn metrics(State(shared): State<Arc<Shared>>) -> Response {
    shared.answer(|watch| ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], watch.metrics()).into_response())
}

impl Shared {
    fn answer(&self, answer: impl FnOnce(&mut Watch) -> Response) -> Response {
        let mut watch = self.watch.lock().unwrap_or_else(PoisonError::into_inner);
        match watch.catch_up() {
            Ok(()) => answer(&mut watch),
            Err(problem) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{problem}\n")).into_response(),
        }
    }
}
