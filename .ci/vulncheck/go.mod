module github.com/echomq/emq/ci/vulncheck

go 1.26.8
