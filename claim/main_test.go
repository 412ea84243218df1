package claim_test

import (
	"os"
	"testing"

	"github.com/valkey-io/valkey-go"

	"github.com/echomq/emq/emqtest"
)

// client is what the examples use.
var client valkey.Client

func TestMain(m *testing.M) {
	client, _ = emqtest.Start()
	os.Exit(emqtest.Run(m))
}
