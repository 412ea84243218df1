// Package valkeyd runs private Valkey servers for tests, the demo and local
// development.
//
// [Start] runs valkey-server on a unix socket in a directory of its own, with
// nothing kept on disk and DEBUG allowed. The server belongs to the process
// that started it: it ends with [Server.Stop], and on Linux also when that
// process dies in any other way. [Server.Kill], [Server.Restart],
// [Server.Pause] and [Server.Resume] are the faults a test can inflict.
//
// [StartWithClock] puts the server's wall clock into the caller's hands, so
// that a test crosses an hour by writing eight bytes and meets the last
// millisecond of a window exactly.
package valkeyd
