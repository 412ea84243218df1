package layers

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// No script is told the time of a worker's or producer's machine: in the packages that call scripts, the wall clock is never made a
// number. What they measure by time.Now they measure by its monotonic part. So two workers whose clocks are hours apart do the same.
func TestF18NoScriptIsToldTheTime(t *testing.T) {
	t.Parallel()
	files := 0
	for _, dir := range []string{"lua", "limiter", "claim", "queue", "worker"} {
		err := filepath.WalkDir(filepath.Join("..", "..", dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			files++
			set := token.NewFileSet()
			file, err := parser.ParseFile(set, path, nil, 0)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				call, is := n.(*ast.CallExpr)
				if !is {
					return true
				}
				outer, is := call.Fun.(*ast.SelectorExpr)
				if !is || !strings.HasPrefix(outer.Sel.Name, "Unix") && outer.Sel.Name != "Format" && outer.Sel.Name != "Round" {
					return true
				}
				inner, is := outer.X.(*ast.CallExpr)
				if !is {
					return true
				}
				if f, is := inner.Fun.(*ast.SelectorExpr); is && f.Sel.Name == "Now" {
					t.Errorf("%s: the clock of this machine is made a number", set.Position(call.Pos()))
				}
				return true
			})
			return nil
		})
		require.NoError(t, err)
	}
	require.Greater(t, files, 30)
	t.Attr("figure", "no clock of a worker is read as a number in 5 packages")
}
