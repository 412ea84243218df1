package faults

import (
	"os"
	"testing"

	"github.com/echomq/emq/emqtest"
	"github.com/echomq/emq/internal/fleet"
)

func TestMain(m *testing.M) {
	childMain()
	fleet.Main()
	os.Exit(emqtest.Run(m))
}
