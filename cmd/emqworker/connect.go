package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/valkey-io/valkey-go"
)

const (
	defaultURL  = "valkey://127.0.0.1:6379"
	dialTimeout = 3 * time.Second
)

// connect connects to the server of the command line or the environment. It fails with [exitUnreachable] within 5 s; what it
// says never holds the password.
func (a *app) connect(cmd *cobra.Command) (valkey.Client, error) {
	opt, err := a.options(cmd)
	if err != nil {
		return nil, err
	}
	client, err := valkey.NewClient(opt)
	if err != nil {
		text := err.Error()
		if strings.HasPrefix(text, "WRONGPASS") {
			text = "user " + cmp.Or(opt.Username, "default") + ": " + text
		}
		if opt.Password != "" {
			text = strings.ReplaceAll(text, opt.Password, "…")
		}
		switch {
		case opt.TLSConfig != nil && errors.Is(err, context.DeadlineExceeded), errors.As(err, new(tls.RecordHeaderError)):
			text += "; the address asks for TLS: does the server speak it on this port?"
		case opt.TLSConfig == nil && (errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET)):
			text += "; the server hung up: does it want TLS (valkeys://) on this port?"
		}
		return nil, &exitError{exitUnreachable, fmt.Errorf("cannot reach Valkey at %s: %s", strings.Join(opt.InitAddress, ", "), text)}
	}
	return client, nil
}

// address is the server's URL and where it was said.
func (a *app) address(cmd *cobra.Command) (text, source string) {
	switch {
	case a.url != "":
		return a.url, "--url"
	case os.Getenv("VALKEY_URL") != "":
		return os.Getenv("VALKEY_URL"), "VALKEY_URL"
	case os.Getenv("REDIS_URL") != "":
		note(cmd, "VALKEY_URL is not set; taking the server of REDIS_URL")
		return os.Getenv("REDIS_URL"), "REDIS_URL"
	}
	return defaultURL, "the default"
}

func (a *app) options(cmd *cobra.Command) (valkey.ClientOption, error) {
	text, source := a.address(cmd)
	opt, err := parseURL(text)
	if err != nil {
		return opt, usage("%s is %w", source, err)
	}
	if a.passwordFile != "" {
		password, err := os.ReadFile(a.passwordFile)
		if err != nil {
			return opt, usage("--password-file: %w", err)
		}
		opt.Password = strings.TrimRight(string(password), "\r\n")
	}
	opt.DisableCache = true
	opt.DisableRetry = true // a server that goes away is told, not waited for in silence; a worker asks again itself
	if opt.Dialer.Timeout == 0 {
		opt.Dialer.Timeout = dialTimeout
	}
	return opt, nil
}

// errURL does not say what is wrong with a URL: any part of it may belong to a password that was not encoded.
var errURL = errors.New("no address of a server; want valkey://[user:password@]host[:port][/db], valkeys:// for TLS, or unix:///path, " +
	"with special characters of the password percent-encoded")

func parseURL(text string) (valkey.ClientOption, error) {
	u, err := url.Parse(text)
	if err != nil || u.Fragment != "" || u.Host == "" && u.Scheme != "unix" {
		return valkey.ClientOption{}, errURL
	}
	if u.Query().Has("skip_verify") {
		return valkey.ClientOption{}, errors.New("refused: it has skip_verify, which would trust any server; " +
			"give the server a certificate that the system's trust store knows, or set SSL_CERT_FILE")
	}
	opt, err := valkey.ParseURL(text)
	if err != nil {
		return opt, errURL
	}
	return opt, nil
}
