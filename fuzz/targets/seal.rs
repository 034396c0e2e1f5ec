//! Nothing that was not sealed opens, and nothing that came from a client makes a reader panic.
#![no_main]

use gateway::crypto::sealer::Sealer;
use gateway::stream::replay::read_id;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let sealer = Sealer::new(&[vec![7; 32]]).expect("a key of 32 bytes");
    assert_eq!(sealer.open(&[b"fuzz"], text), None);
    let _any = read_id(text);
});
