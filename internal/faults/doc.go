// Package faults holds the tests of faults that need more than a server: processes that are killed and stopped at chosen moments,
// connections that break through a proxy, replicas, Sentinel and clusters. It is a module of its own, so that what it needs
// never becomes something that the product needs.
//
// The rows F01 to F94 are listed in docs/faults.md. Those that need a server only are tested in the packages they concern, under
// names of the same form; make faults runs them all.
package faults
