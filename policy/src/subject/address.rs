//! Classifies network addresses by what they lead to, for URLs in the arguments of calls and for egress connections.
//!
//! The blocks are those of the IANA special-purpose address registries, and the metadata services of AWS,
//! Google, Oracle, Alibaba and Azure.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// What a connection to an address reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressClass {
    /// A host on the internet.
    Public,
    /// The network of an organisation: RFC 1918, RFC 4193, and the shared address space of RFC 6598.
    Private,
    /// The machine of the gateway.
    Loopback,
    /// Neither public nor private: documentation, benchmarking, protocol assignments and unassigned space.
    Special,
    /// Never a destination: unspecified, link-local and multicast addresses, and services that hand out the credentials
    /// of the machine.
    Never,
}

/// Addresses with a common prefix.
#[derive(Clone, Copy, Debug)]
struct AddressBlock {
    first: IpAddr,
    /// Length of the prefix in bits.
    length: u32,
    reach: AddressClass,
}

const fn four([a, b, c, d]: [u8; 4], length: u32, reach: AddressClass) -> AddressBlock {
    AddressBlock { first: IpAddr::V4(Ipv4Addr::new(a, b, c, d)), length, reach }
}

/// A block of IPv6 by its first four segments; the rest of the address is zero.
const fn six([a, b, c, d]: [u16; 4], length: u32, reach: AddressClass) -> AddressBlock {
    AddressBlock { first: IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0)), length, reach }
}

const fn six_whole(first: Ipv6Addr, reach: AddressClass) -> AddressBlock {
    AddressBlock { first: IpAddr::V6(first), length: 128, reach }
}

/// The first block that contains an address decides; an address in no block is public.
const BLOCKS: [AddressBlock; 36] = [
    four([0, 0, 0, 0], 8, AddressClass::Never),
    four([169, 254, 0, 0], 16, AddressClass::Never),
    four([224, 0, 0, 0], 4, AddressClass::Never),
    four([240, 0, 0, 0], 4, AddressClass::Never),
    four([192, 0, 0, 192], 32, AddressClass::Never),
    four([100, 100, 100, 200], 32, AddressClass::Never),
    four([168, 63, 129, 16], 32, AddressClass::Never),
    six_whole(Ipv6Addr::UNSPECIFIED, AddressClass::Never),
    six([0xfe80, 0, 0, 0], 10, AddressClass::Never),
    six([0xfec0, 0, 0, 0], 10, AddressClass::Never),
    six([0xff00, 0, 0, 0], 8, AddressClass::Never),
    six([0xfd00, 0xec2, 0, 0], 32, AddressClass::Never),
    six_whole(Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254), AddressClass::Never),
    // These embed an IPv4 address that is reached by another route: Teredo, and local-use NAT64.
    six([0x2001, 0, 0, 0], 32, AddressClass::Never),
    six([0x64, 0xff9b, 1, 0], 48, AddressClass::Never),
    four([10, 0, 0, 0], 8, AddressClass::Private),
    four([172, 16, 0, 0], 12, AddressClass::Private),
    four([192, 168, 0, 0], 16, AddressClass::Private),
    four([100, 64, 0, 0], 10, AddressClass::Private),
    six([0xfc00, 0, 0, 0], 7, AddressClass::Private),
    four([127, 0, 0, 0], 8, AddressClass::Loopback),
    six_whole(Ipv6Addr::LOCALHOST, AddressClass::Loopback),
    four([192, 0, 0, 0], 24, AddressClass::Special),
    four([192, 0, 2, 0], 24, AddressClass::Special),
    four([192, 88, 99, 0], 24, AddressClass::Special),
    four([198, 18, 0, 0], 15, AddressClass::Special),
    four([198, 51, 100, 0], 24, AddressClass::Special),
    four([203, 0, 113, 0], 24, AddressClass::Special),
    six([0x2001, 0, 0, 0], 23, AddressClass::Special),
    six([0x2001, 0xdb8, 0, 0], 32, AddressClass::Special),
    six([0x3fff, 0, 0, 0], 20, AddressClass::Special),
    // Everything outside 2000::/3, the only global unicast space that is assigned (RFC 4291, section 2.4).
    six([0, 0, 0, 0], 3, AddressClass::Special),
    six([0x4000, 0, 0, 0], 2, AddressClass::Special),
    six([0x8000, 0, 0, 0], 2, AddressClass::Special),
    six([0xc000, 0, 0, 0], 3, AddressClass::Special),
    six([0xe000, 0, 0, 0], 3, AddressClass::Special),
];

impl AddressBlock {
    const fn holds(&self, address: IpAddr) -> bool {
        match (self.first, address) {
            (IpAddr::V4(first), IpAddr::V4(address)) => {
                (first.to_bits() ^ address.to_bits()).leading_zeros() >= self.length
            }
            (IpAddr::V6(first), IpAddr::V6(address)) => {
                (first.to_bits() ^ address.to_bits()).leading_zeros() >= self.length
            }
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
        }
    }
}

/// Classifies `address`, after [`plain`] has resolved an embedded IPv4 address.
#[must_use]
pub fn reach(address: IpAddr) -> AddressClass {
    let address = plain(address);
    BLOCKS
        .iter()
        .find(|block| block.holds(address))
        .map_or(AddressClass::Public, |block| block.reach)
}

/// Whether all addresses from `first` to `last`, which have a prefix in common, are in one block of
/// [`AddressClass::Never`].
#[must_use]
pub fn is_never(first: IpAddr, last: IpAddr) -> bool {
    let mut never = BLOCKS.iter().filter(|block| block.reach == AddressClass::Never);
    never.any(|block| block.holds(first) && block.holds(last))
}

/// The address that is reached: the embedded address where an IPv6 address embeds IPv4 (mapped, NAT64, 6to4).
#[must_use]
pub fn plain(address: IpAddr) -> IpAddr {
    let IpAddr::V6(six) = address else { return address };
    let of = |high: u16, low: u16| Ipv4Addr::from(u32::from(high) << 16 | u32::from(low));
    match six.segments() {
        [0, 0, 0, 0, 0, 0xffff, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => {
            of(high, low).into()
        }
        [0x2002, high, low, ..] => of(high, low).into(),
        _ => six.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::{AddressClass, BLOCKS, is_never, reach};
    use std::net::IpAddr;

    #[test]
    fn every_block_begins_where_its_prefix_does() {
        for block in BLOCKS {
            let (bits, width) = match block.first {
                IpAddr::V4(first) => (u128::from(first.to_bits()), 32),
                IpAddr::V6(first) => (first.to_bits(), 128),
            };
            assert!(bits.trailing_zeros().min(width) >= width - block.length, "{block:?}");
        }
    }

    #[test]
    fn an_address_leads_where_the_registries_say() {
        for (address, expected) in [
            ("8.8.8.8", AddressClass::Public),
            ("192.0.64.1", AddressClass::Public),
            ("172.32.0.1", AddressClass::Public),
            ("2606:4700::1111", AddressClass::Public),
            ("64:ff9b::808:808", AddressClass::Public),
            ("::ffff:8.8.8.8", AddressClass::Public),
            ("10.1.2.3", AddressClass::Private),
            ("100.64.0.1", AddressClass::Private),
            ("fd12::1", AddressClass::Private),
            ("64:ff9b::a00:1", AddressClass::Private),
            ("127.255.0.1", AddressClass::Loopback),
            ("::1", AddressClass::Loopback),
            ("2002:7f00:1::", AddressClass::Loopback),
            ("192.0.2.1", AddressClass::Special),
            ("192.88.99.1", AddressClass::Special),
            ("198.19.0.1", AddressClass::Special),
            ("198.51.100.1", AddressClass::Special),
            ("203.0.113.9", AddressClass::Special),
            ("::127.0.0.1", AddressClass::Special),
            ("::ffff:0:7f00:1", AddressClass::Special),
            ("100::1", AddressClass::Special),
            ("2001:10::1", AddressClass::Special),
            ("2001:db8::1", AddressClass::Special),
            ("3fff::1", AddressClass::Special),
            ("5f00::1", AddressClass::Special),
            ("9000::1", AddressClass::Special),
            ("168.63.129.16", AddressClass::Never),
            ("100.100.100.200", AddressClass::Never),
            ("192.0.0.192", AddressClass::Never),
            ("169.254.169.254", AddressClass::Never),
            ("2002:a9fe:a9fe::1", AddressClass::Never),
            ("2001::80ff:fffe", AddressClass::Never),
            ("64:ff9b:1::7f00:1", AddressClass::Never),
            ("fd00:ec2::254", AddressClass::Never),
            ("fd20:ce::254", AddressClass::Never),
            ("fe80::1", AddressClass::Never),
            ("ff02::1", AddressClass::Never),
            ("::", AddressClass::Never),
            ("255.255.255.255", AddressClass::Never),
        ] {
            assert_eq!(reach(address.parse().unwrap()), expected, "{address}");
        }
    }

    #[test]
    fn a_prefix_is_never_connected_to_if_all_of_it_is_not() {
        let never =
            |first: &str, last: &str| is_never(first.parse().unwrap(), last.parse().unwrap());
        assert!(never("169.254.0.0", "169.254.255.255") && never("fe80::", "fe80::ffff"));
        assert!(!never("0.0.0.0", "255.255.255.255") && !never("10.0.0.0", "10.0.0.255"));
    }
}
