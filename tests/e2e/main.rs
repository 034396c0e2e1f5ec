//! End to end, over real sockets, through the built binary. One binary: one link.
//!
//! Every control is shown in both eras, and each test fails when its control is switched off.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking, its helpers too"
)]

mod accepting;
mod agents;
mod answers;
mod approvals;
mod arguments;
mod asking;
mod attaching;
mod audit;
mod authority;
mod beginning;
mod binding;
mod blocked_picture;
mod breaker;
mod budgets;
mod bulkheads;
mod capture;
mod certificates;
mod cli;
mod compat;
mod content;
mod conformance;
mod costs;
mod credentials;
mod denials;
mod deploy;
mod decoys;
mod deputy;
mod differential;
mod discovery;
mod discovery_clients;
mod discovery_limits;
mod discovery_pairs;
mod loading;
mod calling_through;
mod ranking;
mod documents;
mod egress;
mod evaluating;
mod extensions;
mod federation;
mod first_hour;
mod flooding;
mod flow;
mod forms;
mod framing;
mod guidance;
mod http2;
mod http2_cases;
mod identity;
mod import;
mod incident_table;
mod incidents;
mod introspection;
mod judging;
mod ledger;
mod lines;
mod listening;
mod names;
mod naming;
mod operator;
mod overriding;
mod peers;
mod pins;
mod places;
mod planners;
mod made;
mod memory;
mod members;
mod mistakes;
mod mounting;
mod policy;
mod programs;
mod protocol;
mod registry;
mod rehearsal;
mod releases;
mod providers;
mod reload;
mod results;
mod resuming;
mod resilience;
mod streaming;
mod possession;
mod revoking;
mod sandbox;
mod scanning;
mod scopes;
mod secrets;
mod selecting;
mod selftest;
mod sending;
mod shares;
mod server_requests;
mod shadowing;
mod skills;
mod telemetry;
mod telemetry_variables;
mod tokens;
mod transports;
mod troubleshooting;
mod unchanged;
mod upstreams;
mod watching;
