package main

import (
	"context"
	"io"
	"regexp"
)

func measureCurves(ctx context.Context, e *env, names *regexp.Regexp, out io.Writer) ([]line, error) {
	return nil, nil
}
