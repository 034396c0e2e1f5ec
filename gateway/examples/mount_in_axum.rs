//! Mounts the gateway in an axum application, beside a route of the application's own.
//!
//!     cargo run -p gateway --example mount_in_axum -- portcullis.yaml 127.0.0.1:8080
//!
//! The application answers `/hello`. Every other path belongs to the listener `main` of the configuration, whose
//! `address` is the one that the application listens at. docs/embedding.md says what the application has to do.

use std::error::Error;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::{env, fs};

use axum::Router;
use axum::routing::get;
use gateway::config::settings::{self, LoadPurpose};
use gateway::control::{helper, run};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};

#[expect(clippy::print_stderr, reason = "a program says what is wrong")]
fn main() -> Result<ExitCode, Box<dyn Error>> {
    // The gateway starts servers that are programs by way of this executable. This comes before all threads.
    if let Some(code) = helper::begin(env::args_os().skip(1), |text| eprintln!("{text}"))? {
        return Ok(code);
    }
    Runtime::new()?.block_on(serve())?;
    Ok(ExitCode::SUCCESS)
}

#[expect(clippy::print_stderr, reason = "a program says where it listens")]
async fn serve() -> Result<(), Box<dyn Error>> {
    let [file, address] = &env::args().skip(1).collect::<Vec<_>>()[..] else {
        return Err("usage: mount_in_axum CONFIGURATION ADDRESS".into());
    };

    // Sockets come first: a start that fails then leaves no record.
    let listener = TcpListener::bind(address).await?;

    // 1. The gateway, from its YAML. It binds nothing but `ops`, if the configuration has that.
    let text = fs::read_to_string(file)?;
    let variables = |name: &str| env::var(name).ok();
    let settings = settings::load_for(LoadPurpose::Serving, file, &text, &variables)
        .map_err(|problems| problems.human())?;
    let gateway = run::start_mounted(settings, None).await?;
    let mcp = gateway.service("main").ok_or("the configuration has no listener `main`")?;

    // 2. The application. The gateway sees the whole path and decides about it.
    let application = Router::new().route("/hello", get(async || "hello\n")).fallback_service(mcp);

    // 3. The server of the application. It tells the gateway the address of each client.
    let mut terminate = signal(SignalKind::terminate())?;
    eprintln!("`mount_in_axum` listens on http://{}", listener.local_addr()?);
    axum::serve(listener, application.into_make_service_with_connect_info::<SocketAddr>())
        .with_graceful_shutdown(async move {
            terminate.recv().await;
            // Ends streams that would last for ever, and waits for the responses in flight. The server then closes its
            // connections.
            let outcome = gateway.stop().await;
            eprintln!("the gateway has stopped: {outcome:?}");
        })
        .await?;
    Ok(())
}
