package wire_test

import (
	"os"
	"testing"

	"github.com/echomq/emq/emqtest"
)

func TestMain(m *testing.M) { os.Exit(emqtest.Run(m)) }
