package webhook

import (
	"errors"
	"fmt"
	"net/netip"
	"syscall"
)

// ErrAddress: the endpoint's name leads to an address that jobs are not posted to.
var ErrAddress = errors.New("address not allowed")

// special are ranges that no public service has, beside those that netip names.
var special = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"),
	netip.MustParsePrefix("100.64.0.0/10"), // carriers' NAT
	netip.MustParsePrefix("192.0.0.0/24"),
	netip.MustParsePrefix("192.0.2.0/24"), // documentation, this line and the next two
	netip.MustParsePrefix("198.51.100.0/24"),
	netip.MustParsePrefix("203.0.113.0/24"),
	netip.MustParsePrefix("198.18.0.0/15"), // benchmarks
	netip.MustParsePrefix("240.0.0.0/4"),
	netip.MustParsePrefix("64:ff9b::/96"), // IPv4 behind NAT64 and 6to4
	netip.MustParsePrefix("64:ff9b:1::/48"),
	netip.MustParsePrefix("2002::/16"),
	netip.MustParsePrefix("2001::/23"),
	netip.MustParsePrefix("2001:db8::/32"),
	netip.MustParsePrefix("fec0::/10"),
}

// public says whether an address is one of the public internet.
func public(ip netip.Addr) bool {
	ip = ip.Unmap()
	if !ip.IsGlobalUnicast() || ip.IsPrivate() {
		return false
	}
	for _, prefix := range special {
		if prefix.Contains(ip) {
			return false
		}
	}
	return true
}

// guard refuses addresses at the moment of connecting, after the name was looked up: what a name leads to may change between a check
// and a call. With private only addresses that are not public pass.
func guard(private, plain bool) func(network, address string, _ syscall.RawConn) error {
	return func(_, address string, _ syscall.RawConn) error {
		to, err := netip.ParseAddrPort(address)
		switch {
		case err != nil:
			return fmt.Errorf("%w: %s", ErrAddress, address)
		case !private && !public(to.Addr()):
			return fmt.Errorf("%w: %s is not of the public internet; --http-private lets jobs go there", ErrAddress, to.Addr())
		case plain && public(to.Addr()):
			return fmt.Errorf("%w: %s is public, and http:// would send jobs unencrypted; want https://", ErrAddress, to.Addr())
		}
		return nil
	}
}
