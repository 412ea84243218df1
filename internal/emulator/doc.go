// Package emulator serves the project's scripts inside this process where no
// Valkey server is installed: for the demo and local development, and for
// nothing else. It keeps nothing, is slow, and proves nothing about a server:
// time moves while a script runs, a script's flags are not enforced, a table
// raised with error() loses its text, and INFO, CONFIG, ACL and DEBUG are
// mostly absent.
package emulator
