package main

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/valkey-io/valkey-go"

	"github.com/echomq/emq/internal/valkeyd"
)

// server is a private Valkey server that one run has for itself.
type server struct {
	*valkeyd.Server
	admin valkey.Client // of the measurement, never of what is measured
}

func startServer() *server {
	s := must(valkeyd.Start(valkeyd.Options{TCP: true}))
	return &server{s, must(valkey.NewClient(s.Options()))}
}

func (s *server) stop() {
	s.admin.Close()
	s.Stop()
}

// dial makes a client as most programs do.
func (s *server) dial() valkey.Client { return must(valkey.NewClient(s.Options())) }

// dialSmall makes a client of small buffers, for a process that has hundreds.
func (s *server) dialSmall() valkey.Client {
	o := s.Options()
	o.ReadBufferEachConn, o.WriteBufferEachConn, o.RingScaleEachConn, o.PipelineMultiplex = 4<<10, 4<<10, 5, -1
	return must(valkey.NewClient(o))
}

func (s *server) address() string { return strings.TrimPrefix(s.URL(), "valkey://") }

func (s *server) port() int {
	_, port, _ := strings.Cut(s.address(), ":")
	return must(strconv.Atoi(port))
}

// do runs one command.
func (s *server) do(ctx context.Context, words ...string) valkey.ValkeyMessage {
	return must(s.admin.Do(ctx, s.admin.B().Arbitrary(words...).Build()).ToMessage())
}

// info is a section of INFO, by field.
func (s *server) info(ctx context.Context, section string) map[string]string {
	fields := map[string]string{}
	for _, text := range strings.Split(must(s.admin.Do(ctx, s.admin.B().Info().Section(section).Build()).ToString()), "\r\n") {
		if name, value, ok := strings.Cut(text, ":"); ok {
			fields[name] = value
		}
	}
	return fields
}

// cpu is the processor time that the server has used.
func (s *server) cpu(ctx context.Context) time.Duration {
	fields := s.info(ctx, "cpu")
	seconds := must(strconv.ParseFloat(fields["used_cpu_sys"], 64)) + must(strconv.ParseFloat(fields["used_cpu_user"], 64))
	return time.Duration(seconds * float64(time.Second))
}

// memory is what the server's allocator handed out, in bytes.
func (s *server) memory(ctx context.Context) float64 {
	return must(strconv.ParseFloat(s.info(ctx, "memory")["used_memory"], 64))
}

// scripts counts the calls of scripts, and the microseconds that they took.
func (s *server) scripts(ctx context.Context) (calls, took int64) {
	stats := s.info(ctx, "commandstats")
	for _, command := range []string{"evalsha", "evalsha_ro", "eval", "eval_ro", "fcall", "fcall_ro"} {
		for _, field := range strings.Split(stats["cmdstat_"+command], ",") {
			switch name, value, _ := strings.Cut(field, "="); name {
			case "calls":
				calls += must(strconv.ParseInt(value, 10, 64))
			case "usec":
				took += must(strconv.ParseInt(value, 10, 64))
			}
		}
	}
	return calls, took
}

// took is how many microseconds the scripts that f calls take in the server.
func (s *server) took(ctx context.Context, f func()) float64 {
	_, before := s.scripts(ctx)
	f()
	_, after := s.scripts(ctx)
	return float64(after - before)
}

// empty ends the run unless the server has no key like any of the patterns.
func (s *server) empty(ctx context.Context, patterns ...string) {
	for _, pattern := range patterns {
		var cursor uint64
		for {
			page := must(s.admin.Do(ctx, s.admin.B().Scan().Cursor(cursor).Match(pattern).Count(1000).Build()).AsScanEntry())
			if len(page.Elements) > 0 {
				fail("the queue is not empty afterwards: key %s is left", page.Elements[0])
			}
			if cursor = page.Cursor; cursor == 0 {
				break
			}
		}
	}
}
