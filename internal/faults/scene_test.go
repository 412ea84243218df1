package faults

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/valkey-io/valkey-go"

	"github.com/echomq/emq/claim"
	"github.com/echomq/emq/emqtest"
	"github.com/echomq/emq/internal/model"
	"github.com/echomq/emq/internal/valkeyd"
	"github.com/echomq/emq/lua"
	"github.com/echomq/emq/queue"
)

// scene is a queue on a server, which tells what is done to it.
type scene struct {
	*testing.T
	*queue.Queue
	client valkey.Client
	keys   lua.Keys
	server *valkeyd.Server
	added  int // jobs
}

// newScene starts a server of its own; it knows all scripts already.
func newScene(t *testing.T, options valkeyd.Options) *scene {
	t.Helper()
	server, err := valkeyd.Start(options)
	require.NoError(t, err)
	t.Cleanup(server.Stop)
	client, err := valkey.NewClient(server.Options())
	require.NoError(t, err)
	t.Cleanup(client.Close)
	s := on(t, client)
	s.server = server
	return s
}

// newSceneWithClock starts a server whose clock stands still until it is moved.
func newSceneWithClock(t *testing.T) (*scene, *valkeyd.Clock) {
	t.Helper()
	server, clock, err := valkeyd.StartWithClock(valkeyd.Options{})
	require.NoError(t, err)
	t.Cleanup(server.Stop)
	client, err := valkey.NewClient(server.Options())
	require.NoError(t, err)
	t.Cleanup(client.Close)
	clock.Advance(0)
	s := on(t, client)
	s.server = server
	return s, clock
}

// on makes a scene on a server that is there.
func on(t *testing.T, client valkey.Client) *scene {
	t.Helper()
	q, err := queue.New(client, emqtest.Queue(t), queue.Options{})
	require.NoError(t, err)
	keys, err := lua.ForQueue(q.Name())
	require.NoError(t, err)
	s := &scene{T: t, Queue: q, client: client, keys: keys}
	for _, name := range lua.Names() {
		for _, node := range client.Nodes() {
			require.NoError(t, node.Do(t.Context(), node.B().ScriptLoad().Script(lua.Source(name)).Build()).Error(), name)
		}
	}
	s.do("HSET", keys.Meta(), "audit", "100000")
	return s
}

func (s *scene) do(command ...string) valkey.ValkeyResult {
	s.Helper()
	words := s.client.B().Arbitrary(command[0])
	if len(command) > 1 {
		words = words.Keys(command[1]).Args(command[2:]...) // so that a cluster knows where it goes
	}
	r := s.client.Do(context.Background(), words.Build())
	if err := r.Error(); err != nil && !valkey.IsValkeyNil(err) {
		s.Fatalf("%q: %v", command, err)
	}
	return r
}

// admin runs commands on the one connection of a client of its own, which CLIENT KILL leaves alone.
func (s *scene) admin() func(command ...string) valkey.ValkeyResult {
	s.Helper()
	options := s.server.Options()
	options.PipelineMultiplex, options.DisableCache = -1, true
	client, err := valkey.NewClient(options)
	require.NoError(s, err)
	s.Cleanup(client.Close)
	return func(command ...string) valkey.ValkeyResult {
		s.Helper()
		r := client.Do(context.Background(), client.B().Arbitrary(command...).Build())
		require.NoError(s, r.Error(), command)
		return r
	}
}

// add enqueues jobs whose payloads say what their handlers do; their ids are j0, j1, ….
func (s *scene) add(payloads ...string) {
	s.Helper()
	var jobs []queue.Job
	for _, p := range payloads {
		jobs = append(jobs, queue.Job{ID: "j" + strconv.Itoa(s.added), Payload: []byte(p), Retain: time.Hour, MaxAttempts: 3})
		s.added++
	}
	answers, err := s.EnqueueMany(s.Context(), jobs)
	require.NoError(s, err)
	for _, a := range answers {
		require.NoError(s, a.Err)
	}
}

// get is a job as it stands.
func (s *scene) get(id string) queue.Status {
	s.Helper()
	j, err := s.Get(s.Context(), id)
	require.NoError(s, err)
	return j
}

// becomes waits until a job is in a state.
func (s *scene) becomes(id string, state queue.State) queue.Status {
	s.Helper()
	var j queue.Status
	until(s.T, id+" becomes "+string(state), func() bool {
		var err error
		j, err = s.Get(s.Context(), id)
		return err == nil && j.State == state
	})
	return j
}

// empty waits until nothing waits or runs.
func (s *scene) empty() {
	s.Helper()
	until(s.T, "the queue is empty", func() bool {
		n, err := s.Counts(s.Context())
		return err == nil && n.Wait+n.Active+n.Delayed == 0
	})
}

func (s *scene) claimer(lease time.Duration) *claim.Claimer {
	s.Helper()
	c, err := claim.New(s.client, s.Name(), claim.Options{Lease: lease})
	require.NoError(s, err)
	return c
}

// audit is the stream of what was done.
func (s *scene) audit() (entries []map[string]string) {
	s.Helper()
	page, err := s.client.Do(s.Context(), s.client.B().Xrange().Key(s.keys.Audit()).Start("-").End("+").Build()).AsXRange()
	require.NoError(s, err)
	for _, e := range page {
		entries = append(entries, e.FieldValues)
	}
	return entries
}

// judged replays the stream: no claim granted more or less than the limits allow.
func (s *scene) judged() model.Report {
	s.Helper()
	r, _, err := model.Replay(s.audit(), claim.DefaultMaxReclaims)
	require.NoError(s, err)
	require.Zero(s, r.Over, r.First)
	require.Zero(s, r.Under, r.First)
	return r
}

// grants counts how often a job was granted.
func (s *scene) grants(id string) (n int) {
	s.Helper()
	for _, e := range s.audit() {
		if e["op"] == "claim" {
			for _, granted := range strings.Fields(e["granted"]) {
				if granted == id {
					n++
				}
			}
		}
	}
	return n
}

// settles are the outcomes that were applied to a job.
func (s *scene) settles(id string) (outcomes []string) {
	s.Helper()
	for _, e := range s.audit() {
		if e["op"] != "settle" {
			continue
		}
		for _, one := range strings.Split(e["jobs"], ",") {
			w := strings.Fields(one)
			if len(w) > 1 && strings.HasPrefix(w[1], id+"|") {
				outcomes = append(outcomes, w[0])
			}
		}
	}
	return outcomes
}

func (s *scene) digest() string {
	s.Helper()
	d, err := s.do("DEBUG", "DIGEST").ToString()
	require.NoError(s, err)
	return d
}

func (s *scene) figure(format string, args ...any) { s.Attr("figure", fmt.Sprintf(format, args...)) }
