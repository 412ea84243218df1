package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strings"

	"github.com/spf13/cobra"
	"github.com/valkey-io/valkey-go"

	"github.com/echomq/emq/internal/emulator"
	"github.com/echomq/emq/internal/valkeyd"
)

// demoServer is the server of the demo: a private one, or the one of --url.
type demoServer struct {
	name    string // for people
	private bool   // it ends with the demo
	slack   int64  // ms by which its windows may seem to open early
	env     []string
	client  valkey.Client
	stop    func()
}

const emulatorSlack = 50 // ms; its clock goes on while a script runs

// startServer starts a private server, or connects to the one of --url. What the environment says is not taken: a demo that
// writes to a server should be told so.
func (a *app) startServer(cmd *cobra.Command, emulated bool) (*demoServer, error) {
	s := &demoServer{private: true, stop: func() {}}
	url := a.url
	switch {
	case url != "" && emulated:
		return nil, usage("demo: want one of --url and --emulator")
	case url != "":
		s.private = false
	case a.passwordFile != "":
		return nil, usage("demo: --password-file is for the server of --url")
	case !emulated:
		server, err := valkeyd.Start(valkeyd.Options{})
		if err == nil {
			url, s.stop = server.URL(), server.Stop
			break
		}
		if !errors.Is(err, exec.ErrNotFound) && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		note(cmd, "%s", errorText(err))
		emulated = true
	}
	if emulated {
		server, err := emulator.Start()
		if err != nil {
			return nil, err
		}
		note(cmd, "*** NO VALKEY SERVER: this demo runs on an emulator inside this process. It is slow, keeps nothing and is not for use. ***")
		url, s.stop, s.slack, s.name = server.URL(), server.Stop, emulatorSlack, "emulator"
	}
	from := *a
	from.url = url
	client, err := from.connect(cmd)
	if err != nil {
		s.stop()
		return nil, err
	}
	s.client = client
	if s.name == "" {
		s.name = serverName(cmd.Context(), client, s.private)
	}
	s.env = append(os.Environ(), "VALKEY_URL="+url)
	return s, nil
}

func (s *demoServer) close() {
	s.client.Close()
	s.stop()
}

// serverName is what the server says that it is.
func serverName(ctx context.Context, client valkey.Client, private bool) string {
	info, _ := client.Do(ctx, client.B().Info().Section("server").Build()).ToString()
	fields := map[string]string{}
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		fields[name] = value
	}
	name := "Valkey " + fields["valkey_version"]
	if fields["valkey_version"] == "" {
		name = "Redis " + fields["redis_version"]
	}
	if private {
		return fmt.Sprintf("private %s", name)
	}
	return name
}
