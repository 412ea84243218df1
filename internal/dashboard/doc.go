// Package dashboard serves what people and programs want to know of the queues on one server: pages that follow the queues live,
// and the same figures as JSON under /v1. It is what emqworker serve runs.
//
// It is read-only unless told otherwise, and then each change is recorded with who made it and why. It keeps nothing of its own: every
// figure is read from Valkey when it is asked for.
package dashboard
