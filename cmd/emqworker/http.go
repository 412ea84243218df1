package main

import (
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/echomq/emq/internal/webhook"
)

// httpFlags are the flags of run that concern --http.
type httpFlags struct {
	url, secretFile, closeKey string
	timeout, maxWait          time.Duration
	private, noClose          bool
}

func (f *httpFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&f.url, "http", "", "post each job to this URL")
	flags.StringVar(&f.secretFile, "http-secret-file", "", "sign requests by the secret in this file, whsec_ and base64; several lines for several secrets")
	flags.DurationVar(&f.timeout, "http-timeout", webhook.DefaultTimeout, "how long one request may take")
	flags.StringVar(&f.closeKey, "http-close-key", "", "close the job's value of this key when the endpoint says 429, instead of the queue")
	flags.BoolVar(&f.noClose, "http-no-close", false, "close nothing when the endpoint says 429; the job alone waits")
	flags.DurationVar(&f.maxWait, "http-max-wait", webhook.DefaultMaxWait, "the longest wait that an endpoint may ask for")
	flags.BoolVar(&f.private, "http-private", false, "allow addresses that are not of the public internet, and plain http there")
}

// check refuses flags that do not go together.
func (f *httpFlags) check(flags *pflag.FlagSet) error {
	var err error
	flags.Visit(func(flag *pflag.Flag) {
		if strings.HasPrefix(flag.Name, "http-") && f.url == "" {
			err = usage("run: --%s needs --http", flag.Name)
		}
	})
	switch {
	case err != nil || f.url == "":
		return err
	case f.timeout <= 0:
		return usage("run: --http-timeout is %v; want more than 0", f.timeout)
	case f.maxWait < time.Millisecond:
		return usage("run: --http-max-wait is %v; want 1ms or more", f.maxWait)
	case f.noClose && f.closeKey != "":
		return usage("run: want one of --http-close-key and --http-no-close")
	}
	return nil
}

func (f *httpFlags) poster(concurrency int) (*webhook.Poster, error) {
	opts := webhook.Options{URL: f.url, Private: f.private, Timeout: f.timeout, CloseKey: f.closeKey, NoClose: f.noClose,
		MaxWait: f.maxWait, Concurrency: concurrency}
	if f.secretFile != "" {
		text, err := os.ReadFile(f.secretFile)
		if err != nil {
			return nil, usage("run: --http-secret-file: %w", err)
		}
		if opts.Secrets, err = webhook.Secrets(text); err != nil {
			return nil, usage("run: --http-secret-file %s: %w", f.secretFile, err)
		}
	}
	poster, err := webhook.New(opts)
	if err != nil {
		return nil, usage("run: --http: %w", err)
	}
	return poster, nil
}
