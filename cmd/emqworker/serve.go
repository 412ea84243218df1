package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/echomq/emq/internal/dashboard"
)

const defaultServe = "127.0.0.1:9464"

// serveFlags are the flags of serve.
type serveFlags struct {
	addr, authFile, basePath string
	hosts                    []string
	actions                  bool
}

func newServe(a *app) *cobra.Command {
	var f serveFlags
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve the dashboard, and the same figures as JSON",
		Long: `Serve pages that follow the queues live - what each does and why, what is left of every limit, which jobs wait for what, the
workers - and the same figures as JSON under /v1.

It is read-only unless --allow-actions is given. An address that other machines reach needs --auth-file, since whoever reaches the
dashboard sees every queue; the file has lines name:hash as htpasswd -B writes them. Names under which it is reached, beside
localhost and loopback addresses, are given by --host.`,
		Example: `  emqworker serve
  emqworker serve --addr 0.0.0.0:9464 --auth-file users --host emq.example.org --allow-actions`,
		Args: arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error { return serve(a, cmd, f) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.addr, "addr", defaultServe, "address to listen on")
	flags.BoolVar(&f.actions, "allow-actions", false, "let users pause, set limits, redrive and delete")
	flags.StringVar(&f.authFile, "auth-file", "", "file of users, lines name:hash with hashes of bcrypt")
	flags.StringArrayVar(&f.hosts, "host", nil, "a name under which it is reached; may be given more than once")
	flags.StringVar(&f.basePath, "base-path", "", "path at which the pages begin, behind a proxy that keeps it")
	return cmd
}

// loopback says whether an address is reached from this machine alone.
func loopback(addr string) (bool, error) {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false, fmt.Errorf("%q is no address; want one such as %s", addr, defaultServe)
	}
	if host == "localhost" {
		return true, nil
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback(), nil
}

func serve(a *app, cmd *cobra.Command, f serveFlags) error {
	near, err := loopback(f.addr)
	switch {
	case err != nil:
		return usage("serve: --addr: %w", err)
	case !near && f.authFile == "":
		return usage("serve: --addr %s is reached from other machines, and whoever reaches the dashboard sees every queue; give --auth-file, or an address such as %s", f.addr, defaultServe)
	}
	var users dashboard.Users
	if f.authFile != "" {
		text, err := os.ReadFile(f.authFile)
		if err != nil {
			return usage("serve: --auth-file: %w", err)
		}
		if users, err = dashboard.ParseUsers(text); err != nil {
			return usage("serve: --auth-file %s: %w", f.authFile, err)
		}
	}
	client, err := a.connect(cmd)
	if err != nil {
		return err
	}
	defer client.Close()
	log := slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil))
	handler, err := dashboard.New(dashboard.Options{Client: client, AllowActions: f.actions, Users: users, Hosts: f.hosts, BasePath: f.basePath,
		Version: version().Version, Logger: log})
	if err != nil {
		return usage("serve: %w", err)
	}
	listener, err := net.Listen("tcp", f.addr)
	if err != nil {
		return fmt.Errorf("serve: %w", err)
	}
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	server := &http.Server{
		Handler: handler, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 32 << 10,
		BaseContext: func(net.Listener) context.Context { return ctx }, // streams end with it
		ErrorLog:    slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	note(cmd, "dashboard at http://%s%s/%s", listener.Addr(), f.basePath, map[bool]string{true: "", false: " (read-only; --allow-actions lets users act)"}[f.actions])
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	select {
	case err := <-ended:
		return fmt.Errorf("serve: %w", err)
	case <-ctx.Done():
	}
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if err := server.Shutdown(closing); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("serve: %w", err)
	}
	return nil
}
