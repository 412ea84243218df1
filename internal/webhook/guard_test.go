package webhook

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestGuard(t *testing.T) {
	t.Parallel()
	for _, address := range []string{
		"127.0.0.1", "127.8.8.8", "0.0.0.0", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "100.127.255.255", "224.0.0.1",
		"239.1.1.1", "255.255.255.255", "240.0.0.1", "198.18.0.1", "192.0.0.1", "192.0.2.1", "::", "::1", "fe80::1", "fc00::1", "fd12::1", "ff02::1",
		"::ffff:127.0.0.1", "::ffff:10.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::", "2001:db8::1", "fec0::1",
	} {
		to := netip.AddrPortFrom(netip.MustParseAddr(address), 443).String()
		require.ErrorIs(t, guard(false, false)("tcp", to, nil), ErrAddress, address)
		assert.NoError(t, guard(true, false)("tcp", to, nil), address)
		assert.NoError(t, guard(true, true)("tcp", to, nil), address)
	}
	for _, address := range []string{"1.1.1.1", "8.8.8.8", "100.63.255.255", "100.128.0.1", "172.15.0.1", "172.32.0.1", "2606:4700::1111", "::ffff:1.1.1.1"} {
		to := netip.AddrPortFrom(netip.MustParseAddr(address), 443).String()
		assert.NoError(t, guard(false, false)("tcp", to, nil), address)
		assert.NoError(t, guard(true, false)("tcp", to, nil), address)
		require.ErrorContains(t, guard(true, true)("tcp", to, nil), "unencrypted", address)
	}
	require.ErrorIs(t, guard(true, false)("tcp", "no address", nil), ErrAddress)
}

func TestURLs(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"":                             "is no URL of a web server",
		"example.org/jobs":             "is no URL of a web server",
		"ftp://example.org":            "is no URL of a web server",
		"https://":                     "is no URL of a web server",
		"https://u:hunter2@bad host":   "this is no URL",
		"http://u:hunter2@example.org": "unencrypted",
		"https://127.0.0.1/":           "not of the public internet",
		"https://[::1]:8443/":          "not of the public internet",
		"https://localhost/":           "not of the public internet",
	} {
		_, err := New(Options{URL: url})
		require.ErrorContains(t, err, want, url)
		assert.NotContains(t, err.Error(), "hunter2")
	}
	for _, opts := range []Options{
		{URL: "https://example.org/jobs"}, {URL: "http://127.0.0.1:8080", Private: true}, {URL: "http://backend.internal", Private: true},
	} {
		p, err := New(opts)
		require.NoError(t, err, opts.URL)
		p.Close()
	}
}
