// Package layers checks that imports point one way.
package layers

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "github.com/echomq/emq"

// may says which packages of this module, and which foreign modules beside the standard library, a package may import. A data
// flow that seems to need more needs another place.
var may = map[string][]string{
	"lua":                {"valkey-io/valkey-go"},
	"limiter":            {"lua", "valkey-io/valkey-go"},
	"limiter/httplimit":  {"limiter", "lua"},
	"meter":              {"go.opentelemetry.io/otel"},
	"queue":              {"limiter", "lua", "meter", "valkey-io/valkey-go", "google/uuid"},
	"claim":              {"queue", "limiter", "lua", "meter", "valkey-io/valkey-go", "google/uuid"},
	"worker":             {"claim", "queue", "meter", "valkey-io/valkey-go"},
	"metrics":            {"limiter", "lua", "valkey-io/valkey-go"},
	"emqtest":            {"internal/valkeyd", "lua", "valkey-io/valkey-go", "go.uber.org/goleak"},
	"emqtest/jobtest":    {"emqtest", "claim", "queue", "worker"},
	"internal/valkeyd":   {"valkey-io/valkey-go"},
	"internal/emulator":  {"alicebob/miniredis"},
	"internal/model":     {"limiter", "lua"},
	"internal/subbudget": {"limiter"},
	"internal/doctor":    {"lua", "metrics", "queue", "valkey-io/valkey-go"},
	"internal/webhook":   {"worker", "meter"},
	"internal/dashboard": {"limiter", "metrics", "queue", "valkey-io/valkey-go", "golang.org/x/crypto"},
	"internal/ledger":    {"internal/model"},
	"internal/fleet":     {"claim", "worker", "valkey-io/valkey-go", "stretchr/testify"},
}

// anything may import these; nothing imports them but what is named with them.
var top = []string{"cmd/emqworker", "internal/mutate"}

func TestImportsPointOneWay(t *testing.T) {
	t.Parallel()
	out, err := exec.Command("go", "list", "-e", "-json=ImportPath,Imports,GoFiles", module+"/...").Output()
	require.NoError(t, err)
	seen := map[string]bool{}
	for decoder := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p struct {
			ImportPath string
			Imports    []string
			GoFiles    []string
		}
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else {
			require.NoError(t, err)
		}
		name := strings.TrimPrefix(p.ImportPath, module+"/")
		if len(p.GoFiles) == 0 || slices.Contains(top, name) {
			continue
		}
		allowed, known := may[name]
		if !known {
			t.Errorf("package %s is not in the table of layers; say what it may import", name)
			continue
		}
		seen[name] = true
		for _, path := range p.Imports {
			ok := !strings.Contains(strings.SplitN(path, "/", 2)[0], ".")
			for _, a := range allowed {
				ok = ok || path == module+"/"+a || strings.HasPrefix(path, a) || strings.HasPrefix(path, "github.com/"+a)
			}
			if !ok {
				t.Errorf("package %s imports %s; it may import %v", name, path, allowed)
			}
		}
	}
	for name := range may {
		if !seen[name] && name != "metrics" {
			t.Errorf("the table of layers names %s, which does not exist", name)
		}
	}
}
