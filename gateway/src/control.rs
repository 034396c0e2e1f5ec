//! The control plane: builds, runs, reloads and stops the gateway, and serves its operators (revocation, admin API,
//! self-test, inventory, dry run).

pub mod build;
pub mod token_inspection;
pub mod revocation;
pub mod reload;
pub mod selftest;
pub mod watchdog;
pub mod admin_api;
pub mod admin_listener;
pub mod stdio;
pub mod attach;
pub mod run;
pub mod inventory;
pub mod dry_run;
pub mod demo_server;
pub mod helper;
