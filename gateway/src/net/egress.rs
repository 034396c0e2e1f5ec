//! The egress rules: decides which addresses connections to a server may use.
//!
//! A name is resolved when a connection is made, every resolved address is checked, and the
//! connection uses an address that was checked: a different result of a later resolution has no
//! effect (control C21, DNS rebinding). Neither proxies nor redirects are used.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use ipnet::IpNet;
use policy::subject::address::{self, AddressClass, plain, reach};

/// Most addresses of one name that are considered.
pub const ADDRESSES: usize = 64;

/// A set of addresses that connections may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EgressNetwork {
    /// Addresses of the public internet.
    Public,
    /// Private networks of an organisation.
    Private,
    /// Loopback addresses of this machine.
    Loopback,
    /// All addresses with a prefix.
    Prefix(IpNet),
}

/// Why a text is not a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EgressNetworkError {
    /// It is neither a keyword nor an address or prefix.
    #[error("not a network")]
    Unknown,
    /// It has bits set behind its prefix, so its meaning is ambiguous.
    #[error("the address has bits behind the prefix")]
    Bits,
    /// All of its addresses are forbidden.
    #[error("addresses that are never connected to: link-local, multicast or metadata")]
    Never,
}

impl FromStr for EgressNetwork {
    type Err = EgressNetworkError;

    fn from_str(text: &str) -> Result<Self, EgressNetworkError> {
        match text {
            "public" => return Ok(Self::Public),
            "private" => return Ok(Self::Private),
            "loopback" => return Ok(Self::Loopback),
            _ => {}
        }
        let whole = || text.parse::<IpAddr>().map(IpNet::from);
        let prefix: IpNet =
            text.parse().or_else(|_| whole()).map_err(|_unreadable| EgressNetworkError::Unknown)?;
        if prefix.trunc() != prefix {
            return Err(EgressNetworkError::Bits);
        }
        if address::is_never(prefix.network(), prefix.broadcast()) {
            return Err(EgressNetworkError::Never);
        }
        Ok(Self::Prefix(prefix))
    }
}

impl fmt::Display for EgressNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Public => f.write_str("public"),
            Self::Private => f.write_str("private"),
            Self::Loopback => f.write_str("loopback"),
            Self::Prefix(prefix) => prefix.fmt(f),
        }
    }
}

impl EgressNetwork {
    fn contains(&self, address: IpAddr) -> bool {
        match self {
            Self::Public => reach(address) == AddressClass::Public,
            Self::Private => reach(address) == AddressClass::Private,
            Self::Loopback => reach(address) == AddressClass::Loopback,
            Self::Prefix(prefix) => prefix.contains(&address),
        }
    }
}

/// The networks that connections to one server may use. Without a network, nothing is admitted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Egress {
    networks: Vec<EgressNetwork>,
}

impl Egress {
    /// Admits these networks, except for addresses that are never connected to.
    #[must_use]
    pub const fn new(networks: Vec<EgressNetwork>) -> Self {
        Self { networks }
    }

    /// The default for the host of a URL: for an IP address that address, for `localhost` the loopback addresses, and
    /// for any other name all addresses but loopback, because a foreign name must not lead to this machine.
    #[must_use]
    pub fn usual(host: &str) -> Self {
        let host = host.trim_matches(['[', ']']);
        if let Ok(address) = host.parse::<IpAddr>() {
            return Self::new(vec![EgressNetwork::Prefix(IpNet::from(plain(address)))]);
        }
        let host = host.trim_end_matches('.').to_ascii_lowercase();
        // RFC 6761, section 6.3.
        if host == "localhost" || host.ends_with(".localhost") {
            return Self::new(vec![EgressNetwork::Loopback]);
        }
        Self::new(vec![EgressNetwork::Public, EgressNetwork::Private])
    }

    /// Whether a connection to `address` may be made.
    #[must_use]
    pub fn admits(&self, address: IpAddr) -> bool {
        let address = plain(address);
        !is_never(address) && self.networks.iter().any(|network| network.contains(address))
    }
}

/// Whether `address` is never connected to, regardless of the configuration.
#[must_use]
pub fn is_never(address: IpAddr) -> bool {
    reach(address) == AddressClass::Never
}

/// Whether the host of `uri` is this machine, whatever networks are admitted: `localhost`, or an address of the loopback
/// network.
#[must_use]
pub fn is_this_machine(uri: &http::Uri) -> bool {
    let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
    let address = host.parse::<IpAddr>();
    host.eq_ignore_ascii_case("localhost")
        || address.is_ok_and(|address| address.to_canonical().is_loopback())
}

/// Whether `uri` leads to another machine without encryption, so that anybody on the network path can read and change
/// the traffic. A name under `localhost` is this machine here, because [`Egress::usual`] admits only loopback for it;
/// where other networks may be admitted, [`is_this_machine`] decides.
#[must_use]
pub fn is_in_the_clear(uri: &http::Uri) -> bool {
    let host = uri.host().unwrap_or_default().to_ascii_lowercase();
    let local = is_this_machine(uri) || host.ends_with(".localhost");
    uri.scheme_str() == Some("http") && !local
}

#[cfg(test)]
mod tests {
    use super::{
        Egress, EgressNetwork, EgressNetworkError, is_in_the_clear, is_never, is_this_machine,
    };

    #[test]
    fn what_each_network_admits() {
        let table = [
            ("8.8.8.8", "public"),
            ("2606:4700::1111", "public"),
            ("10.1.2.3", "private"),
            ("172.31.0.1", "private"),
            ("192.168.1.1", "private"),
            ("100.64.0.1", "private"),
            ("fd12::1", "private"),
            ("127.0.0.1", "loopback"),
            ("127.255.0.1", "loopback"),
            ("::1", "loopback"),
            ("::ffff:127.0.0.1", "loopback"),
            ("::ffff:10.0.0.1", "private"),
            ("64:ff9b::a00:1", "private"),
            ("64:ff9b::808:808", "public"),
            ("2002:7f00:1::", "loopback"),
            ("198.18.0.1", ""),
            ("203.0.113.9", ""),
            ("::127.0.0.1", ""),
            ("2001:db8::1", ""),
        ];
        for (address, only) in table {
            for name in ["public", "private", "loopback"] {
                let egress = Egress::new(vec![name.parse().unwrap()]);
                assert_eq!(
                    egress.admits(address.parse().unwrap()),
                    name == only,
                    "{address} {name}"
                );
            }
        }
    }

    #[test]
    fn a_prefix_is_of_the_addresses_that_are_reached() {
        let admits = |network: &str, address: &str| {
            Egress::new(vec![network.parse().unwrap()]).admits(address.parse().unwrap())
        };
        for inside in ["10.1.2.3", "::ffff:10.1.2.3", "64:ff9b::a01:203", "2002:a01:203::1"] {
            assert!(admits("10.0.0.0/8", inside), "{inside}");
        }
        // An IPv6 prefix does not admit an IPv4 address that is embedded in IPv6.
        assert!(admits("2000::/3", "2606:4700::1111"));
        for inside in ["::ffff:10.1.2.3", "2002:a01:203::1", "2002:7f00:1::1"] {
            assert!(!admits("::/0", inside), "{inside}");
        }
    }

    #[test]
    fn some_addresses_are_never_connected_to() {
        let everything = ["public", "private", "loopback", "0.0.0.0/0", "::/0"];
        let all = Egress::new(everything.iter().map(|text| text.parse().unwrap()).collect());
        for address in [
            "169.254.169.254",
            "169.254.170.2",
            "::ffff:169.254.169.254",
            "64:ff9b::a9fe:a9fe",
            "2002:a9fe:a9fe::1",
            "100.100.100.200",
            "168.63.129.16",
            "192.0.0.192",
            "fd00:ec2::254",
            "fd20:ce::254",
            "fe80::1",
            "0.0.0.0",
            "0.1.2.3",
            "::",
            "224.0.0.1",
            "ff02::1",
            "255.255.255.255",
            "2001::1",
        ] {
            assert!(!all.admits(address.parse().unwrap()), "{address}");
            assert!(is_never(address.parse().unwrap()), "{address}");
        }
        assert!(!Egress::default().admits("8.8.8.8".parse().unwrap()));
    }

    #[test]
    fn a_url_says_where_it_may_lead() {
        let admits =
            |host: &str, address: &str| Egress::usual(host).admits(address.parse().unwrap());
        assert!(admits("localhost", "127.0.0.1") && admits("api.LocalHost.", "::1"));
        assert!(!admits("localhost", "10.0.0.1") && !admits("localhost", "8.8.8.8"));
        assert!(admits("mcp.example.com", "8.8.8.8") && admits("tools.svc", "10.0.0.1"));
        assert!(!admits("mcp.example.com", "127.0.0.1") && !admits("notlocalhost", "::1"));
        assert!(admits("127.0.0.2", "127.0.0.2") && !admits("127.0.0.2", "127.0.0.1"));
        assert!(admits("[::1]", "::1") && !admits("169.254.169.254", "169.254.169.254"));
    }

    #[test]
    fn this_machine_is_localhost_and_the_loopback_network() {
        for (url, is) in [
            ("http://localhost:1/a", true),
            ("http://LocalHost/", true),
            ("http://127.0.0.1/", true),
            ("http://127.8.9.1:80", true),
            ("http://[::1]:1/", true),
            ("http://[::ffff:127.0.0.1]/", true),
            ("http://api.localhost/", false),
            ("http://localhost.example/", false),
            ("http://127.0.0.1.example/", false),
            ("http://0.0.0.0/", false),
            ("http://[::]/", false),
            ("/path", false),
        ] {
            assert_eq!(is_this_machine(&url.parse().unwrap()), is, "{url}");
        }
    }

    #[test]
    fn plain_http_is_in_the_clear_unless_it_stays_on_this_machine() {
        for (url, is) in [
            ("http://localhost/", false),
            ("http://[::ffff:127.0.0.1]/", false),
            ("http://api.LocalHost/", false),
            ("http://notlocalhost/", true),
            ("http://10.0.0.1/", true),
            ("https://10.0.0.1/", false),
        ] {
            assert_eq!(is_in_the_clear(&url.parse().unwrap()), is, "{url}");
        }
    }

    #[test]
    fn what_is_not_a_network() {
        let read = |text: &str| text.parse::<EgressNetwork>();
        assert_eq!(read("10.0.0.0/8").unwrap().to_string(), "10.0.0.0/8");
        assert_eq!(read("10.1.2.3").unwrap().to_string(), "10.1.2.3/32");
        assert_eq!(read("10.0.0.1/8"), Err(EgressNetworkError::Bits));
        assert_eq!(read("169.254.0.0/24"), Err(EgressNetworkError::Never));
        for wrong in ["", "intranet", "10.0.0.0/33", "example.com", "10.0.0"] {
            assert_eq!(read(wrong), Err(EgressNetworkError::Unknown), "{wrong}");
        }
    }
}
