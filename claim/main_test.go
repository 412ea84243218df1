package claim_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"

	"github.com/valkey-io/valkey-go"

	"github.com/echomq/emq/emqtest"
)

// client is what the examples use.
var client valkey.Client

func TestMain(m *testing.M) {
	flag.Parse()
	checks, seed := flag.Lookup("rapid.checks"), flag.Lookup("rapid.seed")
	if checks.Value.String() == checks.DefValue {
		checks.Value.Set("700") // of each of three modes
	}
	if seed.Value.String() == "0" {
		seed.Value.Set(strconv.FormatUint(rand.Uint64(), 10))
	}
	fmt.Printf("rapid: -rapid.checks %s -rapid.seed %s\n", checks.Value, seed.Value)
	client, _ = emqtest.Start()
	os.Exit(emqtest.Run(m))
}
