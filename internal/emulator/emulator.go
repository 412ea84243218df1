package emulator

import (
	"bufio"
	"bytes"
	"crypto/sha1"
	"fmt"
	"regexp"
	"strings"
	"sync"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
)

// Emulator is a running emulator; [Start] makes one.
type Emulator struct {
	redis *miniredis.Miniredis
	srv   *server.Server

	// shas maps the SHA1 of a script whose first line is #!lua, which the
	// emulator's Lua cannot parse, to that of the text it runs instead.
	shas sync.Map
}

// Start starts an emulator on a free port of 127.0.0.1. Its keys expire by the
// wall clock. It fails when it cannot listen.
func Start() (*Emulator, error) {
	e := &Emulator{redis: miniredis.NewMiniRedis()}
	if err := e.redis.StartAddr("127.0.0.1:0"); err != nil {
		return nil, fmt.Errorf("emulator: %w", err)
	}
	e.srv = e.redis.Server()
	e.redis.ClockTTL(true)
	e.srv.SetPreHook(e.adapt)
	return e, nil
}

// URL returns the address in the form that valkey.ParseURL reads. It switches
// off the client's cache, which the emulator cannot serve.
func (e *Emulator) URL() string { return "valkey://" + e.redis.Addr() + "?client_cache=0" }

// Stop ends the emulator and its connections; what it held is gone. A second
// call does nothing.
func (e *Emulator) Stop() { e.redis.Close() }

// adapt sees each command first and reports whether it has answered it.
func (e *Emulator) adapt(c *server.Peer, command string, args ...string) bool {
	if command == "CLUSTER" { // else a client takes this for a cluster
		c.WriteError("ERR This instance has cluster support disabled")
		return true
	}
	full := append([]string{command}, args...)
	at := 1 // where the script or its SHA1 stands
	if command == "SCRIPT" && len(args) == 2 {
		command, at = command+" "+strings.ToUpper(args[0]), 2
	}
	if len(full) <= at {
		return false
	}
	given := full[at]
	switch command {
	case "EVAL", "EVAL_RO", "SCRIPT LOAD":
		full[at] = e.text(given)
	case "EVALSHA", "EVALSHA_RO", "SCRIPT EXISTS":
		full[at] = e.sha(given)
	}
	if plain, readOnly := strings.CutSuffix(command, "_RO"); readOnly {
		full[0] = plain // the emulator refuses TIME in read-only scripts
	} else if full[at] == given {
		return false
	}

	var reply bytes.Buffer
	w := bufio.NewWriter(&reply)
	inner := server.NewPeer(w)
	inner.Ctx, inner.Resp3 = c.Ctx, c.Resp3
	e.srv.Dispatch(inner, full) // passes here again, with nothing to change
	w.Flush()
	text := serverError(reply.String())
	if command == "SCRIPT LOAD" { // the client knows its own text's SHA1
		text = strings.Replace(text, sha(full[at]), sha(given), 1)
	}
	c.WriteRaw(text)
	return true
}

// text returns what is run for a script: its line of flags made a comment.
func (e *Emulator) text(script string) string {
	if !strings.HasPrefix(script, "#!lua") {
		return script
	}
	plain := "--" + script[2:]
	e.shas.Store(sha(script), sha(plain))
	return plain
}

// sha returns the SHA1 of what is run for the script with the given SHA1.
func (e *Emulator) sha(given string) string {
	if plain, ok := e.shas.Load(strings.ToLower(given)); ok {
		return plain.(string)
	}
	return given
}

func sha(text string) string { return fmt.Sprintf("%x", sha1.Sum([]byte(text))) }

var (
	raised = regexp.MustCompile(`^-ERR Error compiling script \(new function\): :(\d+): (.*?) +stack traceback:`)
	coded  = regexp.MustCompile(`^[A-Z_]+ `)
)

// serverError rewrites the reply for an error raised while a script ran, which
// the emulator reports as one of compilation, the way a server words it.
func serverError(reply string) string {
	m := raised.FindStringSubmatch(reply)
	if m == nil {
		return reply
	}
	line, what := m[1], m[2]
	if !coded.MatchString(what) {
		what = "ERR user_script:" + line + ": " + what
	}
	return "-" + what + ", on @user_script:" + line + ".\r\n"
}
