package worker_test

import (
	"os"
	"testing"

	"github.com/valkey-io/valkey-go"

	"github.com/echomq/emq/emqtest"
)

// client and url of the server are what the examples use.
var (
	client valkey.Client
	url    string
)

func TestMain(m *testing.M) {
	client, url = emqtest.Start()
	os.Exit(emqtest.Run(m))
}
