package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/echomq/emq/internal/valkeyd"
)

// authority signs certificates.
type authority struct {
	t    *testing.T
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	file string // its own certificate
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t, dir: t.TempDir()}
	a.cert = &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-48 * time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign}
	var err error
	a.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	der, err := x509.CreateCertificate(rand.Reader, a.cert, a.cert, &a.key.PublicKey, a.key)
	require.NoError(t, err)
	a.file = a.write("ca.pem", "CERTIFICATE", der)
	return a
}

func (a *authority) write(name, kind string, der []byte) string {
	path := filepath.Join(a.dir, name)
	require.NoError(a.t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
	return path
}

// sign makes a certificate for 127.0.0.1, or for a name, and returns its files.
func (a *authority) sign(name string, until time.Time) (cert, key string) {
	a.t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(a.t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), NotBefore: time.Now().Add(-24 * time.Hour), NotAfter: until}
	if ip := net.ParseIP(name); ip != nil {
		template.IPAddresses = []net.IP{ip}
	} else {
		template.DNSNames = []string{name}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &private.PublicKey, a.key)
	require.NoError(a.t, err)
	pkcs, err := x509.MarshalECPrivateKey(private)
	require.NoError(a.t, err)
	file := strings.ReplaceAll(name, ":", "-") + until.Format("150405")
	return a.write(file+".pem", "CERTIFICATE", der), a.write(file+".key", "EC PRIVATE KEY", pkcs)
}

// The connection is TLS by the URL, and the server is verified; what is wrong is said.
func TestF33TLS(t *testing.T) {
	t.Parallel()
	ours, theirs := newAuthority(t), newAuthority(t)
	serve := func(cert, key, ca string) string {
		t.Helper()
		free, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		_, port, _ := net.SplitHostPort(free.Addr().String())
		free.Close()
		server, err := valkeyd.Start(valkeyd.Options{Args: []string{"--tls-port", port, "--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", ca, "--tls-auth-clients", "optional"}})
		require.NoError(t, err)
		t.Cleanup(server.Stop)
		return "127.0.0.1:" + port
	}
	later := time.Now().Add(time.Hour)
	cert, key := ours.sign("127.0.0.1", later)
	good := serve(cert, key, ours.file)
	cert, key = ours.sign("elsewhere.example", later)
	wrongName := serve(cert, key, ours.file)
	cert, key = ours.sign("127.0.0.1", time.Now().Add(-time.Hour))
	expired := serve(cert, key, ours.file)
	cert, key = theirs.sign("127.0.0.1", later)
	unknown := serve(cert, key, theirs.file)
	plain, err := valkeyd.Start(valkeyd.Options{TCP: true})
	require.NoError(t, err)
	t.Cleanup(plain.Stop)

	for _, c := range []struct {
		name, url, want string
		code            int
	}{
		{"verified", "valkeys://" + good, "", 0},
		{"verified, by the other name", "rediss://" + good, "", 0},
		{"another name", "valkeys://" + wrongName, "certificate", exitUnreachable},
		{"expired", "valkeys://" + expired, "expired", exitUnreachable},
		{"unknown authority", "valkeys://" + unknown, "unknown authority", exitUnreachable},
		{"plain to TLS", "valkey://" + good, "does it want TLS (valkeys://)", exitUnreachable},
		{"TLS to plain", "valkeys://" + strings.TrimPrefix(plain.URL(), "valkey://"), "does the server speak it", exitUnreachable},
		{"verification switched off", "valkeys://" + unknown + "?skip_verify=true", "skip_verify", exitUsage},
	} {
		begin := time.Now()
		p := startWith(t, []string{"SSL_CERT_FILE=" + ours.file, "SSL_CERT_DIR=" + t.TempDir()}, "stats", "--json", "--url", c.url)
		assert.Equal(t, c.code, p.wait(t), "%s: %s", c.name, p.stderr.String())
		assert.Contains(t, p.stderr.String(), c.want, c.name)
		assert.Less(t, time.Since(begin), time.Minute, c.name)
	}
	t.Attr("figure", "8 cases, each told apart")
}

// A wrong password or a disabled user ends a command at once, with the user's name and never the password.
func TestF31WrongPassword(t *testing.T) {
	t.Parallel()
	server, err := valkeyd.Start(valkeyd.Options{TCP: true, Args: []string{"--user", "ana", "on", ">right", "~*", "&*", "+@all", "--user", "bob", "off", ">right", "~*", "&*", "+@all"}})
	require.NoError(t, err)
	t.Cleanup(server.Stop)
	host := strings.TrimPrefix(server.URL(), "valkey://")
	for _, user := range []string{"ana", "bob", "nobody"} {
		for _, command := range []string{"stats", "run -q q --log", "enqueue q x"} {
			a := bare("", append(strings.Fields(command), "--url", "valkey://"+user+":"+canary+"@"+host)...)
			assert.Equal(t, exitUnreachable, a.code, command)
			assert.Contains(t, a.stderr, "WRONGPASS", command)
			assert.Contains(t, a.stderr, user, command)
			assert.NotContains(t, a.stdout+a.stderr, canary, command)
		}
	}
	assert.Equal(t, 0, bare("", "stats", "--url", "valkey://ana:right@"+host).code)
}
